"""Dialect `openai`: Chat Completions, as OpenAI made them and most model servers speak them.

Each event holds a piece of the message; `finish_reason` says why it ended, usage comes in the last
event or in each as a total, and `[DONE]` is the end. Servers differ: some send no `[DONE]`, some no
usage, some the whole message in one piece. An answer that just stops counts, with a remark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import Done, Notice, Part, Text, Usage
from infloop.providers.http.replies import (
    broken_off,
    cut_short,
    failed,
    lost,
    not_an_event,
    spoken,
    told_error,
)
from infloop.providers.json_lines import as_count, as_object, as_objects, as_words, read_frame

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

USAGE_WISH = "stream_options"
"""The wish to be told the usage; a server that does not know it may refuse the whole question."""


def question(prompt: str, model: str, most_tokens: int | None) -> JsonObject:
    """Return what is sent to ask."""
    asked: JsonObject = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        USAGE_WISH: {"include_usage": True},
    }
    return {**asked, "max_tokens": most_tokens} if most_tokens else asked


class ChatCompletions:
    """Reads one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counted = Usage()
        self._finished = ""
        self._begun = False

    def read(self, line: Line) -> list[Part] | None:
        """Return what an event says."""
        if line.text.strip() == "[DONE]":
            return self._end()
        frame = read_frame(line)
        if frame is None:
            return not_an_event(line) or None
        if frame.get("error"):
            return [*self._usage(frame), *lost(told_error(frame))]
        return [*self._message(frame), *self._usage(frame)]

    def finish(self) -> list[Part]:
        """Return what it means that the stream ended without `[DONE]`."""
        if not self._begun:
            return broken_off()
        if self._finished:
            return self._end()
        return [Notice("[output] the server did not say that its answer is whole"), *self._end()]

    def _message(self, frame: JsonObject) -> list[Part]:
        choice = next(iter(as_objects(frame.get("choices"))), None)
        if choice is None:
            return []
        self._begun = True
        self._finished = as_words(choice.get("finish_reason")) or self._finished
        message = as_object(choice.get("delta") or choice.get("message"))
        text = spoken(message.get("content")) or as_words(message.get("refusal"))
        return [Text(text)] if text else []

    def _usage(self, frame: JsonObject) -> list[Part]:
        raw = as_object(frame.get("usage"))
        details = as_object(raw.get("prompt_tokens_details"))
        self._model = as_words(frame.get("model")) or self._model
        total = Usage(
            as_count(raw.get("prompt_tokens")),
            as_count(raw.get("completion_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(details.get("cache_write_tokens")),
            self._model,
        )
        usage = total.beyond(self._counted)
        self._counted += usage
        return [usage] if usage.counts else []

    def _end(self) -> list[Part]:
        match self._finished:
            case "length":
                return [cut_short("it reached the longest length (finish_reason 'length')"), Done()]
            case "content_filter":
                return [failed("the content filter of the model ended its answer")]
            case _:
                return [Done()]
