"""The dialects of HTTP APIs, one entry each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.providers.http import anthropic_messages, chat_completions, openai_responses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.provider import DialectName
    from infloop.model.values import JsonObject
    from infloop.providers.http.answers import AnswerParser


class Dialect(NamedTuple):
    """How an API is called, and how its answer is parsed.

    endpoint         how the path of a call ends; the credential broker recognises a call by it
    question         makes the body of a request: prompt, model, longest answer in tokens
    parser           makes the parser of one answer, for the model that was asked
    headers          headers of every request
    whole_answer     the event that an answer without streaming stands for; % is the answer
    optional_field   a field of the body that is left out if a server refuses it by name
    """

    endpoint: str
    question: Callable[[str, str, int | None], JsonObject]
    parser: Callable[[str], AnswerParser]
    headers: Mapping[str, str] = {}
    whole_answer: str = "%"
    optional_field: str = ""


DIALECTS: Mapping[DialectName, Dialect] = {
    "openai": Dialect(
        "/chat/completions",
        chat_completions.question,
        chat_completions.ChatCompletions,
        optional_field=chat_completions.USAGE_OPTION,
    ),
    "openai-responses": Dialect(
        "/responses",
        openai_responses.question,
        openai_responses.OpenaiResponses,
        whole_answer='{"type":"response.completed","response":%}',
    ),
    "anthropic": Dialect(
        "/messages",
        anthropic_messages.question,
        anthropic_messages.AnthropicMessages,
        anthropic_messages.HEADERS,
        whole_answer='{"type":"message_start","message":%}',
    ),
}


def dialect_of(path: str) -> DialectName | None:
    """Return the dialect of an API's path; None if it does not answer prompts."""
    for name, dialect in DIALECTS.items():
        if path.endswith(dialect.endpoint):
            return name
    return None
