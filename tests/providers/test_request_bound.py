"""The most that a request can use, against bodies that try to look small."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infloop.model.provider import DialectName
from infloop.providers.base import Usage
from infloop.providers.prices import Estimator, PriceList
from infloop.providers.request_bound import (
    MAX_CHOICES,
    MAX_INPUT_TOKENS,
    MAX_OUTPUT_TOKENS,
    TOOL_ROUNDS,
    RequestBound,
    UnboundedRequest,
    request_bound,
)

TEXT = [{"role": "user", "content": "hello"}]


def bound(dialect: DialectName, *, text: str | None = None, **fields: Any) -> RequestBound:
    return request_bound(dialect, (json.dumps(fields) if text is None else text).encode())


LENGTHS: list[tuple[DialectName, dict[str, Any], int]] = [
    ("anthropic", {"max_tokens": 500}, 500),
    ("anthropic", {"max_tokens": 1e3}, 1_000),
    ("anthropic", {"max_tokens": 500, "max_output_tokens": 1}, 500),
    ("anthropic", {"max_output_tokens": 1}, MAX_OUTPUT_TOKENS),
    ("anthropic", {"max_tokens": 500, "thinking": {"budget_tokens": 9_000}}, 9_000),
    ("anthropic", {"max_tokens": 500, "thinking": {"type": "adaptive"}}, 500),
    ("anthropic", {"max_tokens": 500, "n": 9}, 500),
    ("anthropic", {"max_tokens": 10**9}, MAX_INPUT_TOKENS),
    ("openai", {"max_tokens": 500}, 500),
    ("openai", {"max_completion_tokens": 500}, 500),
    ("openai", {"max_tokens": 1, "max_completion_tokens": 500}, 500),
    ("openai", {"max_output_tokens": 1}, MAX_OUTPUT_TOKENS),
    ("openai", {"max_tokens": 500, "n": 7}, 3_500),
    ("openai", {"max_tokens": 500, "n": 6.5}, 3_500),
    ("openai", {"max_tokens": 500, "n": "7"}, 500 * MAX_CHOICES),
    ("openai", {"max_tokens": 500, "n": 10**9}, 500 * MAX_CHOICES),
    ("openai", {"max_tokens": 500, "n": None}, 500),
    ("openai-responses", {"max_output_tokens": 500}, 500),
    ("openai-responses", {"max_tokens": 1}, MAX_OUTPUT_TOKENS),
    ("openai-responses", {"max_completion_tokens": 1}, MAX_OUTPUT_TOKENS),
    *(
        ("anthropic", {"max_tokens": value}, MAX_OUTPUT_TOKENS)
        for value in (None, 0, -5, "500", True, [500], {"a": 1})
    ),
]


@pytest.mark.parametrize(("dialect", "fields", "tokens"), LENGTHS)
def test_an_answer_is_as_long_as_its_api_allows(
    dialect: DialectName, fields: dict[str, Any], tokens: int
) -> None:
    assert bound(dialect, messages=TEXT, **fields).output_tokens == tokens


def test_a_text_has_at_most_as_many_tokens_as_bytes() -> None:
    text = "ein Text mit Umlauten: äöü \N{CJK UNIFIED IDEOGRAPH-4E2D} \N{PILE OF POO}"
    found = bound("anthropic", messages=[{"role": "user", "content": text}])
    assert len(text.encode()) < found.input_tokens <= len(json.dumps(text)) + 60
    assert not found.rereads
    assert found.price_times == 1


def blocks(*content: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


IMAGE = {"type": "image", "source": {"type": "base64", "data": "A" * 900_000}}
UNSIZED: dict[str, dict[str, Any]] = {
    "a document": blocks({"type": "document", "source": {"data": "JVBERi0"}}),
    "in a result": blocks({"type": "tool_result", "content": [{"type": "document"}]}),
    "an unknown kind": blocks({"type": "video_url", "video_url": "https://x.test"}),
    "a file": {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
    "a stored item": {"input": [{"type": "item_reference", "id": "msg_1"}]},
    "a stored answer": {"input": "go on", "previous_response_id": "resp_1"},
    "a conversation": {"input": "go on", "conversation": "conv_1"},
    "a stored prompt": {"prompt": {"id": "pmpt_1"}},
    "an unknown field": {"messages": TEXT, "more_context": "stored-1"},
    "in the system prompt": {"system": [{"type": "document"}], "messages": TEXT},
    "a kind that is no text": blocks({"type": 5}),
    "strings for blocks": {"messages": [{"role": "user", "content": ["a", "b"]}]},
    "nested": blocks(
        {"type": "tool_result", "content": [{"type": "tool_result", "content": [
            {"type": "tool_result", "content": [{"type": "text", "text": "x"}]}]}]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSIZED)
def test_what_is_not_in_the_body_has_the_size_of_the_largest_context(case: str) -> None:
    dialect: DialectName = "openai-responses" if "input" in UNSIZED[case] else "anthropic"
    assert bound(dialect, **UNSIZED[case]).input_tokens == MAX_INPUT_TOKENS


@pytest.mark.parametrize(
    ("dialect", "fields", "images"),
    [
        ("anthropic", blocks(IMAGE), 1),
        ("anthropic", blocks({"type": "image", "source": {"type": "url", "url": "x"}}), 1),
        ("anthropic", blocks({"type": "tool_result", "content": [IMAGE, IMAGE]}), 2),
        ("openai", blocks({"type": "image_url", "image_url": {"url": "data:," + "A" * 9_000}}), 1),
        (
            "openai-responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            1,
        ),
        (
            "openai-responses",
            {"input": [{"type": "function_call_output", "output": [
                {"type": "input_image", "image_url": "data:,A"}]}]},
            1,
        ),
    ],
)  # fmt: skip
def test_an_image_counts_as_an_image_and_not_as_text(
    dialect: DialectName, fields: dict[str, Any], images: int
) -> None:
    most = images * (5_000 if dialect == "anthropic" else 50_000)
    assert most < bound(dialect, **fields).input_tokens < most + 200


REREADING: list[tuple[DialectName, dict[str, Any], bool]] = [
    ("anthropic", {"tools": [{"name": "Bash", "input_schema": {"type": "object"}}]}, False),
    ("anthropic", {"tools": [{"type": "custom", "name": "x"}]}, False),
    ("anthropic", {"tools": [{"type": "text_editor_20250728", "name": "e"}]}, False),
    ("anthropic", {"tools": [{"type": "web_search_20250305", "name": "w"}]}, True),
    ("anthropic", {"tools": [{"type": "code_execution_20250825", "name": "c"}]}, True),
    ("anthropic", {"tools": [{"type": "advisor_20260301", "model": "claude-opus-4-8"}]}, True),
    ("anthropic", {"tools": [{"type": 5}]}, True),
    ("anthropic", {"tools": "all"}, True),
    ("anthropic", {"mcp_servers": [{"url": "https://x.test"}]}, True),
    ("anthropic", {"container": "c_1"}, True),
    ("anthropic", {"context_management": {"edits": [{"type": "clear_thinking_1"}]}}, False),
    ("anthropic", {"context_management": {"edits": [{"type": "compact_20260112"}]}}, True),
    ("anthropic", {"context_management": "x"}, True),
    ("openai", {"tools": [{"type": "function", "function": {}}]}, False),
    ("openai", {"web_search_options": {}}, True),
    ("openai-responses", {"tools": [{"type": "web_search"}]}, True),
    ("openai-responses", {"tools": [{"type": "image_generation"}]}, True),
    ("openai-responses", {"tools": [{"type": "mcp", "server_url": "x"}]}, True),
    ("openai-responses", {"tools": [{"type": "local_shell"}, {"type": "apply_patch"}]}, False),
]


@pytest.mark.parametrize(("dialect", "fields", "rereads"), REREADING)
def test_with_tools_of_the_api_the_input_is_read_several_times(
    dialect: DialectName, fields: dict[str, Any], rereads: bool
) -> None:
    found = bound(dialect, messages=TEXT, **fields)
    size = len(json.dumps({"messages": TEXT, **fields}, separators=(",", ":")))
    assert found.rereads == rereads
    assert found.input_tokens >= size * (TOOL_ROUNDS if rereads else 1)


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({}, 1),
        ({"speed": "standard", "service_tier": "auto", "inference_geo": "global"}, 1),
        ({"service_tier": "flex"}, 1),
        ({"service_tier": None, "speed": None}, 1),
        ({"speed": "fast"}, 6),
        ({"speed": ["fast"]}, 6),
        ({"service_tier": "priority"}, 2.5),
        ({"service_tier": "a-new-one"}, 2.5),
        ({"speed": "fast", "inference_geo": "us"}, 6.6),
    ],
)
def test_what_is_dearer_than_the_list_counts_as_dearer(
    fields: dict[str, Any], times: float
) -> None:
    assert bound("anthropic", messages=TEXT, **fields).price_times == pytest.approx(times)


TWICE = '{"model":"a","max_tokens":1,"messages":[],"max_tokens":9000,"model":"b"}'


def test_a_field_that_is_named_twice_is_sent_as_it_was_counted() -> None:
    found = bound("anthropic", text=TWICE)
    assert (found.model, found.output_tokens) == ("b", 9_000)
    assert found.body.count(b"max_tokens") == 1
    assert json.loads(found.body) == {"model": "b", "max_tokens": 9_000, "messages": []}


def test_escapes_hide_no_field_and_no_kind_of_content() -> None:
    assert bound("anthropic", text=r'{"\u006dax_tokens":9000}').output_tokens == 9_000
    hidden = r'{"messages":[{"content":[{"\u0074ype":"\u0064ocument"}]}]}'
    assert bound("anthropic", text=hidden).input_tokens == MAX_INPUT_TOKENS


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", '"x"', "1", "{", "{}{}", '{"a":NaN}', "{'a':1}", "\ufeff{}",
        '{"modalities":["audio"]}', '{"audio":{}}',
        '{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}',
        '{"messages":[{"role":"assistant","audio":{"id":"a"}}]}',
        "{" + '"a":{},' * 300_000 + '"b":1}',
        '{"messages":' + "[" * 200_000,
    ],
)  # fmt: skip
def test_what_has_no_bound_is_refused(text: str) -> None:
    with pytest.raises(UnboundedRequest):
        bound("anthropic", text=text)


def test_the_dearest_price_counts_and_a_model_without_one_has_the_operators() -> None:
    prices = Estimator(PriceList("anthropic"), 100.0)
    known = RequestBound("claude-opus-4-8", 1_000_000, 1_000_000)
    assert prices.highest_price_usd(known) == pytest.approx(10 + 25), "written to the cache"
    written = Usage(1_000_000, 0, 0, 1_000_000, "claude-opus-4-8", 1_000_000)
    assert prices.price_usd(written, known) == pytest.approx(10)
    assert prices.highest_price_usd(RequestBound("x", 500_000, 500_000, 2.0)) == 200.0
