"""Starts what is due, and tells what was missed.

How far each schedule has been considered is kept in a small file, so that a restart or a night's
sleep neither starts a run twice nor forgets one in silence. A run is asked for first and noted
afterwards; whoever queues it knows by the firing's key that it was asked for before.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.errors import InfloopError, StoreError
from infloop.store.files import private_directory, write_private
from infloop.triggers.payload import Values
from infloop.triggers.schedule import BadSchedule, Missed, Timetable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger

STATE_FILE = "schedules.state"
# A machine that slept, or whose clock was set, is noticed no later than this.
_LONGEST_WAIT_SECONDS = 20.0

log = logging.getLogger("infloop.triggers")


class Mark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a schedule was considered, and what somebody has been asked about."""

    considered_ms: int
    asked: Missed | None = None


class Marks:
    """The marks of all schedules, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Mark]:
        """Return the marks by trigger id; raise StoreError for a file that cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Mark])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"cannot read {str(self._path)!r}: {error}; remove it, and schedules count anew "
                "from that moment"
            ) from None

    def save(self, marks: dict[str, Mark]) -> None:
        """Replace the file."""
        private_directory(self._path.parent)
        write_private(self._path, msgspec.json.encode(marks))


class Start(Protocol):
    """Asks for a run of a trigger that is due; returns whether it is queued."""

    def __call__(
        self, trigger: Trigger, due_ms: int, missed: Missed | None, correlation_id: str = ""
    ) -> Awaitable[bool]:
        """Queue the run durably; raise InfloopError if that can never be, StoreError if not now."""


class Tell(Protocol):
    """Is told what a person should know about a schedule."""

    def __call__(self, trigger: Trigger, message: str) -> None:
        """Write it down."""


def schedule_values(timetable: Timetable, due_ms: int, missed: Missed | None) -> Values:
    """Return what a schedule's templates can refer to: `schedule.due`, `schedule.missed`."""
    count = missed.count if missed else 0
    return Values(
        {"schedule": {"due": timetable.local_time(due_ms), "dueMs": due_ms, "missed": count}}
    )


def schedule_key(trigger: Trigger, due_ms: int) -> str:
    """Return what tells one start of a schedule from all others."""
    return f"{trigger.id}:{due_ms}"


class Scheduler:
    """Considers all schedules again and again. `triggers` says which there are at the moment."""

    def __init__(
        self,
        triggers: Callable[[], Iterable[Trigger]],
        start: Start,
        tell: Tell,
        marks: Marks,
        clock: Clock,
    ) -> None:
        self._triggers = triggers
        self._start = start
        self._tell = tell
        self._store = marks
        self._clock = clock
        self._marks = marks.load()
        self._saved = self._marks
        self._bad: dict[str, str] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Start what is due until the task is cancelled."""
        while True:
            wait = await self.tick()
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    def wake(self) -> None:
        """Have the schedules considered now: one of them was changed."""
        self._woken.set()

    async def tick(self) -> float:
        """Start what is due now; return for how many seconds nothing is."""
        scheduled = [one for one in self._triggers() if one.kind == "schedule" and one.enabled]
        now = self._clock.now_ms()
        marks: dict[str, Mark] = {}
        soonest = now + round(_LONGEST_WAIT_SECONDS * 1000)
        for trigger in scheduled:
            timetable = self._timetable(trigger)
            if timetable is None:
                continue
            mark = await self._consider(trigger, timetable, now)
            marks[trigger.id] = mark
            soonest = min(soonest, timetable.next_after(now) or soonest)
        self._keep(marks)
        return max(0.0, (soonest - now) / 1000)

    def asked(self) -> dict[str, Missed]:
        """Return what somebody has been asked about, by trigger id."""
        return {name: mark.asked for name, mark in self._marks.items() if mark.asked}

    async def answer(self, trigger: Trigger, *, start: bool, correlation_id: str = "") -> bool:
        """Start a run for what was missed, or let it be; return whether there was a question."""
        mark = self._marks.get(trigger.id)
        if mark is None or mark.asked is None:
            return False
        asked = mark.asked
        if start and not await self._start(trigger, asked.last_ms, asked, correlation_id):
            return False
        self._keep({**self._marks, trigger.id: Mark(mark.considered_ms)})
        return True

    def _keep(self, marks: dict[str, Mark]) -> None:
        """Remember how far schedules are considered; what cannot be written is tried again."""
        self._marks = marks
        if marks == self._saved:
            return
        try:
            self._store.save(marks)
        except (OSError, StoreError) as error:
            log.warning("how far schedules are considered is not written: %s", error)
        else:
            self._saved = marks

    def _timetable(self, trigger: Trigger) -> Timetable | None:
        assert trigger.schedule is not None
        try:
            timetable = Timetable(trigger.schedule)
        except BadSchedule as error:
            if self._bad.get(trigger.id) != str(error):
                self._bad[trigger.id] = str(error)
                self._tell(trigger, str(error))
            return None
        self._bad.pop(trigger.id, None)
        return timetable

    async def _consider(self, trigger: Trigger, timetable: Timetable, now: int) -> Mark:
        """Do what is to be done about one schedule; return how far it is considered now."""
        mark = self._marks.get(trigger.id, Mark(now))
        # What was due before a schedule was written or changed is not its own.
        since = max(mark.considered_ms, min(trigger.updated_at or 0, now))
        plan = timetable.plan(since, now)
        due = plan.due_ms
        if due is None and plan.missed and _misfire(trigger) == "once":
            due = plan.missed.last_ms
        if due is not None and not await self._started(trigger, due, plan.missed):
            return mark
        if plan.missed is not None:
            return Mark(now, self._told(trigger, timetable, plan.missed, mark.asked))
        return mark if due is None else Mark(now, mark.asked)

    async def _started(self, trigger: Trigger, due: int, missed: Missed | None) -> bool:
        """Ask for a run; return False when it is to be asked for again."""
        try:
            return await self._start(trigger, due, missed)
        except (OSError, StoreError) as error:
            self._tell(trigger, f"cannot be started now: {error}")
            return False
        except InfloopError as error:
            self._tell(trigger, f"cannot be started: {error}")
            return True

    def _told(
        self, trigger: Trigger, timetable: Timetable, missed: Missed, asked: Missed | None
    ) -> Missed | None:
        """Tell what was missed; return what somebody is asked about from now on."""
        policy = _misfire(trigger)
        what = {"once": "one run makes up for it", "skip": "nothing is started", "ask": "start it?"}
        many = "more than " if missed.more else ""
        times = "once" if missed.count == 1 else f"{many}{missed.count} times"
        span = timetable.local_time(missed.first_ms)
        if missed.count > 1:
            span += f" to {timetable.local_time(missed.last_ms)}"
        self._tell(trigger, f"missed {times}: {span}; {what[policy]}")
        if policy != "ask":
            return None
        if asked is None:
            return missed
        return Missed(
            asked.first_ms, missed.last_ms, asked.count + missed.count, asked.more or missed.more
        )


def _misfire(trigger: Trigger) -> str:
    return trigger.schedule.misfire if trigger.schedule else "skip"
