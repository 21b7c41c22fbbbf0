"""Prometheus metrics.

Counters start at 0 with the process. Gauges (queued runs, cost) are read from the store when a
client asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Output,
    Recorded,
    Remark,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    WaitOver,
)

if TYPE_CHECKING:
    from infloop.application.health import Load
    from infloop.application.runs.live import BusMessage
    from infloop.model.values import JsonObject

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
_STEP_SECONDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "infloop_http_request_seconds",
            "How long requests took; a stream counts when it ends.",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        # Looking a child up by its labels takes longer than counting, so children are kept.
        self._answered: dict[tuple[str, str, int], Histogram] = {}
        self._passed: dict[str, Counter] = {}
        self._taken: dict[int, Counter] = {}
        self._runs = Counter(
            "infloop_runs", "Runs that have ended.", ("status",), registry=self._registry
        )
        self._steps = Counter(
            "infloop_steps", "Steps that have ended.", ("node_type",), registry=self._registry
        )
        self._step_seconds = Histogram(
            "infloop_step_seconds",
            "How long steps with effects took.",
            ("node_type",),
            buckets=_STEP_SECONDS,
            registry=self._registry,
        )
        self._webhooks = Counter(
            "infloop_webhooks", "Answers to webhooks.", ("status",), registry=self._registry
        )
        self._limited = Counter(
            "infloop_rate_limited", "Requests over a limit.", ("what",), registry=self._registry
        )
        self._cost = Counter(
            "infloop_run_cost_usd",
            "What the runs of this process have cost, in US dollars, as far as it is known.",
            registry=self._registry,
        )
        self._refused = Counter(
            "infloop_egress_refused",
            "Connections of children that were refused, by why.",
            ("reason",),
            registry=self._registry,
        )
        self._allowed = Counter(
            "infloop_egress_allowed",
            "Connections of children that were let through by a proxy.",
            registry=self._registry,
        )
        self._counted_usd = 0.0
        self._live = self._gauge("infloop_runs_live", "Runs that this process drives.")
        self._queued = self._gauge("infloop_queue_depth", "Runs that wait for their turn.")
        self._streams = self._gauge("infloop_event_streams", "Open event streams.")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self._registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by its route's pattern: a path could be anything."""
        known = method if method in _METHODS else "other"
        counted = self._answered.get((known, route, status))
        if counted is None:
            counted = self._requests.labels(known, route, str(status))
            self._answered[known, route, status] = counted
        counted.observe(seconds)

    def webhook(self, status: int) -> None:
        counted = self._taken.get(status)
        if counted is None:
            counted = self._taken[status] = self._webhooks.labels(str(status))
        counted.inc()

    def limited(self, what: str) -> None:
        self._limited.labels(what).inc()

    def watch(self, said: BusMessage) -> None:
        """Count what happens on the event bus."""
        if not isinstance(said, Recorded):
            self._watch_connections(said)
            return
        event = said.event
        if isinstance(event, Output):  # nearly all of them
            return
        match event:
            case RunFinished(status=status):
                self._runs.labels(status).inc()
            case StepFinished(node_type=kind, duration_ms=took):
                self._steps.labels(kind).inc()
                self._step_seconds.labels(kind).observe(took / 1000)
            case StepPassed(node_type=kind):
                passed = self._passed.get(kind)
                if passed is None:
                    passed = self._passed[kind] = self._steps.labels(kind)
                passed.inc()
            case RunStarted() | RunResumed() | StepStarted() | StepWaiting() | WaitOver():
                pass
            case StopRequested() | BudgetExceeded() | GuardFailed() | Remark():
                pass
            case _:
                assert_never(event)

    def _watch_connections(self, said: JsonObject) -> None:
        match said:
            case {"type": "egress_decided", "verdict": "refused", "why": str(why), "count": int(n)}:
                self._refused.labels(why).inc(n)
            case {"type": "egress_decided", "verdict": "allowed", "count": int(n)}:
                self._allowed.inc(n)

    def page(self, load: Load, *, streams: int) -> bytes:
        """Return everything, with the gauges as they are now."""
        self._live.set(load.live_runs)
        self._queued.set(load.queued_runs)
        self._streams.set(streams)
        self._cost.inc(max(0.0, load.cost_usd - self._counted_usd))
        self._counted_usd = max(self._counted_usd, load.cost_usd)
        return generate_latest(self._registry)
