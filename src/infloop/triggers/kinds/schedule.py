"""Triggers that fire at times; `infloop.triggers.scheduler` waits for them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from infloop.triggers.kinds.base import TriggerKind
from infloop.triggers.schedule import BadSchedule, Missed, Timetable
from infloop.triggers.scheduler import (
    STATE_FILE,
    Scheduler,
    ScheduleStates,
    schedule_key,
    schedule_values,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.model.plugin import Plugin
    from infloop.model.problems import Report
    from infloop.model.trigger import Schedule, Trigger
    from infloop.model.values import JsonObject
    from infloop.triggers.kinds.base import OptionGroup
    from infloop.triggers.services import SourceServices


class ScheduleKind(TriggerKind):
    """A time of a cron schedule."""

    name = "schedule"
    title = "schedules"
    is_trusted = True

    def add_options(self, group: OptionGroup) -> None:
        group.add_argument("--cron", metavar="TEXT", help="minute, hour, day, month, weekday")
        group.add_argument("--time-zone", metavar="NAME", default="UTC", help="default: UTC")
        group.add_argument(
            "--misfire",
            choices=("once", "skip", "ask"),
            default="once",
            help="what becomes of times that were missed; default: once",
        )

    def is_chosen(self, args: argparse.Namespace) -> bool:
        return bool(args.cron)

    def fields(self, args: argparse.Namespace) -> JsonObject:
        schedule = {"cron": args.cron, "timeZone": args.time_zone, "misfire": args.misfire}
        return {"schedule": schedule}

    def describe(self, trigger: Trigger) -> str:
        schedule = _schedule(trigger)
        return f"{schedule.cron!r} in {schedule.time_zone}"

    def details(self, trigger: Trigger, now_ms: int) -> Iterator[str]:
        schedule = _schedule(trigger)
        try:
            timetable = Timetable(schedule)
        except BadSchedule as error:
            yield str(error)
            return
        times = [timetable.local_time(due) for due in islice(timetable.after(now_ms), 3)]
        yield f"next: {', '.join(times)}"
        yield f"when missed: {schedule.misfire}"

    def next_at(self, trigger: Trigger, now_ms: int) -> int | None:
        try:
            return Timetable(_schedule(trigger)).next_after(now_ms)
        except BadSchedule:
            return None

    def check(self, trigger: Trigger, plugin: Plugin | None, report: Report) -> None:
        try:
            Timetable(_schedule(trigger))
        except BadSchedule as error:
            report.error("schedule", str(error))

    def source(self, services: SourceServices) -> Scheduler:
        async def start(
            trigger: Trigger, due_ms: int, missed: Missed | None, correlation_id: str = ""
        ) -> bool:
            values = schedule_values(Timetable(_schedule(trigger)), due_ms, missed)
            key = schedule_key(trigger, due_ms)
            return await services.start(trigger, values, key, correlation_id)

        states = ScheduleStates(services.state_dir / STATE_FILE)
        return Scheduler(services.triggers, start, services.notify, states, services.clock)


def _schedule(trigger: Trigger) -> Schedule:
    assert trigger.schedule is not None
    return trigger.schedule
