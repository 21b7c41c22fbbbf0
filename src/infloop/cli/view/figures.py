"""Durations, times, sizes and money as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.application.runs.cost import RunCost

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


def tokens(count: int) -> str:
    """Return a short count: `999`, `12.3k`, `4.5M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def used_tokens(read: int, written: int) -> str:
    """Return tokens of input and output: `12.3k tokens in, 900 out`; empty if there are none."""
    return f"{tokens(read)} tokens in, {tokens(written)} out" if read or written else ""


def cost(spent: RunCost) -> str:
    """Return what a run cost; empty if nothing that costs money has run.

    Where no price is known, it is what it used.
    """
    if spent.usd is None and spent.complete:
        return ""
    if spent.usd is None:
        used = used_tokens(spent.tokens.input, spent.tokens.output)
        return f"unknown ({used})" if used else "unknown"
    return money(spent.usd) if spent.complete else f"{money(spent.usd)} (incomplete)"


def short_cost(spent: RunCost) -> str:
    """Return what a run cost in a few characters: `$0.42`, `$0.42+` and more, `12.3k tok`."""
    if spent.usd is not None:
        return money(spent.usd) if spent.complete else f"{money(spent.usd)}+"
    if spent.complete:
        return ""
    used = spent.tokens.input + spent.tokens.output
    return f"{tokens(used)} tok" if used else "unknown"
