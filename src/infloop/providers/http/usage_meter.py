"""What an answer cost that goes by: usage, read while a child's call is passed on.

The same readers as for our own calls; nothing but the usage is kept. An answer in one piece is read
as the event that would have held it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import NO_USAGE, Cost, Done, Usage
from infloop.providers.http.anthropic_messages import AnthropicMessages
from infloop.providers.http.chat_completions import ChatCompletions
from infloop.providers.http.openai_responses import OpenaiResponses
from infloop.providers.http.server_sent import ServerEvents, WholeAnswer
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.providers.http.replies import Reader

_GOOD = 200


class UsageMeter:
    """Listens to the answer to one call and adds up the usage in it, as it comes.

    Once it is `over`, `told` says whether `usage` is all: an answer that never came, broke off, or
    does not speak of usage, did not tell. An error costs nothing, and neither does what was not
    asked.
    """

    def __init__(self, reader: Reader, whole_as: str, on_over: Callable[[], None]) -> None:
        """Take who reads events; `whole_as` is the event that an answer in one piece stands for."""
        self.usage = NO_USAGE
        self.over = self.told = False
        self._reader = reader
        self._whole_as = whole_as
        self._on_over = on_over
        self._events: ServerEvents | WholeAnswer = ServerEvents()
        self._is_free = self._ended = self._lost = False

    def answered(self, status: int, content_type: str) -> None:
        """Take note that there is an answer."""
        self._is_free = status != _GOOD
        if content_type.lower().startswith("application/json"):
            self._events = WholeAnswer()
            self._ended = True

    def feed(self, data: bytes) -> None:
        """Take the next piece of it."""
        if not self._is_free:
            self._read(self._events.feed(data))

    def finish(self, *, sent: bool) -> None:
        """Take note, once, that it is over or broke off; `sent` if anything had been sent."""
        if self.over:
            return
        try:
            if not self._is_free:
                self._read(self._events.finish())
            told_all = self._ended and not self._lost and self.usage.counts
            self.told = self._is_free or not sent or told_all
        finally:
            self.over = True
            self._on_over()

    def _read(self, lines: list[Line]) -> None:
        whole = isinstance(self._events, WholeAnswer)
        for line in lines:
            text = self._whole_as.replace("%", line.text, 1) if whole else line.text
            for part in self._reader.read(Line(text, line.cut)) or ():
                match part:
                    case Usage():
                        self.usage += part
                    case Cost(usd=None):
                        self._lost = True
                    case Done():
                        self._ended = True
                    case _:
                        pass


def usage_meter(path: str, on_over: Callable[[], None]) -> UsageMeter | None:
    """Return who reads the usage of an answer to a call of `path`; None if it has none."""
    if path.endswith("/messages"):
        whole_as = '{"type":"message_start","message":%}'
        return UsageMeter(AnthropicMessages(""), whole_as, on_over)
    if path.endswith("/responses"):
        whole_as = '{"type":"response.completed","response":%}'
        return UsageMeter(OpenaiResponses(""), whole_as, on_over)
    if path.endswith("/chat/completions"):
        return UsageMeter(ChatCompletions(""), "%", on_over)
    return None
