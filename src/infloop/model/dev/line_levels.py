"""How important a line of output is: by the word that says so, or else by its stream. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

LineLevel: TypeAlias = Literal["debug", "info", "warn", "error"]

LEVELS: Sequence[LineLevel] = ("debug", "info", "warn", "error")
"""The least important first."""

_LOOKED_AT = 200
_WORDS: dict[str, LineLevel] = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warn": "warn",
    "warning": "warn",
    "error": "error",
    "fatal": "error",
    "critical": "error",
    "panic": "error",
}
# In capitals, or as `level=info`, `"level":"info"`, `[info]`, `info:`. Our own, linear.
_SAYS = re.compile(  # noqa: TID251
    rf"\b({'|'.join(word.upper() for word in _WORDS)})\b"
    rf"|level\W{{1,4}}({'|'.join(_WORDS)})\b|\[({'|'.join(_WORDS)})\]|\b({'|'.join(_WORDS)}):",
    re.ASCII,
)


def level_of(text: str, stream: Literal["stdout", "stderr"], before: LineLevel) -> LineLevel:
    """Return the level of a line that follows one of the level `before`.

    - The first word near the start that names a level counts.
    - An indented line belongs to the line before.
    - Otherwise a line on standard error is a warning, and one on standard output is not.
    """
    found = _SAYS.search(text[:_LOOKED_AT])
    if found is not None:
        return _WORDS[next(word for word in found.groups() if word).lower()]
    if text[:1].isspace():
        return before
    return "warn" if stream == "stderr" else "info"


def reaches(level: LineLevel, least: LineLevel) -> bool:
    """Tell whether a level is at least as important as another."""
    return LEVELS.index(level) >= LEVELS.index(least)
