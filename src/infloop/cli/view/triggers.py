"""A trigger in a few lines, its secret never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.triggers import kind_named
from infloop.cli.view.figures import moment
from infloop.cli.view.terminal import INDENT, one_line, plural, problem_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.errors import Problem
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.triggers.schedule import Missed


def summary(trigger: Trigger) -> str:
    """Return what a trigger does, on one line."""
    name = f" ({trigger.name})" if trigger.name else ""
    off = "" if trigger.enabled else ", off"
    what = kind_named(trigger.kind).describe(trigger)
    return one_line(f"{trigger.id}{name}: {what} starts {trigger.workflow_id!r}{off}")


def details(
    trigger: Trigger, plugin: Plugin | None, now_ms: int, asked: Missed | None
) -> Iterator[str]:
    """Yield everything about a trigger but its secret."""
    yield summary(trigger)
    for predicate in trigger.match:
        yield _line(f"if {predicate.lhs} {predicate.op} {predicate.rhs}")
    for name, text in trigger.inputs.items():
        yield _line(f"input {name}: {text}")
    kind = kind_named(trigger.kind)
    if kind.takes_requests:
        yield _line(f"address: /api/webhook/{trigger.id}")
        yield _line(_signing(trigger, plugin, now_ms))
    yield from map(_line, kind.details(trigger, now_ms))
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


def problems(found: Sequence[Problem]) -> list[str]:
    """Return what is wrong with a trigger, one line each."""
    return problem_lines(list(found), INDENT)


def _line(text: str) -> str:
    return one_line(INDENT + text)
