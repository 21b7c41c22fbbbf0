"""Computes when a schedule is due, and which times were missed.

- The caller passes the present time.
- A time in the hour that is skipped in spring is due at the end of that hour.
- A time in the hour that is repeated in autumn is due once, the first time. A schedule whose hour
  or minute starts with a star is due in both hours (as in Debian's cron).
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.trigger import Schedule

ON_TIME_MS = 60_000
"""A due time that is noticed later than this was missed."""

MAX_COUNTED = 1_000
"""The maximum count of missed times."""

_LONGEST_CRON = 200
_FIELDS = 5
_MINUTE_MS = 60_000


class BadSchedule(ValueError):
    """A schedule is invalid or never due; the text says why."""


class Missed(msgspec.Struct, frozen=True):
    """Times at which nothing was started; with `more`, there were more than `count`."""

    first_ms: int
    last_ms: int
    count: int
    more: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What was due since the last check: at most one time now, and the missed times."""

    due_ms: int | None = None
    missed: Missed | None = None


class Timetable:
    """A parsed schedule."""

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
        """Yield the due times after `ms`, in milliseconds since 1970."""
        start = datetime.fromtimestamp(ms / 1000, UTC)
        for local in CronSim(self._cron, start.astimezone(self._zone)):
            due = round(local.timestamp() * 1000)
            if due > ms:  # in a repeated hour, the first occurrence may be in the past
                yield due

    def next_after(self, ms: int) -> int | None:
        """Return the next due time after `ms`; None if there is none for decades."""
        return next(self.after(ms), None)

    def local_time(self, ms: int) -> str:
        """Return a time in the schedule's time zone."""
        return datetime.fromtimestamp(ms / 1000, self._zone).isoformat(timespec="seconds")

    def plan(self, done_until_ms: int, now_ms: int) -> Plan:
        """Return what was due after `done_until_ms`, up to now."""
        last = self._last(done_until_ms, now_ms)
        if last is None:
            return Plan()
        if now_ms - last >= ON_TIME_MS:
            return Plan(missed=self._missed(done_until_ms, last))
        before = self._last(done_until_ms, last - 1)
        return Plan(last, None if before is None else self._missed(done_until_ms, before))

    def _last(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last due time after `after_ms`, up to `until_ms`.

        A binary search, so that years of minutes need only a few steps.
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
    if name == "UTC":  # works without a time zone database
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadSchedule(
            f"{name[:60]!r} is not a known time zone; write one like Europe/Berlin"
        ) from None
