"""Dialect `openai-responses`: OpenAI's Responses API.

`response.output_text.delta` is a piece of the text; `response.completed`, `response.incomplete` and
`response.failed` are the ends and hold the usage. Nothing of it is kept on the other side.
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


def question(prompt: str, model: str, most_tokens: int | None) -> JsonObject:
    """Return what is sent to ask."""
    asked: JsonObject = {"model": model, "input": prompt, "stream": True, "store": False}
    return {**asked, "max_output_tokens": most_tokens} if most_tokens else asked


class OpenaiResponses:
    """Reads one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._speaking: object = None

    def read(self, line: Line) -> list[Part] | None:
        """Return what an event says."""
        frame = read_frame(line)
        if frame is None:
            return not_an_event(line) or None
        response = as_object(frame.get("response"))
        match frame.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._speak(frame)
            case "response.completed":
                return [*self._usage(response), Done()]
            case "response.incomplete":
                return [*self._usage(response), *_incomplete(response)]
            case "response.failed":
                return [*self._usage(response), *lost(told_error(response))]
            case "error":
                return lost(told_error(frame))
            case _:
                return []

    def finish(self) -> list[Part]:
        """Return what it means that the stream ended without an end."""
        return broken_off()

    def _speak(self, frame: JsonObject) -> list[Part]:
        """Say a piece; each message begins on a line of its own."""
        message = frame.get("output_index")
        apart = self._speaking is not None and self._speaking != message
        self._speaking = message
        text = as_words(frame.get("delta"))
        return [Text(f"\n{text}" if apart else text)] if text else []

    def _usage(self, response: JsonObject) -> list[Part]:
        raw = as_object(response.get("usage"))
        details = as_object(raw.get("input_tokens_details"))
        usage = Usage(
            as_count(raw.get("input_tokens")),
            as_count(raw.get("output_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(details.get("cache_write_tokens")),
            as_words(response.get("model")) or self._model,
        )
        return [usage] if usage.counts else []


def _incomplete(response: JsonObject) -> list[Part]:
    why = as_words(as_object(response.get("incomplete_details")).get("reason"))
    if why == "content_filter":
        return [failed("the content filter of the model ended its answer")]
    return [cut_short(f"the API calls it incomplete ({why or 'without a reason'})"), Done()]
