"""What an answer cost that goes by: usage, read while a child's call is passed on.

The same readers as for our own calls; nothing but the usage is kept. An answer in one piece is read
as the event that would have held it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.anthropic_messages import AnthropicMessages
from infloop.providers.base import Usage
from infloop.providers.chat_completions import ChatCompletions
from infloop.providers.lines import Line
from infloop.providers.openai_responses import OpenaiResponses
from infloop.providers.server_sent import ServerEvents, WholeAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.providers.replies import Reader


class UsageMeter:
    """Listens to one answer and tells the usage in it as it comes."""

    def __init__(
        self, reader: Reader, *, whole_as: str | None, on_usage: Callable[[Usage], None]
    ) -> None:
        """Take who reads events; `whole_as` is the event that an answer in one piece stands for."""
        self._reader = reader
        self._whole_as = whole_as
        self._on_usage = on_usage
        self._events = ServerEvents() if whole_as is None else WholeAnswer()

    def feed(self, data: bytes) -> None:
        """Take the next piece of the answer."""
        self._read(self._events.feed(data))

    def finish(self) -> None:
        """Take note that the answer is over, or broke off."""
        self._read(self._events.finish())

    def _read(self, lines: list[Line]) -> None:
        for line in lines:
            whole = self._whole_as
            event = line if whole is None else Line(whole.replace("%", line.text, 1), line.cut)
            for part in self._reader.read(event) or ():
                if isinstance(part, Usage):
                    self._on_usage(part)


def usage_meter(
    path: str, status: int, content_type: str, on_usage: Callable[[Usage], None]
) -> UsageMeter | None:
    """Return who reads the usage of an answer to a call of `path`; None if it has none."""
    reader: Reader
    if status != 200:
        return None
    if path.endswith("/messages"):
        reader, whole_as = AnthropicMessages(""), '{"type":"message_start","message":%}'
    elif path.endswith("/responses"):
        reader, whole_as = OpenaiResponses(""), '{"type":"response.completed","response":%}'
    elif path.endswith("/chat/completions"):
        reader, whole_as = ChatCompletions(""), "%"
    else:
        return None
    in_one_piece = content_type.lower().startswith("application/json")
    return UsageMeter(reader, whole_as=whole_as if in_one_piece else None, on_usage=on_usage)
