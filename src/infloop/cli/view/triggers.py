"""A trigger in a few lines, its secret never among them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from infloop.cli.view.figures import moment
from infloop.cli.view.terminal import INDENT, one_line, plural, problem_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.errors import Problem
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Schedule, Trigger
    from infloop.triggers.schedule import Missed


def summary(trigger: Trigger) -> str:
    """Return what a trigger does, on one line."""
    name = f" ({trigger.name})" if trigger.name else ""
    off = "" if trigger.enabled else ", off"
    return one_line(f"{trigger.id}{name}: {_what(trigger)} starts {trigger.workflow_id!r}{off}")


def _what(trigger: Trigger) -> str:
    if trigger.kind == "schedule" and trigger.schedule:
        return f"{trigger.schedule.cron!r} in {trigger.schedule.time_zone}"
    if trigger.kind == "file" and trigger.files:
        return f"a change of {', '.join(trigger.files.globs)} in {trigger.files.directory}"
    event = f", event {trigger.event_type!r}," if trigger.event_type else ""
    return f"a webhook of {trigger.plugin_id!r}{event}"


def details(
    trigger: Trigger, plugin: Plugin | None, now_ms: int, asked: Missed | None
) -> Iterator[str]:
    """Yield everything about a trigger but its secret."""
    yield summary(trigger)
    for predicate in trigger.match:
        yield _line(f"if {predicate.lhs} {predicate.op} {predicate.rhs}")
    for name, text in trigger.inputs.items():
        yield _line(f"input {name}: {text}")
    if trigger.kind == "webhook":
        yield _line(f"address: /api/webhook/{trigger.id}")
        yield _line(_signing(trigger, plugin, now_ms))
    elif trigger.kind == "schedule" and trigger.schedule:
        yield from _times(trigger.schedule, now_ms)
    elif trigger.files:
        yield _line(f"quiet time: {trigger.files.debounce_ms} ms")
    if asked is not None:
        yield _line(f"missed {plural(asked.count, 'time')}, and waits for somebody to say if")
    fired = moment(trigger.last_fired_at) if trigger.last_fired_at else "never"
    yield _line(f"last fired: {fired}")


def _signing(trigger: Trigger, plugin: Plugin | None, now_ms: int) -> str:
    if plugin is None:
        return "nobody can use it: its plugin does not exist"
    if plugin.signature is None:
        return "signature: none; whoever knows the address can use it"
    secret = "set" if trigger.secret else "not set"
    before = ""
    if trigger.previous_secret and now_ms < (trigger.previous_secret_until or 0):
        before = f", the one before counts until {moment(trigger.previous_secret_until or 0)}"
    unsigned = "" if trigger.secret or not trigger.verify_optional else ", and none is asked for"
    return f"signature: {plugin.signature.header}, secret {secret}{before}{unsigned}"


def _times(schedule: Schedule, now_ms: int) -> Iterator[str]:
    from infloop.triggers.schedule import BadSchedule, Timetable

    try:
        timetable = Timetable(schedule)
    except BadSchedule as error:
        yield _line(str(error))
        return
    times = [timetable.local_time(due) for due in islice(timetable.after(now_ms), 3)]
    yield _line(f"next: {', '.join(times)}")
    yield _line(f"when missed: {schedule.misfire}")


def problems(found: Sequence[Problem]) -> list[str]:
    """Return what is wrong with a trigger, one line each."""
    return problem_lines(list(found), INDENT)


def _line(text: str) -> str:
    return one_line(INDENT + text)
