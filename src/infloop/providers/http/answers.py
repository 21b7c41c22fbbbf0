"""What the answers of HTTP APIs have in common in all dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infloop.providers.base import AnswerPart, Cost, Done, ProviderNotice, Stderr
from infloop.providers.json_lines import MAX_MESSAGE_CHARS, as_json, as_objects, as_str, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line


class AnswerParser(Protocol):
    """Parses one answer: the data of events in, parts out, with a `Done` at the end."""

    def read(self, line: Line) -> Sequence[AnswerPart] | None:
        """Return the parts in an event.

        None means that the event only shows that the connection is alive: the idle timeout goes on.
        """

    def finish(self) -> Sequence[AnswerPart]:
        """Return the parts that follow when the stream ended and the parser saw no end."""


def failed(reason: str) -> Done:
    """Return the end of a call that failed."""
    return Done(1, error=reason)


def interrupted(reason: str) -> list[AnswerPart]:
    """Return the end of an answer that stopped midway; its total cost is unknown."""
    return [Cost(None), failed(reason)]


def truncated() -> list[AnswerPart]:
    """Return the end of an answer whose stream just stopped."""
    return interrupted("the answer broke off before its end")


def length_notice(why: str) -> ProviderNotice:
    """Return the notice about an answer that reached its longest length."""
    return ProviderNotice(f"[output] the answer was cut short: {one_line(why)}")


def unreadable(line: Line) -> list[AnswerPart]:
    """Return data that cannot be parsed as diagnostics: it is not the model's text."""
    if line.cut or not line.text.strip():
        return []
    return [Stderr(f"{one_line(line.text, MAX_MESSAGE_CHARS)}\n")]


def error_text(body: JsonObject, depth: int = 3) -> str:
    """Return the message in the body or event of an error, in the shapes that servers use."""
    for value in (body.get("error"), body.get("message"), body.get("detail")):
        if isinstance(value, dict) and depth:
            return error_text(value, depth - 1)
        if isinstance(value, str) and value:
            return one_line(value, MAX_MESSAGE_CHARS)
        if value:
            break
    return one_line(as_json(body), MAX_MESSAGE_CHARS)


def message_text(content: object) -> str:
    """Return the text of a message, whose content is a string or a list of blocks."""
    if isinstance(content, list):
        return "".join(as_str(block.get("text")) for block in as_objects(content))
    return as_str(content)
