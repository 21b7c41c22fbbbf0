"""Reads the usage of answers that pass through the credential broker.

It uses the same parsers as infloop's own calls and keeps only the usage. An answer without
streaming is parsed as the event that would have held it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import NO_USAGE, Cost, Done, Usage
from infloop.providers.http.dialects import DIALECTS
from infloop.providers.http.server_sent import ServerEvents, WholeAnswer
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.provider import DialectName


class UsageMeter:
    """Adds up the usage in the answer to one call.

    When it is `over`, `is_complete` says whether `usage` is everything. It is not if the answer
    never came, broke off, or does not report usage. An error response and a request that was never
    sent cost nothing, so they are complete.
    """

    def __init__(self, name: DialectName, on_over: Callable[[], None]) -> None:
        dialect = DIALECTS[name]
        self.usage = NO_USAGE
        self.over = self.is_complete = False
        self._parser = dialect.parser("")
        self._whole_answer = dialect.whole_answer
        self._on_over = on_over
        self._events: ServerEvents | WholeAnswer = ServerEvents()
        self._is_free = self._ended = self._interrupted = False

    def answered(self, status: int, content_type: str) -> None:
        """Note that the response has begun."""
        self._is_free = not 200 <= status < 300
        if content_type.lower().startswith("application/json"):
            self._events = WholeAnswer()
            self._ended = True

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body."""
        if not self._is_free:
            self._read(self._events.feed(data))

    def finish(self, *, sent: bool) -> None:
        """Note, once, that the answer ended or broke off; `sent` if the request had been sent."""
        if self.over:
            return
        try:
            if not self._is_free:
                self._read(self._events.finish())
            reported = self._ended and not self._interrupted and self.usage.has_tokens
            self.is_complete = self._is_free or not sent or reported
        finally:
            self.over = True
            self._on_over()

    def _read(self, lines: list[Line]) -> None:
        whole = isinstance(self._events, WholeAnswer)
        for line in lines:
            text = self._whole_answer.replace("%", line.text, 1) if whole else line.text
            for part in self._parser.read(Line(text, line.cut)) or ():
                match part:
                    case Usage():
                        self.usage += part
                    case Cost(usd=None):
                        self._interrupted = True
                    case Done():
                        self._ended = True
                    case _:
                        pass
