"""Dialect `anthropic`: the Messages API.

`message_start` tells what was read, `content_block_delta` a piece of the text, `message_delta` why
it ended and how many tokens there are by now, `message_stop` is the end. `ping` is a sign of life.
`input_tokens` leaves out what came from the cache or went into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import Done, Part, Text, Usage
from infloop.providers.http.replies import (
    broken_off,
    cut_short,
    failed,
    lost,
    not_an_event,
    told_error,
)
from infloop.providers.json_lines import as_count, as_object, as_words, read_frame

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

HEADERS = {"anthropic-version": "2023-06-01"}
MOST_TOKENS = 32_000
"""The longest answer unless the manifest says otherwise; the API wants to be told one."""


def question(prompt: str, model: str, most_tokens: int | None) -> JsonObject:
    """Return what is sent to ask."""
    return {
        "model": model,
        "max_tokens": most_tokens or MOST_TOKENS,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
    }


class AnthropicMessages:
    """Reads one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._total: JsonObject = {}
        self._counted = Usage()
        self._stopped = ""

    def read(self, line: Line) -> list[Part] | None:
        """Return what an event says."""
        frame = read_frame(line)
        if frame is None:
            return not_an_event(line) or None
        match frame.get("type"):
            case "message_start":
                message = as_object(frame.get("message"))
                self._model = as_words(message.get("model")) or self._model
                return self._usage(as_object(message.get("usage")))
            case "content_block_delta":
                text = as_words(as_object(frame.get("delta")).get("text"))
                return [Text(text)] if text else []
            case "message_delta":
                delta = as_object(frame.get("delta"))
                self._stopped = as_words(delta.get("stop_reason")) or self._stopped
                return self._usage(as_object(frame.get("usage")))
            case "message_stop":
                return self._end()
            case "error":
                return lost(told_error(frame))
            case "ping":
                return None
            case _:
                return []

    def finish(self) -> list[Part]:
        """Return what it means that the stream ended without `message_stop`."""
        return broken_off()

    def _usage(self, raw: JsonObject) -> list[Part]:
        """Count what is new; each report holds totals, and leaves out what has not changed."""
        self._total |= {name: count for name, count in raw.items() if count is not None}
        cached = as_count(self._total.get("cache_read_input_tokens"))
        written = as_count(self._total.get("cache_creation_input_tokens"))
        total = Usage(
            as_count(self._total.get("input_tokens")) + cached + written,
            as_count(self._total.get("output_tokens")),
            cached,
            written,
            self._model,
        )
        usage = total.beyond(self._counted)
        self._counted += usage
        return [usage] if usage.counts else []

    def _end(self) -> list[Part]:
        match self._stopped:
            case "max_tokens" | "model_context_window_exceeded" as why:
                return [cut_short(f"it reached the longest length (stop_reason {why!r})"), Done()]
            case "refusal":
                return [failed("the model refused to answer (stop_reason 'refusal')")]
            case _:
                return [Done()]
