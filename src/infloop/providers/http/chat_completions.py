"""Dialect `openai`: Chat Completions, which OpenAI defined and most model servers implement.

- Each event holds a piece of the message. `finish_reason` says why it ended, and `[DONE]` is the
  end. Usage comes in the last event, or in each event as a total.
- Servers differ: some send no `[DONE]`, some no usage, some the whole message at once. An answer
  that just stops is accepted, with a notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import AnswerPart, Done, ProviderNotice, Text, Usage
from infloop.providers.http.answers import (
    error_text,
    failed,
    interrupted,
    length_notice,
    message_text,
    truncated,
    unreadable,
)
from infloop.providers.json_lines import as_count, as_object, as_objects, as_str, json_object

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

USAGE_OPTION = "stream_options"
"""Requests a report of the usage. A server that does not know the field may refuse the request."""


def question(prompt: str, model: str, max_tokens: int | None) -> JsonObject:
    """Return the body of a request."""
    asked: JsonObject = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        USAGE_OPTION: {"include_usage": True},
    }
    return {**asked, "max_tokens": max_tokens} if max_tokens else asked


class ChatCompletions:
    """Parses one answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counted = Usage()
        self._finished = ""
        self._begun = False

    def read(self, line: Line) -> list[AnswerPart] | None:
        if line.text.strip() == "[DONE]":
            return self._end()
        event = json_object(line)
        if event is None:
            return unreadable(line) or None
        if event.get("error"):
            return [*self._usage(event), *interrupted(error_text(event))]
        return [*self._message(event), *self._usage(event)]

    def finish(self) -> list[AnswerPart]:
        if not self._begun:
            return truncated()
        if self._finished:
            return self._end()
        return [
            ProviderNotice("[output] the server did not say that its answer is whole"),
            *self._end(),
        ]

    def _message(self, event: JsonObject) -> list[AnswerPart]:
        choice = next(iter(as_objects(event.get("choices"))), None)
        if choice is None:
            return []
        self._begun = True
        self._finished = as_str(choice.get("finish_reason")) or self._finished
        message = as_object(choice.get("delta") or choice.get("message"))
        text = message_text(message.get("content")) or as_str(message.get("refusal"))
        return [Text(text)] if text else []

    def _usage(self, event: JsonObject) -> list[AnswerPart]:
        raw = as_object(event.get("usage"))
        details = as_object(raw.get("prompt_tokens_details"))
        self._model = as_str(event.get("model")) or self._model
        total = Usage(
            as_count(raw.get("prompt_tokens")),
            as_count(raw.get("completion_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(details.get("cache_write_tokens")),
            self._model,
        )
        usage = total.since(self._counted)
        self._counted += usage
        return [usage] if usage.has_tokens else []

    def _end(self) -> list[AnswerPart]:
        match self._finished:
            case "length":
                reason = "it reached the longest length (finish_reason 'length')"
                return [length_notice(reason), Done()]
            case "content_filter":
                return [failed("the content filter of the model ended its answer")]
            case _:
                return [Done()]
