"""Starts runs of due schedules, and reports missed times.

A small file stores how far each schedule is done, so a restart or a suspended machine neither
starts a run twice nor loses one silently. A run is queued first and the file is written afterwards;
the key of the run prevents a second one.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.errors import StoreError
from infloop.store.files import private_directory, write_private
from infloop.triggers.payload import Values
from infloop.triggers.schedule import BadSchedule, Missed, Timetable
from infloop.triggers.services import try_start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger
    from infloop.triggers.services import Notify

STATE_FILE = "schedules.state"
# A suspended machine or a changed clock is noticed within this time.
_LONGEST_WAIT_SECONDS = 20.0

log = logging.getLogger("infloop.triggers")


class ScheduleState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time up to which a schedule is done, and the missed times a person is asked about."""

    done_until_ms: int = msgspec.field(name="consideredMs")
    question: Missed | None = msgspec.field(default=None, name="asked")


class ScheduleStates:
    """The states of all schedules, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, ScheduleState]:
        """Return the states by trigger id; raise StoreError if the file is invalid."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, ScheduleState])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"cannot read {str(self._path)!r}: {error}; remove it, and schedules start again "
                "from that moment"
            ) from None

    def save(self, states: dict[str, ScheduleState]) -> None:
        """Replace the file."""
        private_directory(self._path.parent)
        write_private(self._path, msgspec.json.encode(states))


class StartDue(Protocol):
    """Starts a run of a trigger that is due; returns False while the queue is full."""

    def __call__(
        self, trigger: Trigger, due_ms: int, missed: Missed | None, correlation_id: str = ""
    ) -> Awaitable[bool]:
        """Queue the run durably; see `StartRun` for the errors."""


def schedule_values(timetable: Timetable, due_ms: int, missed: Missed | None) -> Values:
    """Return the values for a schedule's templates: `schedule.due`, `schedule.missed`."""
    count = missed.count if missed else 0
    return Values(
        {"schedule": {"due": timetable.local_time(due_ms), "dueMs": due_ms, "missed": count}}
    )


def schedule_key(trigger: Trigger, due_ms: int) -> str:
    """Return a key that identifies one start of a schedule."""
    return f"{trigger.id}:{due_ms}"


class Scheduler:
    """Checks all schedules repeatedly; `triggers` returns the present ones."""

    def __init__(
        self,
        triggers: Callable[[], Iterable[Trigger]],
        start: StartDue,
        notify: Notify,
        states: ScheduleStates,
        clock: Clock,
    ) -> None:
        self._triggers = triggers
        self._start = start
        self._notify = notify
        self._file = states
        self._clock = clock
        self._states = states.load()
        self._saved = self._states
        self._invalid: dict[str, str] = {}
        self._wake_up = asyncio.Event()

    async def run(self) -> None:
        """Start due schedules until the task is cancelled."""
        while True:
            wait = await self.tick()
            self._wake_up.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake_up.wait()

    def wake(self) -> None:
        """Check the schedules now, because one of them changed."""
        self._wake_up.set()

    async def tick(self) -> float:
        """Start due schedules; return the seconds until the next check."""
        scheduled = [one for one in self._triggers() if one.enabled]
        now = self._clock.now_ms()
        states: dict[str, ScheduleState] = {}
        soonest = now + round(_LONGEST_WAIT_SECONDS * 1000)
        for trigger in scheduled:
            timetable = self._timetable(trigger)
            if timetable is None:
                continue
            state = await self._process(trigger, timetable, now)
            states[trigger.id] = state
            soonest = min(soonest, timetable.next_after(now) or soonest)
        self._save_states(states)
        return max(0.0, (soonest - now) / 1000)

    def questions(self) -> dict[str, Missed]:
        """Return the missed times that a person is asked about, by trigger id."""
        return {name: state.question for name, state in self._states.items() if state.question}

    async def answer(self, trigger: Trigger, *, start: bool, correlation_id: str = "") -> bool:
        """Start a run for missed times, or dismiss them; return whether there was a question."""
        state = self._states.get(trigger.id)
        if state is None or state.question is None:
            return False
        missed = state.question
        if start and not await self._start(trigger, missed.last_ms, missed, correlation_id):
            return False
        self._save_states({**self._states, trigger.id: ScheduleState(state.done_until_ms)})
        return True

    def _save_states(self, states: dict[str, ScheduleState]) -> None:
        """Store the states; a failed write is repeated at the next check."""
        self._states = states
        if states == self._saved:
            return
        try:
            self._file.save(states)
        except (OSError, StoreError) as error:
            log.warning("the state of schedules could not be written: %s", error)
        else:
            self._saved = states

    def _timetable(self, trigger: Trigger) -> Timetable | None:
        assert trigger.schedule is not None
        try:
            timetable = Timetable(trigger.schedule)
        except BadSchedule as error:
            if self._invalid.get(trigger.id) != str(error):
                self._invalid[trigger.id] = str(error)
                self._notify(trigger, str(error))
            return None
        self._invalid.pop(trigger.id, None)
        return timetable

    async def _process(self, trigger: Trigger, timetable: Timetable, now: int) -> ScheduleState:
        """Start one schedule if it is due, and handle missed times; return its new state."""
        state = self._states.get(trigger.id, ScheduleState(now))
        # Times before a schedule was written or changed do not count.
        since = max(state.done_until_ms, min(trigger.updated_at or 0, now))
        plan = timetable.plan(since, now)
        due = plan.due_ms
        if due is None and plan.missed and _misfire(trigger) == "once":
            due = plan.missed.last_ms
        if due is not None:
            attempt = self._start(trigger, due, plan.missed)
            if not await try_start(trigger, attempt, self._notify):
                return state
        if plan.missed is not None:
            return ScheduleState(
                now, self._report_missed(trigger, timetable, plan.missed, state.question)
            )
        return state if due is None else ScheduleState(now, state.question)

    def _report_missed(
        self, trigger: Trigger, timetable: Timetable, missed: Missed, asked: Missed | None
    ) -> Missed | None:
        """Notify about missed times; return the open question, if the schedule asks."""
        policy = _misfire(trigger)
        what = {"once": "one run makes up for it", "skip": "nothing is started", "ask": "start it?"}
        many = "more than " if missed.more else ""
        times = "once" if missed.count == 1 else f"{many}{missed.count} times"
        span = timetable.local_time(missed.first_ms)
        if missed.count > 1:
            span += f" to {timetable.local_time(missed.last_ms)}"
        self._notify(trigger, f"missed {times}: {span}; {what[policy]}")
        if policy != "ask":
            return None
        if asked is None:
            return missed
        return Missed(
            asked.first_ms, missed.last_ms, asked.count + missed.count, asked.more or missed.more
        )


def _misfire(trigger: Trigger) -> str:
    return trigger.schedule.misfire if trigger.schedule else "skip"
