"""What the answers of HTTP APIs have in common, whichever dialect they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infloop.providers.base import Cost, Done, Notice, Part, Stderr
from infloop.providers.json_lines import MOST_TEXT, as_json, as_objects, as_words, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line


class Reader(Protocol):
    """A dialect: the data of events in, parts out, with a `Done` at the end."""

    def read(self, line: Line) -> Sequence[Part] | None:
        """Return what an event says; None when it is no more than a sign of life."""

    def finish(self) -> Sequence[Part]:
        """Return what it means that nothing more came and there was no end."""


def failed(reason: str) -> Done:
    """Return the end of a call that did not work."""
    return Done(1, error=reason)


def lost(reason: str) -> list[Part]:
    """Return the end of an answer that was cut off: what it cost in all, nobody will say."""
    return [Cost(None), failed(reason)]


def broken_off() -> list[Part]:
    """Return the end of an answer that has no end of its own."""
    return lost("the answer broke off before its end")


def cut_short(why: str) -> Notice:
    """Return the remark on an answer that became too long for its model."""
    return Notice(f"[output] the answer was cut short: {one_line(why)}")


def not_an_event(line: Line) -> list[Part]:
    """Return what becomes of data that cannot be read: nothing that the model said."""
    if line.cut or not line.text.strip():
        return []
    return [Stderr(f"{one_line(line.text, MOST_TEXT)}\n")]


def told_error(frame: JsonObject, depth: int = 3) -> str:
    """Return what the body or the event of an error says, in the shapes that servers give it."""
    for value in (frame.get("error"), frame.get("message"), frame.get("detail")):
        if isinstance(value, dict) and depth:
            return told_error(value, depth - 1)
        if isinstance(value, str) and value:
            return one_line(value, MOST_TEXT)
        if value:
            break
    return one_line(as_json(frame), MOST_TEXT)


def spoken(content: object) -> str:
    """Return the text of a message, which is one text or a list of blocks."""
    if isinstance(content, list):
        return "".join(as_words(block.get("text")) for block in as_objects(content))
    return as_words(content)
