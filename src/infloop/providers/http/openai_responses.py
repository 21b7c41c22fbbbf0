"""Dialect `openai-responses`: OpenAI's Responses API.

- `response.output_text.delta` is a piece of the text. `response.completed`, `response.incomplete`
  and `response.failed` are the ends and hold the usage.
- The server is asked not to store the answer.
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
from infloop.providers.json_lines import as_count, as_object, as_str, json_object

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line


def question(prompt: str, model: str, max_tokens: int | None) -> JsonObject:
    """Return the body of a request."""
    asked: JsonObject = {"model": model, "input": prompt, "stream": True, "store": False}
    return {**asked, "max_output_tokens": max_tokens} if max_tokens else asked


class OpenaiResponses:
    """Parses one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._message: object = None

    def read(self, line: Line) -> list[AnswerPart] | None:
        event = json_object(line)
        if event is None:
            return unreadable(line) or None
        response = as_object(event.get("response"))
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._read_text(event)
            case "response.completed":
                return [*self._usage(response), Done()]
            case "response.incomplete":
                return [*self._usage(response), *_incomplete(response)]
            case "response.failed":
                return [*self._usage(response), *interrupted(error_text(response))]
            case "error":
                return interrupted(error_text(event))
            case _:
                return []

    def finish(self) -> list[AnswerPart]:
        return truncated()

    def _read_text(self, event: JsonObject) -> list[AnswerPart]:
        """Return a piece of the text; each message begins on its own line."""
        message = event.get("output_index")
        new_line = self._message is not None and self._message != message
        self._message = message
        text = as_str(event.get("delta"))
        return [Text(f"\n{text}" if new_line else text)] if text else []

    def _usage(self, response: JsonObject) -> list[AnswerPart]:
        raw = as_object(response.get("usage"))
        details = as_object(raw.get("input_tokens_details"))
        usage = Usage(
            as_count(raw.get("input_tokens")),
            as_count(raw.get("output_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(details.get("cache_write_tokens")),
            as_str(response.get("model")) or self._model,
        )
        return [usage] if usage.has_tokens else []


def _incomplete(response: JsonObject) -> list[AnswerPart]:
    why = as_str(as_object(response.get("incomplete_details")).get("reason"))
    if why == "content_filter":
        return [failed("the content filter of the model ended its answer")]
    return [length_notice(f"the API calls it incomplete ({why or 'without a reason'})"), Done()]
