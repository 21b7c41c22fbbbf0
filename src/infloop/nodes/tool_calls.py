"""Numbers the tool calls of an answer, so that the start and the end of each belong together.

An agent's own ids are its own text: they may be long, repeated or secret, and are not passed on.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from infloop.model.events import ToolCall

if TYPE_CHECKING:
    from infloop.providers.base import Tool, ToolResult

MAX_OPEN = 1_000
_ID_CHARS = 200


class ToolCalls:
    """The calls of one attempt of a step."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._numbers = count(1)
        self._open: dict[str, ToolCall] = {}

    def note(self, part: Tool | ToolResult) -> ToolCall:
        """Return which call a part starts or ends."""
        from infloop.providers.base import Tool

        key = part.id[:_ID_CHARS]
        known = self._open.pop(key, None)
        if isinstance(part, Tool):
            call = ToolCall(self._next_id(), part.name, "start", part.kind)
            self._open[key] = call
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
            return call
        if known is None:  # its start was never reported
            return ToolCall(self._next_id(), "", "end", part.kind, part.failed)
        return ToolCall(known.id, known.name, "end", part.kind, part.failed)

    def _next_id(self) -> str:
        return f"{self._attempt}.{next(self._numbers)}"
