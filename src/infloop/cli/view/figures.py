"""Durations, times, sizes and money as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_KIB = 1024


def duration(ms: float) -> str:
    """Return a duration: `0.3s`, `12.4s`, `3m 05s`, `2h 07m`."""
    seconds = max(0.0, ms / 1000)
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02}m"
    return f"{hours // 24}d {hours % 24:02}h"


def moment(ms: int) -> str:
    """Return a time of day on a date, in the reader's own time zone."""
    try:
        when = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):  # an imported record can contain any number
        return f"{ms} ms"
    return when.strftime("%Y-%m-%d %H:%M:%S")


def clock_time(ms: int, now_ms: int) -> str:
    """Return a time in the future: `14:05` today, else with its date."""
    when = moment(ms)
    return when[11:16] if when[:10] == moment(now_ms)[:10] else when[:16]


def size(characters: int) -> str:
    """Return the length of a text."""
    if characters < _KIB:
        return f"{characters} characters"
    if characters < _KIB * _KIB:
        return f"{characters / _KIB:.1f} Ki characters"
    return f"{characters / _KIB / _KIB:.1f} Mi characters"


def money(usd: float) -> str:
    """Return an amount in dollars, with fractions of a cent where there are any."""
    whole, _, parts = f"{usd:.4f}".partition(".")
    return f"${whole}.{parts.rstrip('0'):0<2}"


def sum_of_money(usd: float, *, complete: bool) -> str:
    """Return what was spent; an amount that is not known is never shown as zero."""
    return money(usd) if complete or usd else "unknown"


def cost(usd: float | None, *, complete: bool) -> str:
    """Return what a run cost; empty if nothing that costs money has run."""
    if usd is None and complete:
        return ""
    text = sum_of_money(usd or 0.0, complete=complete)
    return text if complete or not usd else f"{text} (incomplete)"
