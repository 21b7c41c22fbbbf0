"""Asks a person about schedules that missed their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.approval import Approval, question
from infloop.triggers.kinds.schedule import ScheduleKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from infloop.model.trigger import Trigger
    from infloop.triggers.scheduler import ScheduleState


def missed_schedules(
    triggers: Iterable[Trigger], states: Mapping[str, ScheduleState]
) -> list[Approval]:
    """Return a question for each schedule that waits for an answer."""
    return [
        made
        for trigger in triggers
        if trigger.kind == ScheduleKind.name and trigger.enabled and trigger.id in states
        if (made := _missed(trigger, states[trigger.id])) is not None
    ]


def _missed(trigger: Trigger, state: ScheduleState) -> Approval | None:
    missed = state.question
    if missed is None:
        return None
    many = "more than " if missed.more else ""
    times = "once" if missed.count == 1 else f"{many}{missed.count} times"
    name = trigger.display_name
    details = {"first": missed.first_ms, "last": missed.last_ms, "count": missed.count}
    asked = question("missed-schedule", f"{name} missed its time {times}: run it?", details)
    return Approval(
        f"missed-schedule:{trigger.id}",
        asked.kind,
        asked.title,
        asked.details,
        missed.last_ms,
        workflow_id=trigger.workflow_id,
        hint=f'`POST /api/triggers/{trigger.id}/missed` with {{"start": true}} or false',
    )
