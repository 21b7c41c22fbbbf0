"""Schedules: when they are due, what was missed, and that nothing is started twice."""

from __future__ import annotations

import asyncio
import stat
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from infloop.errors import AuditError, StoreError, UsageError
from infloop.model.trigger import Schedule, Trigger
from infloop.model.workflow import InputSpec, Workflow
from infloop.runtime.clock import SetClock
from infloop.triggers.firing import prepare
from infloop.triggers.schedule import MAX_COUNTED, BadSchedule, Missed, Plan, Timetable
from infloop.triggers.scheduler import (
    Scheduler,
    ScheduleStates,
    schedule_key,
    schedule_values,
)
from support.eventually import eventually_async

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def ms(text: str) -> int:
    """A time in UTC, or with its offset."""
    when = datetime.fromisoformat(text)
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def table(cron: str, zone: str = "UTC") -> Timetable:
    return Timetable(Schedule(cron=cron, time_zone=zone))


def due(cron: str, zone: str, after: str, count: int) -> list[str]:
    made = table(cron, zone)
    return [made.local_time(one) for one in islice(made.after(ms(after)), count)]


# -- when ------------------------------------------------------------------------------------------


def test_a_schedule_is_due_at_its_local_time() -> None:
    assert due("30 9 * * 1-5", "Europe/Berlin", "2026-01-02T00:00", 3) == [
        "2026-01-02T09:30:00+01:00",
        "2026-01-05T09:30:00+01:00",
        "2026-01-06T09:30:00+01:00",
    ]
    assert due("0 0 29 2 *", "UTC", "2026-01-01", 1) == ["2028-02-29T00:00:00+00:00"]


