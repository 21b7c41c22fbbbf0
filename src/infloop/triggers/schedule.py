"""Times at which a schedule is due, and those that were missed.

Nothing here knows what time it is: it is told. A time that falls into the hour that is skipped in
spring is due when that hour is over. One that falls into the hour that comes twice in autumn is due
once, the first time; a schedule whose hour or minute begins with a star is due in both (as Debian's
cron does it).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.trigger import Schedule

PUNCTUAL_MS = 60_000
"""A time that is noticed sooner than this is on time; after it, it was missed."""

MAX_COUNTED = 1_000
"""So many missed times are counted; beyond them it is said that there are more."""

_LONGEST_CRON = 200
_FIELDS = 5
_MINUTE_MS = 60_000


class BadSchedule(ValueError):
    """A schedule that can never be due, or that nobody understands; says why."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Times at which nothing could be started; with `more`, there were more than `count`."""

    first_ms: int
    last_ms: int
    count: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What was due since a schedule was last considered: one time now, and what was missed."""

    due_ms: int | None = None
    missed: Missed | None = None


class Timetable:
    """A schedule that has been understood."""

    def __init__(self, schedule: Schedule) -> None:
        self._cron = schedule.cron
        self._zone = _zone(schedule.time_zone)
        if len(self._cron) > _LONGEST_CRON or len(self._cron.split()) != _FIELDS:
            raise BadSchedule(
                f"{schedule.cron[:60]!r} is not a schedule; write minute, hour, day, month and "
                "weekday, such as '30 9 * * 1-5'"
            )
        try:
            next(CronSim(self._cron, datetime(2024, 1, 1, tzinfo=UTC)))
        except (CronSimError, AssertionError) as error:
            raise BadSchedule(f"{schedule.cron!r} is not a schedule: {error}") from None
        except StopIteration:
            raise BadSchedule(f"{schedule.cron!r} is never due") from None

    def after(self, ms: int) -> Iterator[int]:
        """Yield the times that are due after `ms`, in milliseconds since 1970."""
        start = datetime.fromtimestamp(ms / 1000, UTC)
        for local in CronSim(self._cron, start.astimezone(self._zone)):
            due = round(local.timestamp() * 1000)
            if due > ms:  # where an hour comes twice, the first of the two may lie behind us
                yield due

    def next_after(self, ms: int) -> int | None:
        """Return the next time that is due after `ms`; None when there is none for decades."""
        return next(self.after(ms), None)

    def local_time(self, ms: int) -> str:
        """Return a time as the schedule's own clocks show it."""
        return datetime.fromtimestamp(ms / 1000, self._zone).isoformat(timespec="seconds")

    def plan(self, considered_ms: int, now_ms: int) -> Plan:
        """Return what was due after one time and no later than the other."""
        last = self._last(considered_ms, now_ms)
        if last is None:
            return Plan()
        if now_ms - last >= PUNCTUAL_MS:
            return Plan(missed=self._missed(considered_ms, last))
        before = self._last(considered_ms, last - 1)
        return Plan(last, None if before is None else self._missed(considered_ms, before))

    def _last(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last time that is due after one time and no later than the other.

        By halving, so that years of minutes cost no more than a few looks.
        """
        found = self.next_after(after_ms)
        if found is None or found > until_ms:
            return None
        end = until_ms
        while end - found >= _MINUTE_MS:
            middle = (found + end) // 2
            due = self.next_after(middle)
            if due is not None and due <= until_ms:
                found = due
            else:
                end = middle
        return found

    def _missed(self, after_ms: int, last_ms: int) -> Missed:
        times = self._between(after_ms, last_ms)
        first = next(times)
        count = 1 + len([*islice(times, MAX_COUNTED)])
        return Missed(first, last_ms, min(count, MAX_COUNTED), count > MAX_COUNTED)

    def _between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        for due in self.after(after_ms):
            if due > until_ms:
                return
            yield due


def _zone(name: str) -> tzinfo:
    if name == "UTC":  # also where no other time zone is installed
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadSchedule(
            f"{name[:60]!r} is not a time zone here; write one like Europe/Berlin"
        ) from None
