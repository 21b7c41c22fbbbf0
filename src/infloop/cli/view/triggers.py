"""A trigger in a few lines, without its secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.figures import moment
from infloop.cli.view.terminal import INDENT, one_line, plural, problem_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.application.trigger_models import TriggerReport, TriggerView


def trigger_line(report: TriggerReport) -> str:
    """Return what a trigger does, on one line."""
    trigger = report.trigger
    if trigger is None:
        return one_line(f"{report.id}: cannot be used")
    name = f" ({trigger.name})" if trigger.name else ""
    off = "" if trigger.enabled else ", off"
    return one_line(f"{report.id}{name}: {report.event} starts {trigger.workflow_id!r}{off}")


def short_lines(report: TriggerReport) -> list[str]:
    """Return a trigger in a list, and what is wrong with it."""
    return [trigger_line(report), *problem_lines(report.problems, INDENT)]


def long_lines(report: TriggerReport, now_ms: int) -> Iterator[str]:
    """Yield everything about a trigger except its secret."""
    yield trigger_line(report)
    if report.trigger is not None:
        yield from (one_line(INDENT + line) for line in _details(report, report.trigger, now_ms))
    yield from problem_lines(report.problems, INDENT)


def _details(report: TriggerReport, trigger: TriggerView, now_ms: int) -> Iterator[str]:
    for predicate in trigger.match:
        yield f"if {predicate.lhs} {predicate.op} {predicate.rhs}"
    for name, text in trigger.inputs.items():
        yield f"input {name}: {text}"
    if trigger.cwd:
        yield f"works in {trigger.cwd}"
    if report.takes_requests:
        yield f"address: /api/webhook/{report.id}"
        yield _signature(report, trigger, now_ms)
    yield from report.details
    if trigger.missed:
        yield f"missed {plural(trigger.missed, 'time')}, and waits for an answer"
    yield f"last fired: {moment(trigger.last_fired_at) if trigger.last_fired_at else 'never'}"


def _signature(report: TriggerReport, trigger: TriggerView, now_ms: int) -> str:
    plugin = report.plugin
    if plugin is None:
        return "it cannot be used: its plugin does not exist"
    if not plugin.signature:
        return "signature: none; anybody who knows the address can use it"
    secret = "set" if trigger.secret_set else "not set"
    until = trigger.previous_secret_until or 0
    before = f", the previous one counts until {moment(until)}" if now_ms < until else ""
    optional = not trigger.secret_set and trigger.verify_optional
    unsigned = ", and unsigned requests are accepted" if optional else ""
    return f"signature: {plugin.signature.header}, secret {secret}{before}{unsigned}"
