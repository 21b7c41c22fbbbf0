"""Models behind HTTP APIs: what is asked, what is made of the answer, and what is never shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from infloop.errors import StepError
from infloop.model.provider import HttpProvider, parse_provider
from infloop.providers import SHIPPED_DIR
from infloop.providers.base import (
    Answer,
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    RateLimited,
    Request,
    Text,
    Usage,
)
from infloop.providers.http.agent import HttpAgent
from infloop.providers.http.error_responses import retry_at
from infloop.providers.http.models import list_profiles
from infloop.providers.http.server_sent import ServerEvents
from infloop.providers.prices import PriceList
from support.eventually import eventually_async
from support.fake_model import Say, chat, head, messages, responses, whole_answer
from support.runs import world
from support.scripted_http import (
    HANG,
    RESET,
    STREAM,
    Act,
    Stage,
    event,
    events,
    manifest,
    refusal,
    stream,
)

DEADLINE_S = 30.0
KEY = "sk-test-0123456789abcdef"
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DIALECTS = {
    "openai": ("/chat/completions", chat),
    "openai-responses": ("/responses", responses),
    "anthropic": ("/messages", messages),
}


def asked(agent: HttpAgent, request: Request) -> AsyncGenerator[AnswerPart]:
    return cast("AsyncGenerator[AnswerPart]", agent.ask(request))


PLAIN = Request("Say DONE", "/")


async def parts_of(
    provider: HttpProvider,
    request: Request = PLAIN,
    *,
    variables: Mapping[str, str] | None = None,
    max_stream_bytes: int = 64 << 20,
) -> list[AnswerPart]:
    """All that an agent says."""
    agent = HttpAgent(provider, variables or {}, max_stream_bytes=max_stream_bytes, now=lambda: NOW)
    async with asyncio.timeout(DEADLINE_S), aclosing(asked(agent, request)) as parts:
        return [part async for part in parts]


def answer_of(parts: Sequence[AnswerPart]) -> Answer:
    answer = Answer(1 << 20)
    for part in parts:
        answer.add(part)
    return answer


def ending(parts: Sequence[AnswerPart]) -> Done:
    """The one end, which must be the last part."""
    assert [part for part in parts if isinstance(part, Done)] == [parts[-1]]
    return cast("Done", parts[-1])


def notices(parts: Sequence[AnswerPart]) -> list[str]:
    return [part.line for part in parts if isinstance(part, ProviderNotice)]


def speaking(dialect: str, said: str = "It is DONE") -> Act:
    return [STREAM, *events(DIALECTS[dialect][1]([Say(said)], "gpt-5.4", 1))]


def in_dialect(url: str, dialect: str, **changes: Any) -> HttpProvider:
    return manifest(url, dialect=dialect, endpoint=DIALECTS[dialect][0], **changes)


# -- asking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_is_heard_in_every_dialect(dialect: str) -> None:
    async with Stage(speaking(dialect)) as stage:
        parts = await parts_of(in_dialect(stage.url, dialect))
    assert ending(parts) == Done(0)
    answer = answer_of(parts)
    assert answer.text == "It is DONE"
    assert answer.usage == Usage(100, 20, 30, 0, "gpt-5.4")
    assert [request.path for request in stage.asked] == [f"/v1{DIALECTS[dialect][0]}"]


QUESTIONS: dict[str, dict[str, Any]] = {
    "openai": {
        "model": "gpt-5.4",
        "messages": [{"role": "user", "content": "Say DONE"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
    },
    "openai-responses": {
        "model": "gpt-5.4",
        "input": "Say DONE",
        "stream": True,
        "store": False,
        "max_output_tokens": 7,
    },
    "anthropic": {
        "model": "gpt-5.4",
        "messages": [{"role": "user", "content": "Say DONE"}],
        "stream": True,
        "max_tokens": 7,
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_question_is_put_as_the_dialect_wants_it(dialect: str) -> None:
    async with Stage(speaking(dialect)) as stage:
        await parts_of(in_dialect(stage.url, dialect, maxOutputTokens=7))
    (question,) = stage.asked
    assert question.body == QUESTIONS[dialect]
    assert question.headers["content-type"] == "application/json"
    assert ("anthropic-version" in question.headers) == (dialect == "anthropic")


async def test_anthropic_is_told_a_longest_answer_though_the_manifest_names_none() -> None:
    async with Stage(speaking("anthropic")) as stage:
        await parts_of(in_dialect(stage.url, "anthropic"))
    assert stage.asked[0].body["max_tokens"] == 32_000


@pytest.mark.parametrize(
    ("request_", "model"),
    [
        (Request("hi", "/"), "gpt-5.4"),
        (Request("hi", "/", profile="large"), "large"),
        (Request("hi", "/", kind="judge", model="strict"), "strict"),
        (Request("hi", "/", profile=" padded "), "padded"),
    ],
)
async def test_the_model_is_the_requests_or_else_the_default(request_: Request, model: str) -> None:
    async with Stage(speaking("openai")) as stage:
        await parts_of(manifest(stage.url), request_)
    assert stage.asked[0].body["model"] == model


async def test_without_any_model_nothing_is_asked_and_the_error_says_what_there_is() -> None:
    async with Stage(speaking("openai")) as stage:
        bare = manifest(stage.url, defaultProfile=None, profiles=[{"id": "small"}])
        with pytest.raises(StepError, match=r"'local' has no default model \(it lists small\)"):
            await parts_of(bare)
    assert stage.asked == []


async def test_a_prompt_that_is_not_unicode_is_sent_all_the_same() -> None:
    async with Stage(speaking("openai")) as stage:
        await parts_of(manifest(stage.url), Request("half \ud800 of a pair", "/"))
    assert stage.asked[0].body["messages"][0]["content"] == "half ? of a pair"


async def test_a_server_that_does_not_know_a_wish_is_asked_again_without_it() -> None:
    wish = {
        "detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]
    }
    async with Stage(refusal(422, wish), speaking("openai")) as stage:
        parts = await parts_of(manifest(stage.url))
    assert ending(parts) == Done(0)
    assert ["stream_options" in request.body for request in stage.asked] == [True, False]


async def test_an_agent_by_name_is_left_out_and_that_is_said() -> None:
    async with Stage(speaking("openai")) as stage:
        parts = await parts_of(manifest(stage.url), Request("hi", "/", agent="reviewer"))
    assert notices(parts) == ["[agent] an HTTP provider has no named agents: 'agent' is left out"]
    assert ending(parts) == Done(0)


async def test_a_redirect_is_not_followed() -> None:
    async with Stage(speaking("openai")) as elsewhere:
        away = refusal(307, "", {"location": f"{elsewhere.url}/v1/chat/completions"})
        async with Stage(away) as stage:
            parts = await parts_of(manifest(stage.url))
    assert elsewhere.asked == []
    assert "answered 307; redirects are not followed" in ending(parts).error


# -- tokens ----------------------------------------------------------------------------------------

TOKENS: dict[str, tuple[dict[str, str], str, str]] = {
    "from a variable": ({"type": "bearer", "envVar": "THE_KEY"}, "authorization", f"Bearer {KEY}"),
    "from the file": ({"type": "bearer", "token": KEY}, "authorization", f"Bearer {KEY}"),
    "in a header of its own": ({"type": "x-api-key", "envVar": "THE_KEY"}, "x-api-key", KEY),
}


@pytest.mark.parametrize("case", TOKENS)
async def test_the_token_goes_into_its_header(case: str) -> None:
    auth, header, value = TOKENS[case]
    async with Stage(speaking("openai")) as stage:
        await parts_of(manifest(stage.url, auth=auth), variables={"THE_KEY": f"{KEY}\n"})
    assert stage.asked[0].headers[header] == value
    assert [name for name, sent in stage.asked[0].headers.items() if KEY in sent] == [header]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "not set"),
        ("  ", "not set"),
        ("a\nb", "no HTTP header"),
        ("schlüssel", "no HTTP header"),
    ],
)
async def test_a_token_that_cannot_be_sent_is_an_error_that_names_its_variable(
    value: str, reason: str
) -> None:
    async with Stage(speaking("openai")) as stage:
        provider = manifest(stage.url, auth={"type": "bearer", "envVar": "THE_KEY"})
        with pytest.raises(StepError, match=f"the variable THE_KEY.*{reason}") as raised:
            await parts_of(provider, variables={"THE_KEY": value})
    assert stage.asked == []
    assert not value.strip() or value.strip() not in str(raised.value)


ECHOES: dict[str, Act] = {
    "in the body of an error": refusal(401, {"error": {"message": f"bad key {KEY}"}}),
    "in a plain body": refusal(500, f"{KEY} {KEY}"),
    "in a header": refusal(302, "", {"location": f"http://x.test/{KEY}"}),
    "in an event": stream({"error": {"message": f"bad key {KEY}"}}),
    "in data that is no event": stream(f"{KEY}, not JSON", "[DONE]"),
    "while it rate limits": refusal(429, {"error": KEY}, {"retry-after": "5"}),
    "in a broken head": [f"HTTP/1.1 {KEY} OK\r\n\r\n".encode()],
}


@pytest.mark.parametrize("case", ECHOES)
async def test_a_server_that_repeats_the_token_does_not_get_it_shown(case: str) -> None:
    async with Stage(ECHOES[case]) as stage:
        provider = manifest(stage.url, auth={"type": "bearer", "token": KEY})
        parts = await parts_of(provider)
    assert KEY not in repr(parts)


# -- errors ----------------------------------------------------------------------------------------

# status, body -> what the error says
REFUSALS: dict[str, tuple[int, object, str]] = {
    "OpenAI's": (
        401,
        {"error": {"message": "Incorrect API key", "type": "invalid_request_error"}},
        "answered 401: Incorrect API key; check the token in the variable THE_KEY",
    ),
    "Anthropic's": (
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "answered 529: Overloaded; the server has a problem; try again later",
    ),
    "a text": (404, {"error": "model not found"}, "answered 404: model not found; check the prov"),
    "details": (400, {"detail": "no such field"}, "answered 400: no such field; check the request"),
    "a message": (403, {"message": "go away"}, "answered 403: go away; check the token"),
    "another shape": (400, {"errors": [1, 2]}, 'answered 400: {"errors":[1,2]}; check the request'),
    "HTML": (502, "<h1>Bad Gateway</h1>", "answered 502: <h1>Bad Gateway</h1>; the server has a"),
    "nothing": (500, "", "answered 500; the server has a problem"),
    "not UTF-8": (500, b"\xff\xfe", "answered 500: \N{REPLACEMENT CHARACTER}"),
    "a nesting": (500, b'{"error":' * 900 + b"1" + b"}" * 900, "answered 500: "),
    "too long": (500, "x" * 100_000, "x" * 2000 + "…; the server"),
    "control characters": (500, "\x1b[2Jboo", "answered 500: \N{REPLACEMENT CHARACTER}[2Jboo"),
    "no way to know when": (429, {"error": {"message": "quota"}}, "quota; wait, or raise the lim"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_an_error_of_the_server_says_who_what_and_what_to_do(case: str) -> None:
    status, body, said = REFUSALS[case]
    async with Stage(refusal(status, body)) as stage:
        provider = manifest(stage.url, auth={"type": "bearer", "envVar": "THE_KEY"})
        parts = await parts_of(provider, variables={"THE_KEY": KEY})
    end = ending(parts)
    assert end.exit_code == 1
    assert end.error.startswith(f"127.0.0.1:{stage.port} answered {status}")
    assert said in end.error


@pytest.mark.parametrize(
    ("headers", "until"),
    [
        ({"retry-after": "30"}, 30),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 12:05:00 GMT"}, 300),
        ({"retry-after": "Sun, 15 Nov 2020 12:05:00 GMT"}, 0),
        ({"retry-after": "1e300"}, 366 * 86_400),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 366 * 86_400),
    ],
)
async def test_a_rate_limit_says_when_it_is_lifted(headers: dict[str, str], until: float) -> None:
    async with Stage(refusal(429, {"error": {"message": "slow down"}}, headers)) as stage:
        parts = await parts_of(manifest(stage.url))
    (limited,) = [part for part in parts if isinstance(part, RateLimited)]
    assert limited.until_ms == int((NOW.timestamp() + until) * 1000)
    assert ending(parts).error.startswith(f"{limited.reason} (127.0.0.1:{stage.port} answered 429")


@pytest.mark.parametrize("value", ["", "soon", "-5", "nan", "inf", "٣", "1,2", "Sun, 99 Nov"])
def test_a_retry_after_that_means_nothing_is_no_time(value: str) -> None:
    found = retry_at({"retry-after": value}, NOW)
    assert found in (None, NOW.replace(second=3))


async def test_nobody_there_is_an_error_that_names_the_host() -> None:
    async with Stage() as gone:
        pass
    parts = await parts_of(manifest(gone.url))
    assert f"127.0.0.1:{gone.port}" in ending(parts).error
    assert "is it running, and is the baseUrl of provider 'local' right?" in ending(parts).error
    assert Cost(0.0) in parts


@pytest.mark.parametrize(
    "url",
    ["http://under_score.test", "http://127.1", "http://[::ffff:127.0.0.1]:1", "http://x:99999"],
)
async def test_an_address_that_two_programs_could_read_differently_is_refused(url: str) -> None:
    with pytest.raises(StepError, match=r"provider 'local' cannot be asked: .*change its baseUrl"):
        await parts_of(manifest(url))


@pytest.mark.parametrize(
    ("status", "known"), [(400, True), (401, True), (429, True), (500, False), (529, False)]
)
async def test_what_was_turned_down_cost_nothing_and_what_failed_may_have(
    status: int, known: bool
) -> None:
    async with Stage(refusal(status, {"error": "no"}, {"retry-after": "1"})) as stage:
        parts = await parts_of(manifest(stage.url))
    assert [part.usd for part in parts if isinstance(part, Cost)] == ([0.0] if known else [])


# -- answers that are not what they should be ------------------------------------------------------

DELTA = {"choices": [{"delta": {"content": "It is DONE"}}]}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
NOT_WHOLE = ["[output] the server did not say that its answer is whole"]

# name -> what the server sends, what is heard, the notices
READ_ALL_THE_SAME: dict[str, tuple[Act, str, list[str]]] = {
    "no [DONE]": (stream(DELTA, STOP), "It is DONE", []),
    "neither [DONE] nor a reason": (stream(DELTA), "It is DONE", NOT_WHOLE),
    "no blank line at the end": ([STREAM, event(DELTA), b"data: [DONE]"], "It is DONE", []),
    "carriage returns": (
        [STREAM, b"".join(map(event, (DELTA, "[DONE]"))).replace(b"\n", b"\r\n")],
        "It is DONE",
        [],
    ),
    "a byte at a time": (
        [STREAM, *(bytes([byte]) for byte in event(DELTA) + event("[DONE]"))],
        "It is DONE",
        [],
    ),
    "comments, names and other fields": (
        [STREAM, b": hi\n\nevent: x\nid: 7\nretry: 5\nnonsense\n", event(DELTA), event("[DONE]")],
        "It is DONE",
        [],
    ),
    "data over several lines": (
        [
            STREAM,
            b'data: {"choices": [{"delta":\ndata: {"content": "It is DONE"}}]}\n\n',
            event("[DONE]"),
        ],
        "It is DONE",
        [],
    ),
    "things that are no events": (
        stream("nonsense", "{", "[1,2]", "null", '"x"', "{}", DELTA, "[DONE]"),
        "It is DONE",
        [],
    ),
    "the wrong types": (
        stream(
            {"choices": "x"},
            {"choices": [None, 1]},
            {"choices": [{"delta": "x", "finish_reason": 3}]},
            {"choices": [{"delta": {"content": {"a": 1}}}]},
            {"usage": {"prompt_tokens": "many", "completion_tokens": -3}, "model": 5},
            {"error": None},
            DELTA,
            "[DONE]",
        ),
        "It is DONE",
        [],
    ),
    "a nesting without end": (
        stream('{"choices":' + "[" * 50_000, DELTA, "[DONE]"),
        "It is DONE",
        [],
    ),
    "not UTF-8": (
        [STREAM, b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', event("[DONE]")],
        "\N{REPLACEMENT CHARACTER}",
        [],
    ),
    "half a character": (
        [STREAM, b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', event("[DONE]")],
        "\N{REPLACEMENT CHARACTER}",
        [],
    ),
    "a gigantic event": (
        stream('{"a": "' + "x" * (9 << 20) + '"}', DELTA, "[DONE]"),
        "It is DONE",
        ["[output] a line was cut after 8388608 characters"],
    ),
    "a gigantic event over many lines": (
        [STREAM, (b"data: " + b"x" * 1000 + b"\n") * 9_000 + b"\n", event(DELTA), event("[DONE]")],
        "It is DONE",
        ["[output] a line was cut after 8388608 characters"],
    ),
    "more after the end": (stream(DELTA, "[DONE]", DELTA, {"error": "x"}), "It is DONE", []),
    "several choices": (
        stream({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}, "[DONE]"),
        "a",
        [],
    ),
    "blocks of text": (
        stream(
            {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}, {"x": 1}, "b"]}}]},
            "[DONE]",
        ),
        "a",
        [],
    ),
    "all in one piece": (
        [whole_answer(200, chat([Say("It is DONE")], "m", 1).whole)],
        "It is DONE",
        [],
    ),
}


@pytest.mark.parametrize("case", READ_ALL_THE_SAME)
async def test_a_strange_answer_is_read_all_the_same(case: str) -> None:
    act, said, noticed = READ_ALL_THE_SAME[case]
    async with Stage(act) as stage:
        parts = await parts_of(manifest(stage.url))
    assert ending(parts) == Done(0)
    assert answer_of(parts).text == said
    assert notices(parts) == noticed


CHUNKED = head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

# name -> dialect, what the server sends, what the error says
FAILURES: dict[str, tuple[str, Act, str]] = {
    "an empty answer": ("openai", [STREAM], "the answer broke off before its end"),
    "no HTTP": ("openai", [b"hello\r\n\r\n"], "127.0.0.1"),
    "nothing at all": ("openai", [b""], "127.0.0.1"),
    "cut in the middle": ("openai", [CHUNKED, b"99\r\n" + event(DELTA)], "127.0.0.1"),
    "reset": ("openai", [STREAM, event(DELTA), RESET], "127.0.0.1"),
    "an error in the stream": (
        "openai",
        stream(DELTA, {"error": {"message": "out of memory"}}),
        "out of memory",
    ),
    "an error in one piece": ("openai", [whole_answer(200, {"error": "busy"})], "busy"),
    "filtered": (
        "openai",
        stream({"choices": [{"delta": {}, "finish_reason": "content_filter"}]}, "[DONE]"),
        "content filter",
    ),
    "Anthropic's overload": (
        "anthropic",
        stream({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "Overloaded",
    ),
    "Anthropic's without an end": (
        "anthropic",
        [STREAM, *events(messages([Say("It is")], "m", 1))[:-1]],
        "the answer broke off before its end",
    ),
    "Anthropic's refusal": (
        "anthropic",
        stream(
            {"type": "message_delta", "delta": {"stop_reason": "refusal"}}, {"type": "message_stop"}
        ),
        "refused to answer",
    ),
    "Responses without an end": (
        "openai-responses",
        [STREAM, *events(responses([Say("It is")], "m", 1))[:-1]],
        "the answer broke off before its end",
    ),
    "a failed response": (
        "openai-responses",
        stream({"type": "response.failed", "response": {"error": {"message": "server_error"}}}),
        "server_error",
    ),
    "an error of Responses": (
        "openai-responses",
        stream({"type": "error", "message": "too many tokens"}),
        "too many tokens",
    ),
    "a filtered response": (
        "openai-responses",
        stream(
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "content_filter"}},
            }
        ),
        "content filter",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_an_answer_that_fails_is_one_end_with_a_reason(case: str) -> None:
    dialect, act, said = FAILURES[case]
    async with Stage(act) as stage:
        parts = await parts_of(in_dialect(stage.url, dialect))
    assert ending(parts).exit_code == 1
    assert said in ending(parts).error


CUT_SHORT: dict[str, tuple[str, Act]] = {
    "openai": ("openai", stream({"choices": [{"delta": {}, "finish_reason": "length"}]}, "[DONE]")),
    "anthropic": (
        "anthropic",
        stream(
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
            {"type": "message_stop"},
        ),
    ),
    "responses": (
        "openai-responses",
        stream(
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "max_output_tokens"}},
            }
        ),
    ),
}


@pytest.mark.parametrize("case", CUT_SHORT)
async def test_an_answer_that_became_too_long_counts_with_a_remark(case: str) -> None:
    dialect, act = CUT_SHORT[case]
    async with Stage(act) as stage:
        parts = await parts_of(in_dialect(stage.url, dialect))
    assert ending(parts) == Done(0)
    (line,) = notices(parts)
    assert line.startswith("[output] the answer was cut short: ")


async def test_an_answer_past_its_size_is_an_error() -> None:
    async with Stage(stream(*[DELTA] * 1000)) as stage:
        parts = await parts_of(manifest(stage.url), max_stream_bytes=4096)
    assert "4096 bytes; set maxOutputTokens in its manifest" in ending(parts).error


async def test_messages_of_one_response_stand_on_lines_of_their_own() -> None:
    said = responses([Say("first"), Say('{"winner_index": 0}')], "m", 1)
    async with Stage([STREAM, *events(said)]) as stage:
        parts = await parts_of(in_dialect(stage.url, "openai-responses"))
    assert answer_of(parts).text == 'first\n{"winner_index": 0}'


def test_events_are_cut_from_any_pieces_of_the_stream() -> None:
    data = b"data: one\n\n: x\r\n\r\ndata:two\r\ndata: three\r\n\r\ndata: \xe2\x82\xac\n\n"
    for size in range(1, len(data) + 1):
        reading = ServerEvents()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        lines = [line for piece in pieces for line in reading.feed(piece)] + reading.finish()
        assert [line.text for line in lines] == ["one", "two\nthree", "€"]


# -- tokens used -----------------------------------------------------------------------------------

# name -> dialect, events, usage
USED: dict[str, tuple[str, Sequence[object], Usage]] = {
    "a total in each event counts once": (
        "openai",
        [
            {**DELTA, "usage": {"prompt_tokens": 10, "completion_tokens": n}, "model": "m-2026"}
            for n in (1, 2, 3)
        ],
        Usage(10, 3, 0, 0, "m-2026"),
    ),
    "a cache that was read and written": (
        "openai",
        [
            {
                **STOP,
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 1,
                    "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
                },
            }
        ],
        Usage(10, 1, 4, 5, "gpt-5.4"),
    ),
    "Anthropic's parts add up": (
        "anthropic",
        [
            {
                "type": "message_start",
                "message": {
                    "model": "claude-x",
                    "usage": {
                        "input_tokens": 10,
                        "cache_read_input_tokens": 20,
                        "cache_creation_input_tokens": 30,
                        "output_tokens": 1,
                    },
                },
            },
            {"type": "ping"},
            {
                "type": "message_delta",
                "delta": {},
                "usage": {"output_tokens": 7, "input_tokens": None},
            },
            {"type": "message_stop"},
        ],
        Usage(60, 7, 20, 30, "claude-x"),
    ),
    "what is no number counts nothing": (
        "anthropic",
        [
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": "9", "output_tokens": -1}},
            },
            {"type": "message_stop"},
        ],
        Usage(),
    ),
}


@pytest.mark.parametrize("case", USED)
async def test_tokens_are_counted_once(case: str) -> None:
    dialect, said, usage = USED[case]
    async with Stage(stream(*said)) as stage:
        parts = await parts_of(in_dialect(stage.url, dialect))
    assert answer_of(parts).usage == usage


async def test_what_was_read_is_known_before_the_answer_ends() -> None:
    begun = events(messages([Say("It is")], "claude-x", 1))[0]
    async with Stage([STREAM, begun, HANG]) as stage:
        agent = HttpAgent(in_dialect(stage.url, "anthropic"), {})
        async with asyncio.timeout(DEADLINE_S), aclosing(asked(agent, Request("x", "/"))) as parts:
            assert await anext(parts) == Usage(100, 1, 30, 0, "claude-x")


# -- ending it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun", [[], [STREAM], [STREAM, event(DELTA)]], ids=["asked", "head", "text"]
)
async def test_cancelling_closes_the_connection(begun: list[bytes]) -> None:
    async with Stage([*begun, HANG]) as stage:
        asking = asyncio.create_task(parts_of(manifest(stage.url)))
        await eventually_async(lambda: stage.asked)
        async with asyncio.timeout(DEADLINE_S):
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await stage.left.wait()


async def test_a_listener_that_stops_closes_the_connection() -> None:
    async with Stage([STREAM, event(DELTA), HANG]) as stage, asyncio.timeout(DEADLINE_S):
        async with aclosing(asked(HttpAgent(manifest(stage.url), {}), Request("x", "/"))) as parts:
            assert await anext(parts) == Text("It is DONE")
        await stage.left.wait()


SILENCE: dict[str, tuple[str, Act]] = {
    "no head": ("openai", [HANG]),
    "no body": ("openai", [STREAM, HANG]),
    "no more text": ("openai", [STREAM, event(DELTA), HANG]),
    "an error without its body": ("openai", [head(500, {"content-length": "9"}), HANG]),
    "a comment": ("openai", [STREAM, b": alive\n\n", HANG]),
    "a ping": ("anthropic", [STREAM, event({"type": "ping"}), HANG]),
}


@pytest.mark.parametrize("case", SILENCE)
async def test_one_that_says_nothing_is_stalled_and_the_connection_closed(case: str) -> None:
    dialect, act = SILENCE[case]
    request = Request("x", "/", idle_timeout_ms=150)
    async with Stage(act) as stage, asyncio.timeout(DEADLINE_S):
        parts = await parts_of(in_dialect(stage.url, dialect), request)
        await stage.left.wait()
    assert ending(parts) == Done(None, error="stalled: no output for 150 ms")


def a_moment() -> Callable[[], bool]:
    """True when it is asked the second time."""
    answers = iter((False, True))
    return lambda: next(answers)


@pytest.mark.parametrize("sign", [event({"type": "ping"}), b": alive\n\n"], ids=["ping", "comment"])
async def test_signs_of_life_alone_are_no_words(sign: bytes) -> None:
    heartbeats = [move for _ in range(150) for move in (sign, a_moment())]
    request = Request("x", "/", idle_timeout_ms=300)
    async with Stage([STREAM, *heartbeats, *events(messages([Say("late")], "m", 1))]) as stage:
        parts = await parts_of(in_dialect(stage.url, "anthropic"), request)
    assert ending(parts) == Done(None, error="stalled: no output for 300 ms")


async def test_an_answer_that_comes_slowly_is_not_stalled() -> None:
    slowly = [move for _ in range(20) for move in (event(DELTA), a_moment())]
    request = Request("x", "/", idle_timeout_ms=5_000)
    async with Stage([STREAM, *slowly, event("[DONE]")]) as stage:
        parts = await parts_of(manifest(stage.url), request)
    assert ending(parts) == Done(0)
    assert answer_of(parts).text == "It is DONE" * 20


@pytest.mark.parametrize("drop", [b": alive\n\n", event(DELTA), b"x"], ids=["sign", "word", "byte"])
async def test_an_answer_that_never_ends_is_ended_by_the_operators_limit(drop: bytes) -> None:
    dripping = [move for _ in range(3_000) for move in (drop, a_moment())]
    async with Stage([STREAM, *dripping, HANG]) as stage, asyncio.timeout(DEADLINE_S):
        agent = HttpAgent(manifest(stage.url), {}, max_call_ms=300)
        async with aclosing(asked(agent, Request("x", "/", idle_timeout_ms=60_000))) as answer:
            parts = [part async for part in answer]
        await stage.left.wait()
    assert "longer than 300 ms, the operator's limit" in ending(parts).error
    assert Cost(None) in parts


# -- which models there are ------------------------------------------------------------------------

LISTED = {"object": "list", "data": [{"id": "a", "display_name": "A"}, {"id": "b"}, {"id": 3}, 4]}


async def test_the_models_are_listed_as_the_server_tells_them() -> None:
    async with Stage([whole_answer(200, LISTED)]) as stage:
        provider = manifest(
            stage.url, profilesEndpoint="/models", auth={"type": "bearer", "token": KEY}
        )
        offer = await list_profiles(provider, {})
    assert [(one.id, one.label) for one in offer.profiles] == [("a", "A"), ("b", None)]
    assert offer.source == "live"
    assert (stage.asked[0].path, stage.asked[0].headers["authorization"]) == (
        "/v1/models",
        f"Bearer {KEY}",
    )


UNLISTED: dict[str, tuple[Act, str]] = {
    "an error": (refusal(500, KEY), "answered 500 when asked for its models"),
    "no JSON": (refusal(200, "hello"), "lists no models at '/models'"),
    "another shape": (refusal(200, {"models": ["a"]}), "lists no models"),
    "names that are none": (refusal(200, {"data": [{"id": "\x1b[2J"}, {"id": ""}]}), "lists no"),
    "cut": ([head(200, {"content-length": "99"}), b"{"], "its models cannot be listed"),
}


@pytest.mark.parametrize("case", UNLISTED)
async def test_a_server_that_lists_nothing_leaves_the_manifests_list(case: str) -> None:
    act, reason = UNLISTED[case]
    async with Stage(act) as stage:
        auth = {"type": "bearer", "token": KEY}
        bare = manifest(stage.url, profilesEndpoint="/models", auth=auth)
        with pytest.raises(StepError, match=reason) as raised:
            await list_profiles(bare, {})
        assert KEY not in str(raised.value)
        listing = manifest(stage.url, profilesEndpoint="/models", profiles=[{"id": "small"}])
        offer = await list_profiles(listing, {})
    assert ([one.id for one in offer.profiles], offer.source) == (["small"], "static")


# -- the manifests that come with infloop ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"),
    [("anthropic-api", "ANTHROPIC_API_KEY"), ("openai-api", "OPENAI_API_KEY")],
)
def test_the_apis_that_come_with_infloop_need_a_key_alone_and_have_prices(
    name: str, variable: str
) -> None:
    provider, problems = parse_provider((SHIPPED_DIR / f"{name}.json").read_bytes())
    assert problems == []
    assert isinstance(provider, HttpProvider)
    assert provider.auth is not None
    assert provider.auth.env_var == variable
    assert provider.default_profile in [profile.id for profile in provider.profiles]
    assert provider.base_url.startswith("https://")
    prices = PriceList(address=provider.base_url)
    for profile in provider.profiles:
        assert prices.price_usd(Usage(1000, 1000), [profile.id])


# -- in a run --------------------------------------------------------------------------------------


def offer(folder: Path, url: str, **changes: Any) -> None:
    """Put a manifest for a server into the providers folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = manifest(url, auth={"type": "bearer", "envVar": "THE_KEY"}, **changes)
    (folder / "local.json").write_text(json.dumps(written.to_json()))


