"""`web_search`, through the gate, against a search engine on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from infloop.model.agent_config import AgentConfig, EgressRule
from infloop.tools.web.search import SearchEndpoint
from support.egress_proxy import answer_ok, far_side, read_request
from support.web_tools import answers, redirects, web_bench

ONE = {"title": "A page", "url": "https://page.test/", "content": "about it"}
FOUND = [{"title": "A page", "url": "https://page.test/", "snippet": "about it"}]


def engine(port: int, **more: str) -> SearchEndpoint:
    return SearchEndpoint(f"http://127.0.0.1:{port}/search?format=json&q={{query}}", **more)


@pytest.mark.parametrize(
    "answer",
    [
        {"results": [ONE, "junk", {"title": "no URL"}]},
        {"web": {"results": [{"title": "A page", "url": ONE["url"], "description": "about it"}]}},
        {"items": [{"title": "A page", "link": ONE["url"], "snippet": "about it"}]},
        {"data": [ONE]},
        [ONE],
    ],
)
async def test_results_are_found_in_the_answers_of_the_usual_engines(answer: Any) -> None:
    body = json.dumps(answer).encode()
    async with far_side(answers(body)) as far, web_bench(search=engine(far.port)) as bench:
        result = await bench.call("web_search", query="x")
    assert json.loads(result.text) == FOUND


async def test_the_query_is_encoded_and_the_key_is_sent_in_its_header() -> None:
    heard: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await read_request(reader))[0].decode())
        body = json.dumps([ONE] * 9).encode()
        writer.write(b"HTTP/1.1 200 x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async with far_side(serve) as far:
        for endpoint in (
            engine(far.port, key="key-1"),
            engine(far.port, key="key-2", key_header="X-Subscription-Token"),
        ):
            async with web_bench(search=endpoint) as bench:
                result = await bench.call("web_search", query="a&b=ü #?/", count=2)
                assert len(json.loads(result.text)) == 2
            assert "key-" not in repr(endpoint)
    assert heard[0].startswith("GET /search?format=json&q=a%26b%3D%C3%BC%20%23%3F%2F HTTP/1.1\r\n")
    assert "\r\nauthorization: Bearer key-1\r\n" in heard[0]
    assert "\r\nx-subscription-token: key-2\r\n" in heard[1]
    assert "authorization" not in heard[1]


async def test_without_an_engine_the_refusal_says_what_to_configure() -> None:
    async with web_bench() as bench:
        result = await bench.call("web_search", query="x")
    assert result.code == "not-configured"
    assert "`search_url` in [agent]" in result.text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"<html>", 200, "search-failed"),
        (b"{}", 503, "search-failed"),
        (b"{}", 200, "no-results"),
        (b'{"results": {}}', 200, "no-results"),
        (b"[" * 100_000, 200, "search-failed"),
    ],
)
async def test_an_answer_without_results_is_an_error(body: bytes, status: int, code: str) -> None:
    async with (
        far_side(answers(body, status=status)) as far,
        web_bench(search=engine(far.port)) as bench,
    ):
        assert (await bench.call("web_search", query="x")).code == code


async def test_the_key_is_not_carried_to_where_the_engine_redirects() -> None:
    async with (
        far_side(answer_ok) as other,
        far_side(redirects(f"http://127.0.0.1:{other.port}/")) as far,
        web_bench(search=engine(far.port, key="key-1")) as bench,
    ):
        assert (await bench.call("web_search", query="x")).code == "search-failed"
        assert other.untouched


async def test_the_rules_hold_for_the_engine_too() -> None:
    async with far_side(answer_ok) as far:
        rule = EgressRule(host="elsewhere.test")
        async with web_bench([rule], search=engine(far.port)) as bench:
            assert (await bench.call("web_search", query="x")).code == "egress-refused"
        assert far.untouched


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://engine.test/", r"has no \{query}"),
        ("https://{query}.test/", "does not begin"),
        ("https://engine.test{query}", "does not begin"),
        ("https://user:word@engine.test/{query}", "does not begin"),
        ("file:///{query}", "does not begin"),
    ],
)
def test_an_address_in_which_a_query_could_choose_the_host_is_an_error(
    url: str, message: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"agent": {"search_url": url}}, AgentConfig)
