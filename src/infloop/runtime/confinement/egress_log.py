"""What the fence tells of a step: in its run, and to who keeps the audit log and the counters.

Rules
  * Each different decision about a connection is a line in the run, once.
  * Every decision is counted. A refusal is told at once, the first of its kind; what repeats, and
    what is allowed, is told as a sum, every few seconds and when the step ends.
  * A step has so many different decisions and no more; the rest is told together. So whoever asks
    for thousands of hosts can neither hide among them nor fill anybody's log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from infloop.model.events import Notice
from infloop.model.hosts import authority

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.egress.reports import Decision, RefusalCause
    from infloop.model.audit import EventName
    from infloop.model.events import Event
    from infloop.model.values import JsonObject
    from infloop.policy.hosts import HostVerdict
    from infloop.runtime.run_audit import Run

TELL_SECONDS = 2.0
"""How long sums wait to be told."""

_MOST_KINDS = 50


class Kind(NamedTuple):
    """What decisions have in common that are told as one. `host` is empty for several."""

    verdict: HostVerdict
    host: str
    port: int
    reason: str
    rule: str
    why: RefusalCause

    def __str__(self) -> str:
        where = authority(self.host, self.port) if self.host else "a connection"
        return f"{self.verdict} {where}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Decided:
    """So many decisions of one kind about connections of a step."""

    path: str
    node: str
    kind: Kind
    count: int

    @property
    def event(self) -> EventName:
        """What the audit log calls it."""
        return "egress.allowed" if self.kind.verdict == "allowed" else "egress.refused"

    def details(self) -> JsonObject:
        """Return what the audit log and those who listen are told of it."""
        kind = self.kind
        return {
            "path": self.path,
            "host": kind.host,
            "port": kind.port,
            "rule": kind.rule,
            "why": kind.why,
            "count": self.count,
        }

    def message(self, run: Run, time: int) -> JsonObject:
        """Return what those are told who listen to all runs."""
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


class Telling:
    """Tells what happened at the fence of one step."""

    def __init__(
        self,
        post: Callable[[Event], None],
        tell: Callable[[Decided], None],
        path: str,
        node: str,
    ) -> None:
        """Take where the run's events go, and who is told sums."""
        self._post = post
        self._tell = tell
        self._path = path
        self._node = node
        self._known: set[Kind] = set()
        self._counts: dict[Kind, int] = {}

    def planted(self, said: str) -> None:
        """Note what a child did to a repository that is not its own."""
        self._post(Notice(f"[git] {said}", self._path, self._node, "warning"))

    def decided(self, decision: Decision) -> None:
        """Note a decision about a connection."""
        kind = self._kind(decision)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind in self._known:
            return
        self._known.add(kind)
        said = f"[egress] {kind}"
        if kind.verdict == "allowed":
            self._post(Notice(said, self._path, self._node))
        else:
            self._post(Notice(said, self._path, self._node, "warning"))
            self._tell_sum(kind)

    def settle(self) -> None:
        """Tell what was counted and not told yet."""
        for kind in tuple(self._counts):
            self._tell_sum(kind)

    def _tell_sum(self, kind: Kind) -> None:
        self._tell(Decided(self._path, self._node, kind, self._counts.pop(kind)))

    def _kind(self, decision: Decision) -> Kind:
        verdict, why = decision.verdict, decision.cause
        kind = Kind(verdict, decision.host, decision.port, decision.reason, decision.rule, why)
        if kind in self._known or len(self._known) < _MOST_KINDS:
            return kind
        return Kind(verdict, "", 0, "as others are that are not listed any more", "", why)