def flow(*nodes: dict[str, Any]) -> dict[str, Any]:
    """Nodes one after the other."""
    names = ["start", *(node["id"] for node in nodes)]
    edges = [{"source": a, "sourceHandle": "next", "target": b} for a, b in pairwise(names)]
    return {
        "id": "asking",
        "name": "ApprovalRequests",
        "nodes": [{"id": "start", "type": "start"}, *nodes],
        "edges": edges,
    }


AGENT: dict[str, Any] = {
    "id": "a",
    "type": "agent",
    "config": {"providerId": "local", "prompt": "Say DONE"},
}
JUDGE: dict[str, Any] = {
    "id": "j",
    "type": "judge",
    "config": {
        "providerId": "local",
        "criteria": "short",
        "candidates": ["x", "yy"],
        "model": "j1",
    },
}
CONDITION = {
    "id": "c",
    "type": "condition",
    "config": {
        "kind": "judge",
        "against": "DONE",
        "judge": {"rubric": "says DONE", "providerId": "local"},
    },
}
VERDICT = '{"winner_index": 1, "scores": [3, 8], "reasoning": "shorter"}'


async def test_agents_judges_and_conditions_work_with_an_api_and_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    acts = [speaking("openai", said) for said in ("It is DONE", VERDICT, "MET\nbecause it does")]
    async with Stage(*acts) as stage, world(tmp_path) as here:
        offer(here.settings.providers, stage.url, priceList="openai")
        # An API works in no directory, so these mean nothing to it.
        elsewhere = {**AGENT["config"], "cwd": "/nowhere/at/all", "useWorktree": True}
        run = await here.run(flow({**AGENT, "config": elsewhere}, JUDGE, CONDITION))
    assert run.status == "succeeded"
    assert "worktreePath" not in run.scope["a"]
    assert run.scope["a"]["stdout"] == run.scope["a"]["result"] == "It is DONE"
    assert run.scope["a"]["tokens"] == {"input": 100, "output": 20, "cached": 30}
    assert run.scope["a"]["costUsd"] == pytest.approx((70 * 2.5 + 30 * 0.25 + 20 * 15) / 1e6)
    assert run.scope["j"]["winner"] == "yy"
    assert run.scope["c"]["met"] is True
    assert [request.body["model"] for request in stage.asked] == ["gpt-5.4", "j1", "gpt-5.4"]


