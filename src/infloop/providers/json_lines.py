"""Reads one line of untrusted JSON, as a program printed it.

The line may be invalid, may be nested too deeply, and may hold any value where a string or a number
is expected. Nothing here raises: a value that does not fit reads as empty.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from infloop.providers.base import AnswerPart, Stderr, Text

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MAX_COUNT = 1 << 53
MAX_MESSAGE_CHARS = 2_000

# Our own fixed patterns: one character class each.
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)  # noqa: TID251
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # noqa: TID251


def json_object(line: Line) -> JsonObject | None:
    """Return the JSON object in a line, or None."""
    text = line.text.strip()
    if line.cut or not text.startswith("{"):
        return None
    try:
        found: JsonObject = json.loads(text, strict=False, parse_constant=lambda _: None)
        return _without_surrogates(found) if r"\ud" in text or r"\uD" in text else found
    except (ValueError, RecursionError):
        return None


def non_json_line(line: Line) -> list[AnswerPart]:
    """Return a line that is not a JSON object as text.

    Invalid JSON goes to the diagnostics: it may hold the output of a tool, which must not be taken
    for the agent's own text.
    """
    if line.cut or not line.text.strip():
        return []
    return [Stderr(line.text) if line.text.lstrip().startswith("{") else Text(line.text)]


def as_object(value: object) -> JsonObject:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[JsonObject]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_str(value: object) -> str:
    """Return a string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return a number of tokens, turns or seconds; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_COUNT else 0


def as_dollars(value: object) -> float | None:
    """Return an amount of money, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MAX_COUNT and math.isfinite(value) else None


def as_json(value: object) -> str:
    """Return a value as compact JSON; empty if it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""


def as_session_id(value: object) -> str:
    """Return the id of a session, or an empty string.

    An id may become an argument or part of a file name, so only safe characters pass.
    """
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else ""


def one_line(text: str, limit: int = 200) -> str:
    """Return a text as part of one line, at most `limit` characters, without control characters."""
    bounded = text[: limit + 1].strip().replace("\r\n", "\n").replace("\n", "↵")
    printable = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", bounded.replace("\t", " "))
    return f"{printable[:limit]}…" if len(text) > limit else printable


def _without_surrogates(value: JsonObject) -> JsonObject:
    """Replace lone surrogates: a program may cut a text between the two halves of a pair."""
    text = json.dumps(value, ensure_ascii=False)
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return as_object(json.loads(valid, strict=False))
