"""Durations (`90s`, `1h30m`) and amounts of money (`$5`), as a loop file writes them."""

from __future__ import annotations

import re

from infloop.model.values import JsonValue, number_text

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
# Our own fixed patterns: no nested repeats that could match the same text twice.
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])", re.ASCII)  # noqa: TID251
_MONEY = re.compile(r"\$?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)  # noqa: TID251
_MAX_CHARS = 40

DURATION_RULE = "write a duration such as 90s, 10m, 2h or 1h30m"
MONEY_RULE = "write an amount in US dollars, such as $5 or 0.50"


class BadQuantity(ValueError):
    """The text is not a duration or an amount; the message says what to write."""


def read_duration(text: str) -> int:
    """Return the milliseconds of a duration; only 0 needs no unit."""
    text = text.strip()
    if text == "0":
        return 0
    if len(text) > _MAX_CHARS:
        raise BadQuantity(DURATION_RULE)
    total, at = 0.0, 0
    units = [unit for unit, _ in _UNITS]
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or found[2] not in units:
            raise BadQuantity(DURATION_RULE)
        units = units[units.index(found[2]) + 1 :]  # each unit once, the largest first
        total += float(found[1]) * dict(_UNITS)[found[2]]
        at = found.end()
    if not at or not total.is_integer():
        raise BadQuantity(DURATION_RULE)
    return int(total)


def duration_text(milliseconds: JsonValue) -> str | None:
    """Return milliseconds as a duration; None for what no duration can say."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        return None
    if not milliseconds:
        return "0"
    text, rest = "", milliseconds
    for unit, size in _UNITS[1:]:  # hours rather than days: a limit is compared with others
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text if len(text) <= _MAX_CHARS and read_duration(text) == milliseconds else None


def read_money(text: str) -> float:
    """Return an amount of US dollars."""
    found = _MONEY.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    if found is None:
        raise BadQuantity(MONEY_RULE)
    return float(found[1])


def money_text(amount: JsonValue) -> str | None:
    """Return an amount with its sign; None for what no amount can say."""
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        return None
    text = f"${number_text(amount)}"
    return text if _MONEY.fullmatch(text) and read_money(text) == amount else None