async def test_the_key_is_in_nothing_that_a_run_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    acts = [refusal(401, {"error": {"message": f"wrong: {KEY}"}}), stream(KEY, DELTA, "[DONE]")]
    async with Stage(*acts) as stage, world(tmp_path) as here:
        offer(here.settings.providers, stage.url)
        failed = await here.run(flow(AGENT))
        heard = await here.run(flow(AGENT))
    assert "check the token in the variable THE_KEY" in failed.result.error
    assert heard.status == "succeeded"
    assert KEY not in f"{failed.recorded} {heard.recorded}"
    left = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert left
    assert [path for path in left if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(("strict", "status"), [(False, "succeeded"), (True, "failed")])
async def test_a_model_without_a_price_has_an_unknown_cost_which_can_be_refused(
    strict: bool, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    async with (
        Stage(speaking("openai")) as stage,
        world(tmp_path, require_known_cost=strict) as here,
    ):
        offer(here.settings.providers, stage.url)
        run = await here.run(flow(AGENT))
        spent = await here.settled(1)
    assert run.status == status
    assert "costUsd" not in run.scope.get("a", {})
    assert (spent.calls, spent.unknown, spent.usd) == (1, 1, 0.0)
    assert spent.input_tokens == 100
    assert ("INFLOOP_REQUIRE_KNOWN_COST" in run.result.error) == strict


async def test_an_answer_that_broke_off_is_on_the_books_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    begun = events(messages([Say("It is")], "claude-sonnet-5-5", 1))[:3]
    async with Stage([STREAM, *begun]) as stage, world(tmp_path) as here:
        offer(
            here.settings.providers,
            stage.url,
            priceList="anthropic",
            dialect="anthropic",
            endpoint="/messages",
        )
        run = await here.run(flow(AGENT))
        spent = await here.settled(1)
    assert run.status == "failed"
    assert spent.usd > 0
    assert (spent.calls, spent.unknown) == (1, 1)


# -- under a limit on cost -------------------------------------------------------------------------

HELD_USD = 128_000 * 15 / 1e6
"""The longest answer of gpt-5.4; the prompt is less than a hundredth of it."""


def together(*nodes: dict[str, Any]) -> dict[str, Any]:
    parallel = {"id": "p", "type": "parallel", "config": {}, "children": list(nodes)}
    return flow(parallel)


@pytest.mark.parametrize("kind", ["agent", "judge"])
async def test_calls_of_an_api_hold_their_highest_cost_against_one_limit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    say = "It is DONE" if kind == "agent" else VERDICT
    node = AGENT if kind == "agent" else {**JUDGE, "config": {**JUDGE["config"], "model": ""}}
    go = asyncio.Event()
    act: Act = [go.is_set, *speaking("openai", say)]
    async with Stage(act) as stage, world(tmp_path, max_run_cost_usd=HELD_USD * 2.5) as here:
        offer(here.settings.providers, stage.url, priceList="openai")
        steps = [{**node, "id": f"n{each}"} for each in range(8)]
        run_id = await here.start(together(*steps))
        await eventually_async(lambda: len(stage.asked) == 3)
        spent = await here.service.store.ledger.total()
        assert spent.usd == 0.0
        go.set()
        run = await here.finish(run_id)
        spent = await here.settled(8)
    assert run.status == "succeeded", run.result
    assert (len(stage.asked), spent.incomplete) == (8, 0)
    assert spent.usd < 0.01, "the rest was released"


CUT_OFF: dict[str, tuple[Act, float, float]] = {
    "it hangs": ([HANG], HELD_USD, HELD_USD * 1.01),
    "it hangs in its answer": ([STREAM, event(DELTA), HANG], HELD_USD, HELD_USD * 1.01),
    "it breaks off": ([STREAM, event(DELTA), RESET], HELD_USD, HELD_USD * 1.01),
    "it refuses": (refusal(400, {"error": "no"}), 0.0, 0.0),
}


@pytest.mark.parametrize("case", CUT_OFF)
async def test_a_call_without_usage_costs_the_most_that_it_can_have_cost(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    act, least, most = CUT_OFF[case]
    node = {**AGENT, "config": {**AGENT["config"], "timeoutMs": 500}}
    async with Stage(act) as stage, world(tmp_path, max_run_cost_usd=50.0) as here:
        offer(here.settings.providers, stage.url, priceList="openai")
        await here.run(flow(node))
        spent = await here.settled(1)
    assert least <= spent.usd <= most


@pytest.mark.parametrize(("usd_per_mtok", "asked"), [(2_000.0, 2), (0.0, 4)])
async def test_a_model_without_a_price_has_the_price_that_the_operator_set(
    usd_per_mtok: float, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    settings = {"max_run_cost_usd": 0.4, "unpriced_usd_per_mtok": usd_per_mtok}
    async with Stage(speaking("openai")) as stage, world(tmp_path, **settings) as here:
        offer(here.settings.providers, stage.url)
        run = await here.run(flow(*({**AGENT, "id": f"a{each}"} for each in range(4))))
        spent = await here.settled(asked)
    assert len(stage.asked) == asked, "each uses 120 tokens"
    assert spent.usd == pytest.approx(asked * 120 * usd_per_mtok / 1e6)
    assert (run.status, spent.unknown) == ("failed" if usd_per_mtok else "succeeded", asked)
