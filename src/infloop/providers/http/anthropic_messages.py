"""Dialect `anthropic`: the Messages API.

- `message_start` holds the input tokens, `content_block_delta` a piece of the text,
  `message_delta` the stop reason and the tokens so far; `message_stop` is the end.
- `ping` only shows that the connection is alive.
- `input_tokens` does not include tokens that were read from the cache or written to it.
- `iterations` lists what the API read and wrote by itself too, such as a summary of the context;
  the totals may leave that out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import AnswerPart, Done, Text, Usage
from infloop.providers.http.answers import (
    error_text,
    failed,
    interrupted,
    length_notice,
    truncated,
    unreadable,
)
from infloop.providers.json_lines import as_count, as_object, as_objects, as_str, json_object

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

HEADERS = {"anthropic-version": "2023-06-01"}
_COUNTS = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
)
DEFAULT_MAX_TOKENS = 32_000
"""The longest answer unless the manifest says otherwise; the API requires a value."""


def question(prompt: str, model: str, max_tokens: int | None) -> JsonObject:
    """Return the body of a request."""
    return {
        "model": model,
        "max_tokens": max_tokens or DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
    }


class AnthropicMessages:
    """Parses one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._total: JsonObject = {}
        self._counted = Usage()
        self._stopped = ""

    def read(self, line: Line) -> list[AnswerPart] | None:
        event = json_object(line)
        if event is None:
            return unreadable(line) or None
        match event.get("type"):
            case "message_start":
                message = as_object(event.get("message"))
                self._model = as_str(message.get("model")) or self._model
                return self._usage(as_object(message.get("usage")))
            case "content_block_delta":
                text = as_str(as_object(event.get("delta")).get("text"))
                return [Text(text)] if text else []
            case "message_delta":
                delta = as_object(event.get("delta"))
                self._stopped = as_str(delta.get("stop_reason")) or self._stopped
                return self._usage(as_object(event.get("usage")))
            case "message_stop":
                return self._end()
            case "error":
                return interrupted(error_text(event))
            case "ping":
                return None
            case _:
                return []

    def finish(self) -> list[AnswerPart]:
        return truncated()

    def _usage(self, raw: JsonObject) -> list[AnswerPart]:
        """Return the new tokens; each report holds totals and leaves out unchanged ones."""
        self._total |= {name: count for name, count in raw.items() if count is not None}
        for name in _COUNTS:
            parts = [as_count(each.get(name)) for each in as_objects(raw.get("iterations"))]
            self._total[name] = max(as_count(self._total.get(name)), sum(parts))
        kept = as_object(self._total.get("cache_creation"))
        cached = as_count(self._total.get("cache_read_input_tokens"))
        written = as_count(self._total.get("cache_creation_input_tokens"))
        total = Usage(
            as_count(self._total.get("input_tokens")) + cached + written,
            as_count(self._total.get("output_tokens")),
            cached,
            written,
            self._model,
            as_count(kept.get("ephemeral_1h_input_tokens")),
        )
        usage = total.since(self._counted)
        self._counted += usage
        return [usage] if usage.has_tokens else []

    def _end(self) -> list[AnswerPart]:
        match self._stopped:
            case "max_tokens" | "model_context_window_exceeded" as why:
                reason = f"it reached the longest length (stop_reason {why!r})"
                return [length_notice(reason), Done()]
            case "refusal":
                return [failed("the model refused to answer (stop_reason 'refusal')")]
            case _:
                return [Done()]
