"""One line of JSON as a program printed it, read with suspicion.

A frame may be broken, may nest without end, may hold anything where a text or a number is
expected. Nothing here raises: what does not fit reads as empty.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from infloop.providers.base import Part, Stderr, Text

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MOST_TOKENS = 1 << 53
MOST_TEXT = 2_000

# Our own fixed patterns: one character class each.
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)  # noqa: TID251
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # noqa: TID251


def read_frame(line: Line) -> JsonObject | None:
    """Return the object that a line holds, or None."""
    text = line.text.strip()
    if line.cut or not text.startswith("{"):
        return None
    try:
        frame: JsonObject = json.loads(text, strict=False, parse_constant=lambda _: None)
        return _with_whole_characters(frame) if r"\ud" in text or r"\uD" in text else frame
    except (ValueError, RecursionError):
        return None


def not_a_frame(line: Line) -> list[Part]:
    """Return what becomes of a line that is no frame: text, as the program wrote it.

    A broken frame may hold anything, the output of a tool too, and so is not taken for something
    that the agent said.
    """
    if line.cut or not line.text.strip():
        return []
    return [Stderr(line.text) if line.text.lstrip().startswith("{") else Text(line.text)]


def as_object(value: object) -> JsonObject:
    """Return an object."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[JsonObject]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_words(value: object) -> str:
    """Return a text."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return a number of tokens, turns or seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MOST_TOKENS else 0


def as_dollars(value: object) -> float | None:
    """Return an amount of money, or None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_TOKENS and math.isfinite(value) else None


def as_json(value: object) -> str:
    """Return a part of a frame as compact JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""


def as_session(value: object) -> str:
    """Return the id of a session, which may become an argument or part of a file's name."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else ""


def one_line(text: str, limit: int = 200) -> str:
    """Return a text as part of a line: bounded, and harmless to a terminal."""
    bounded = text[: limit + 1].strip().replace("\r\n", "\n").replace("\n", "↵")
    harmless = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", bounded.replace("\t", " "))
    return f"{harmless[:limit]}…" if len(text) > limit else harmless


def _with_whole_characters(frame: JsonObject) -> JsonObject:
    """Return a frame with half characters replaced: a program may cut a text anywhere."""
    text = json.dumps(frame, ensure_ascii=False)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return as_object(json.loads(whole, strict=False))
