"""The keys that can be pressed: `Enter`, `a`, `Control+A`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODIFIERS: Mapping[str, int] = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_NAMED: Mapping[str, tuple[int, str]] = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "Backspace": (8, ""),
    "Delete": (46, ""),
    "Space": (32, " "),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "End": (35, ""),
    "Home": (36, ""),
}


class Key(NamedTuple):
    """A key as the DevTools protocol names it."""

    key: str
    code: str
    number: int
    text: str
    modifiers: int


def parse_key(name: str) -> Key:
    """Return a key by its name; ToolError if there is none with that name."""
    *modifiers, last = name.split("+") if name != "+" else ["+"]
    if not set(modifiers) <= set(_MODIFIERS) or not last:
        raise _unknown(name)
    bits = sum(_MODIFIERS[each] for each in set(modifiers))
    if last in _NAMED:
        number, text = _NAMED[last]
        return Key(" " if last == "Space" else last, last, number, text, bits)
    if len(last) != 1 or not last.isprintable():
        raise _unknown(name)
    upper = last.upper()
    code = f"Key{upper}" if upper.isascii() and upper.isalpha() else ""
    text = "" if bits & ~_MODIFIERS["Shift"] else last
    return Key(last, code, ord(upper) if code or last.isdecimal() else 0, text, bits)


def _unknown(name: str) -> ToolError:
    known = ", ".join((*_NAMED, *(f"{each}+" for each in _MODIFIERS)))
    return ToolError("unknown-key", f"there is no key {name[:40]!r}: use one character, or {known}")