# cron, zone, from, the next times
CHANGES: dict[str, tuple[str, str, str, list[str]]] = {
    "a time in the hour that is skipped is due when it is over": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-27T12:00",
        ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
    ),
    "a time in the hour that comes twice is due once, the first time": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00",
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"],
    ),
    "between the two it is over": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-25T01:10",
        ["2026-10-26T02:30:00+01:00"],
    ),
    "every half hour goes on through the hour that comes twice": (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-25T00:00",
        [
            *("2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00"),
            *("2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"),
        ],
    ),
    "every half hour leaves out what is skipped": (
        "*/30 * * * *",
        "America/New_York",
        "2026-03-08T06:30",
        ["2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"],
    ),
    "a clock that is set by half an hour": (
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00",
        ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
    ),
    "a midnight that does not exist": (
        "0 0 * * *",
        "Africa/Cairo",
        "2026-04-23T00:00",
        ["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"],
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_when_clocks_are_changed(case: str) -> None:
    cron, zone, after, expected = CHANGES[case]
    assert due(cron, zone, after, len(expected)) == expected


BAD: dict[str, tuple[str, str, str]] = {
    "nothing": ("", "UTC", "is not a schedule"),
    "seconds": ("* * * * * *", "UTC", "is not a schedule; write minute, hour"),
    "a name": ("@reboot", "UTC", "is not a schedule"),
    "a minute that is none": ("60 * * * *", "UTC", "Bad minute"),
    "an hour backwards": ("0 5-3 * * *", "UTC", "Bad hour"),
    "a step of nothing": ("*/0 * * * *", "UTC", "Bad minute"),
    "a day that never comes": ("0 0 31 2 *", "UTC", "Bad day-of-month"),
    "an unknown sign": ("0 0 * * ?", "UTC", "Bad day-of-week"),
    "without end": ("0," * 5_000 + "0 * * * *", "UTC", "is not a schedule"),
    "letters that look like it": ("\u0661 * * * *", "UTC", "Bad minute"),
    "no time zone": ("0 0 * * *", "", "is not a known time zone"),
    "an unknown time zone": ("0 0 * * *", "Mars/Olympus", "is not a known time zone"),
    "a time zone that is a path": ("0 0 * * *", "../../etc/passwd", "is not a known time zone"),
    "a time zone with a NUL": ("0 0 * * *", "UTC\0", "is not a known time zone"),
    "a time zone that is a folder": ("0 0 * * *", "Europe", "is not a known time zone"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_schedule_that_nobody_understands_is_refused(case: str) -> None:
    cron, zone, message = BAD[case]
    with pytest.raises(BadSchedule, match=message):
        table(cron, zone)


# -- what was missed -------------------------------------------------------------------------------

NINE = ms("2026-06-01T09:00")


def test_what_is_noticed_within_a_minute_is_on_time() -> None:
    made = table("0 9 * * *")
    assert made.plan(NINE - HOUR, NINE - 1) == Plan()
    assert made.plan(NINE - HOUR, NINE) == Plan(NINE)
    assert made.plan(NINE - HOUR, NINE + MINUTE - 1) == Plan(NINE)
    assert made.plan(NINE - HOUR, NINE + MINUTE) == Plan(missed=Missed(NINE, NINE, 1))
    assert made.plan(NINE, NINE + HOUR) == Plan()


def test_a_machine_that_slept_tells_what_it_missed() -> None:
    made = table("0 9 * * *")
    week = made.plan(NINE, NINE + 7 * DAY + HOUR)
    assert week == Plan(missed=Missed(NINE + DAY, NINE + 7 * DAY, 7))
    in_time = made.plan(NINE, NINE + 7 * DAY)
    assert in_time == Plan(NINE + 7 * DAY, Missed(NINE + DAY, NINE + 6 * DAY, 6))


def test_a_year_of_minutes_is_not_counted_to_its_end() -> None:
    made = table("* * * * *")
    slept = made.plan(NINE, NINE + 365 * DAY + 30_000)
    assert slept.due_ms == NINE + 365 * DAY
    last = NINE + 365 * DAY - MINUTE
    assert slept.missed == Missed(NINE + MINUTE, last, MAX_COUNTED, more=True)


def test_a_schedule_of_leap_years_is_found_again_after_years() -> None:
    made = table("0 0 29 2 *")
    plan = made.plan(ms("2021-01-01"), ms("2027-06-01"))
    assert plan.missed == Missed(ms("2024-02-29"), ms("2024-02-29"), 1)


def test_the_hour_that_is_skipped_is_missed_once() -> None:
    made = table("30 2 * * *", "Europe/Berlin")
    plan = made.plan(ms("2026-03-28T12:00"), ms("2026-03-29T12:00"))
    assert plan.missed is not None
    assert (plan.missed.count, plan.missed.last_ms) == (1, ms("2026-03-29T03:00:00+02:00"))


# -- starting --------------------------------------------------------------------------------------

ID = "Mp3bBKPc04r3UQGQt71Dsw"


def trigger(misfire: str = "once", cron: str = "0 9 * * *", **more: object) -> Trigger:
    schedule = Schedule.model_validate({"cron": cron, "misfire": misfire})
    values = {"id": ID, "enabled": True, "workflow_id": "w", "kind": "schedule", **more}
    return Trigger(**values, schedule=schedule)


class Office:
    """A scheduler with a clock that is set by hand, and what it did."""

    def __init__(self, folder: Path, *triggers: Trigger, now: int = NINE - HOUR) -> None:
        self.folder = folder
        self.triggers = list(triggers)
        self.clock = SetClock(now)
        self.started: list[tuple[str, int, Missed | None]] = []
        self.told: list[str] = []
        self.answers: list[bool | Exception] = []
        self.open()

    def open(self) -> None:
        """Begin, or begin again after a restart."""
        self.scheduler = Scheduler(
            lambda: self.triggers,
            self._start,
            lambda trigger, message: self.told.append(message),
            ScheduleStates(self.folder / "triggers/schedules.state"),
            self.clock,
        )

    async def _start(
        self, trigger: Trigger, due_ms: int, missed: Missed | None, correlation_id: str = ""
    ) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        if answer:
            self.started.append((trigger.id, due_ms, missed))
        return answer

    async def at(self, now: int) -> float:
        self.clock.forward(now - self.clock.now_ms())
        return await self.scheduler.tick()

    @property
    def times(self) -> list[int]:
        return [due_ms for _, due_ms, _ in self.started]


async def test_a_schedule_starts_once_when_it_is_due(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    assert await office.at(NINE - HOUR) == 20.0
    assert await office.at(NINE - 5_000) == 5.0
    assert office.started == []
    await office.at(NINE + 100)
    await office.at(NINE + 200)
    assert office.started == [(ID, NINE, None)]
    await office.at(NINE + DAY)
    assert office.times == [NINE, NINE + DAY]
    assert office.told == []


async def test_what_was_started_is_not_started_again_after_a_restart(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    await office.at(NINE)
    office.open()
    await office.at(NINE + 1_000)
    assert office.times == [NINE]
    path = tmp_path / "triggers/schedules.state"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("misfire", "started", "said"),
    [
        ("once", [NINE + 2 * DAY], "one run makes up for it"),
        ("skip", [], "nothing is started"),
        ("ask", [], "start it?"),
    ],
)
async def test_after_a_sleep_it_is_told_what_was_missed_and_done_as_was_said(
    misfire: str, started: list[int], said: str, tmp_path: Path
) -> None:
    office = Office(tmp_path, trigger(misfire))
    await office.at(NINE - HOUR)
    await office.at(NINE)
    office.started.clear()
    office.open()
    await office.at(NINE + 2 * DAY + HOUR)
    await office.at(NINE + 2 * DAY + 2 * HOUR)
    assert office.times == started
    (message,) = office.told
    assert message == (
        f"missed 2 times: 2026-06-02T09:00:00+00:00 to 2026-06-03T09:00:00+00:00; {said}"
    )


async def test_a_run_that_is_due_now_makes_up_for_what_was_missed(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger("once"))
    await office.at(NINE - HOUR)
    await office.at(NINE)
    await office.at(NINE + 3 * DAY)
    assert office.times == [NINE, NINE + 3 * DAY]
    assert office.started[1][2] == Missed(NINE + DAY, NINE + 2 * DAY, 2)


async def test_a_question_survives_a_restart_grows_and_is_answered_once(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger("ask"))
    await office.at(NINE - HOUR)
    await office.at(NINE)
    await office.at(NINE + 2 * DAY + HOUR)
    office.open()
    await office.at(NINE + 3 * DAY + HOUR)
    missed = Missed(NINE + DAY, NINE + 3 * DAY, 3)
    assert office.scheduler.questions() == {ID: missed}
    office.answers = [False]
    assert not await office.scheduler.answer(office.triggers[0], start=True)
    assert await office.scheduler.answer(office.triggers[0], start=True)
    assert office.started[1:] == [(ID, NINE + 3 * DAY, missed)]
    assert not await office.scheduler.answer(office.triggers[0], start=True)
    office.open()
    assert office.scheduler.questions() == {}


async def test_a_question_may_be_answered_with_no(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger("ask"))
    await office.at(NINE - HOUR)
    await office.at(NINE + HOUR)
    assert await office.scheduler.answer(office.triggers[0], start=False)
    await office.at(NINE + 2 * HOUR)
    assert office.started == []
    assert office.scheduler.questions() == {}


async def test_what_was_due_before_a_schedule_was_seen_or_changed_is_not_its_own(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, trigger(), now=NINE + HOUR)
    await office.at(NINE + HOUR)
    assert office.started == []
    noon = ms("2026-06-01T12:00")
    office.triggers = [trigger(cron="30 11 * * *", updated_at=noon)]
    await office.at(noon + MINUTE)
    assert office.started == []
    assert office.told == []


async def test_a_schedule_that_was_off_for_a_while_has_missed_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    await office.at(NINE)
    office.triggers = [trigger(enabled=False)]
    await office.at(NINE + DAY)
    office.triggers = [trigger()]
    await office.at(NINE + 2 * DAY + HOUR)
    assert office.times == [NINE]
    assert office.told == []


async def test_a_full_queue_is_asked_again_and_nothing_is_lost(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    office.answers = [False, False]
    await office.at(NINE)
    await office.at(NINE + 20_000)
    assert office.started == []
    office.open()
    await office.at(NINE + 40_000)
    assert office.times == [NINE]


@pytest.mark.parametrize("error", [StoreError("the disk is full"), AuditError("no"), OSError("no")])
async def test_a_store_that_cannot_be_used_now_is_asked_again(
    tmp_path: Path, error: Exception
) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    office.answers = [error]
    await office.at(NINE)
    assert (office.started, office.told) == ([], [f"cannot be started now: {error}"])
    await office.at(NINE + 20_000)
    assert office.times == [NINE]


async def test_a_state_that_cannot_be_written_stops_no_schedule_and_is_written_later(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    folder = tmp_path / "triggers"
    folder.rename(tmp_path / "aside")
    folder.write_text("in the way")
    await office.at(NINE)
    await office.at(NINE + DAY)
    assert office.times == [NINE, NINE + DAY]
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    await office.at(NINE + DAY + 1)
    office.open()
    await office.at(NINE + DAY + 2)
    assert office.times == [NINE, NINE + DAY]


async def test_one_that_cannot_be_started_is_told_and_keeps_no_other_from_starting(
    tmp_path: Path,
) -> None:
    other = trigger(id="O" * 20)
    office = Office(tmp_path, trigger(), other)
    await office.at(NINE - HOUR)
    office.answers = [UsageError("there is no workflow 'w'")]
    await office.at(NINE)
    await office.at(NINE + 1)
    assert office.started == [(other.id, NINE, None)]
    assert office.told == ["cannot be started: there is no workflow 'w'"]


async def test_a_broken_schedule_is_told_once(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger(cron="61 * * * *"), trigger(id="O" * 20))
    for now in (NINE - 1, NINE, NINE + 1):
        await office.at(now)
    assert office.times == [NINE]
    assert office.told == ["'61 * * * *' is not a schedule: Bad minute"]


async def test_a_clock_that_is_set_back_starts_nothing_twice(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - MINUTE)
    await office.at(NINE)
    await office.at(NINE - 10 * MINUTE)
    await office.at(NINE)
    await office.at(NINE + 1)
    assert office.times == [NINE]


async def test_nothing_is_written_as_long_as_nothing_is_due(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    path = tmp_path / "triggers/schedules.state"
    before = path.stat().st_ino
    for minute in range(1, 50):
        await office.at(NINE - HOUR + minute * MINUTE)
    assert path.stat().st_ino == before


def test_a_broken_state_is_reported_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "schedules.state"
    for content in (b"{", b"[]", b'{"a": 1}', b"\xff"):
        path.write_bytes(content)
        with pytest.raises(StoreError, match="remove it, and schedules start again"):
            ScheduleStates(path).load()


async def test_the_scheduler_runs_by_itself_until_it_is_stopped(tmp_path: Path) -> None:
    office = Office(tmp_path, trigger())
    await office.at(NINE - HOUR)
    office.clock.forward(HOUR)
    task = asyncio.create_task(office.scheduler.run())
    await eventually_async(lambda: office.started)
    office.clock.forward(DAY)
    office.scheduler.wake()
    await eventually_async(lambda: len(office.started) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert office.times == [NINE, NINE + DAY]


def test_a_schedules_templates_know_when_it_was_due_and_are_trusted() -> None:
    made = trigger(inputs={"when": "{{schedule.due}}", "n": "{{schedule.missed}}"})
    specs = [InputSpec(name="when", type="string"), InputSpec(name="n", type="number")]
    values = schedule_values(table("0 9 * * *"), NINE, Missed(1, 2, 3))
    key = schedule_key(made, NINE)
    firing = prepare(
        made, Workflow(id="w", name="w", inputs=tuple(specs)), values, key=key, trusted=True
    )
    assert firing is not None
    assert firing.inputs == {"when": "2026-06-01T09:00:00+00:00", "n": 3}
    assert (firing.cause.kind, firing.cause.untrusted) == ("schedule", ())
    assert firing.key == f"{ID}:{NINE}"
