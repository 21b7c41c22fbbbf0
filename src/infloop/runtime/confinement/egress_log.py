"""Reports the egress decisions of a step to its run, the audit log and the metrics.

Rules
  * Each different decision is one line in the run.
  * Every decision is counted. The first refusal of its kind is reported at once. Repeated refusals
    and allowed connections are reported as counts, every few seconds and when the step ends.
  * The number of different decisions of a step is limited, and the rest is reported together. So a
    child that tries thousands of hosts can neither hide one among them nor fill a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.events import Notice
from infloop.model.hosts import authority

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.egress.reports import Decision, RefusalCause
    from infloop.model.audit import EventName
    from infloop.model.events import Event
    from infloop.model.values import JsonObject
    from infloop.policy.hosts import HostVerdict
    from infloop.runtime.run_audit import AuditedRun

FLUSH_SECONDS = 2.0
"""How often counts are reported."""

_MAX_KINDS = 50


class DecisionKind(NamedTuple):
    """What equal decisions have in common. `host` is empty if they are about several hosts."""

    verdict: HostVerdict
    host: str
    port: int
    reason: str
    rule: str
    why: RefusalCause

    def __str__(self) -> str:
        where = authority(self.host, self.port) if self.host else "a connection"
        return f"{self.verdict} {where}, {self.reason}"


class EgressDecision(msgspec.Struct, frozen=True):
    """`count` equal decisions about connections of a step."""

    path: str
    node: str
    kind: DecisionKind
    count: int

    @property
    def event(self) -> EventName:
        """The event in the audit log."""
        return "egress.allowed" if self.kind.verdict == "allowed" else "egress.refused"

    def details(self) -> JsonObject:
        """Return what the audit log and the event bus have in common."""
        kind = self.kind
        return {
            "path": self.path,
            "host": kind.host,
            "port": kind.port,
            "rule": kind.rule,
            "why": kind.why,
            "count": self.count,
        }

    def message(self, run: AuditedRun, time: int) -> JsonObject:
        """Return the message for the event bus."""
        return {
            "type": "egress_decided",
            "runId": run.id,
            "workflowId": run.workflow_id,
            "correlationId": run.correlation_id,
            "nodeId": self.node,
            "time": time,
            "verdict": self.kind.verdict,
            "reason": self.kind.reason,
            **self.details(),
        }


class EgressLog:
    """Reports the egress decisions of one step, and other warnings about its confinement."""

    def __init__(
        self,
        post: Callable[[Event], None],
        report: Callable[[EgressDecision], None],
        path: str,
        node: str,
    ) -> None:
        """Take what adds events to the run, and what reports counts."""
        self._post = post
        self._report = report
        self._path = path
        self._node = node
        self._known: set[DecisionKind] = set()
        self._counts: dict[DecisionKind, int] = {}

    def add_warning(self, message: str) -> None:
        """Add a warning to the run."""
        self._post(Notice(message, self._path, self._node, "warning"))

    def add(self, decision: Decision) -> None:
        """Count a decision, and report it if it is the first of its kind."""
        kind = self._kind(decision)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind in self._known:
            return
        self._known.add(kind)
        message = f"[egress] {kind}"
        if kind.verdict == "allowed":
            self._post(Notice(message, self._path, self._node))
        else:
            self.add_warning(message)
            self._report_count(kind)

    def flush(self) -> None:
        """Report the counts that were not reported yet."""
        for kind in tuple(self._counts):
            self._report_count(kind)

    def _report_count(self, kind: DecisionKind) -> None:
        self._report(EgressDecision(self._path, self._node, kind, self._counts.pop(kind)))

    def _kind(self, decision: Decision) -> DecisionKind:
        verdict, why = decision.verdict, decision.cause
        kind = DecisionKind(
            verdict, decision.host, decision.port, decision.reason, decision.rule, why
        )
        if kind in self._known or len(self._known) < _MAX_KINDS:
            return kind
        return DecisionKind(verdict, "", 0, "as others that are not listed any more", "", why)
