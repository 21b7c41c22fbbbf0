"""`a2a_discover` and `a2a_send`, through the gate, against agents on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from infloop.model.agent_config import EgressRule
from infloop.policy.egress_rules import REFUSAL
from support.egress_proxy import Serve, answer_ok, far_side, read_request
from support.tools import Person
from support.web_tools import answers, redirects, web_bench

CARD = {
    "name": "Weather",
    "supportedInterfaces": [
        {"url": "https://far.test/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "https://far.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ],
}
OLD_CARD = {"name": "Older", "url": "https://far.test/", "protocolVersion": "0.3.0"}
TASK = {"task": {"id": "t1", "status": {"state": "TASK_STATE_COMPLETED"}}}


class Agent:
    """An agent that answers by path and by method, and remembers what it heard."""

    def __init__(self, pages: dict[str, Any], results: dict[str, Any] | None = None) -> None:
        self.pages = pages
        self.results = results or {}
        self.heard: list[tuple[str, Any]] = []
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        method, path, _ = head.decode().split(" ", 2)
        call: Any = json.loads(body) if body else None
        self.heads.append(head.decode())
        self.heard.append((path, call))
        if method == "POST":
            unknown = {"error": {"code": -32601, "message": "no such method"}}
            answer: Any = {"jsonrpc": "2.0", "id": 1, **self.results.get(call["method"], unknown)}
            status = 200
        else:
            answer, status = self.pages.get(path), 200 if path in self.pages else 404
        data = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n" % (status, len(data)) + data)


async def test_the_card_is_found_at_its_path_whatever_the_url_says() -> None:
    agent = Agent({"/.well-known/agent-card.json": CARD})
    async with far_side(agent) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/some/where?x=1"
        result = await bench.call("a2a_discover", url=url, allow_private=True)
    assert json.loads(result.text) == {
        "interfaces": [{"url": "https://far.test/rpc", "version": "1.0"}],
        "card": CARD,
    }
    assert [path for path, _ in agent.heard] == ["/.well-known/agent-card.json"]


async def test_an_older_agent_has_its_card_elsewhere() -> None:
    agent = Agent({"/.well-known/agent.json": OLD_CARD})
    async with far_side(agent) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/"
        result = await bench.call("a2a_discover", url=url, allow_private=True)
    assert json.loads(result.text)["interfaces"] == [
        {"url": "https://far.test/", "version": "0.3.0"}
    ]


async def test_a_message_is_sent_as_version_1_has_it() -> None:
    agent = Agent({}, {"SendMessage": {"result": TASK}})
    async with far_side(agent) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/rpc"
        result = await bench.call(
            "a2a_send", url=url, message="hello", context_id="c1", allow_private=True
        )
    assert json.loads(result.text) == TASK
    ((path, call),) = agent.heard
    assert (path, call["method"]) == ("/rpc", "SendMessage")
    message = call["params"]["message"]
    assert message.pop("messageId")
    assert message == {"role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "c1"}
    assert "\r\na2a-version: 1.0\r\n" in agent.heads[0]


async def test_an_agent_that_does_not_know_the_method_is_asked_as_version_0_3_has_it() -> None:
    agent = Agent({}, {"message/send": {"result": {"kind": "task", "id": "t1"}}})
    async with far_side(agent) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/"
        result = await bench.call("a2a_send", url=url, message="hello", allow_private=True)
    assert json.loads(result.text) == {"kind": "task", "id": "t1"}
    assert [call["method"] for _, call in agent.heard] == ["SendMessage", "message/send"]
    message = agent.heard[1][1]["params"]["message"]
    assert (message["role"], message["parts"]) == ("user", [{"kind": "text", "text": "hello"}])


async def test_sending_is_asked_for_and_discovering_is_not() -> None:
    async with far_side(answer_ok) as far, web_bench(person=Person(allows=False)) as bench:
        url = f"http://far.test:{far.port}/"
        assert (await bench.call("a2a_send", url=url, message="x")).code == "denied"
        assert len(bench.person.questions) == 1
        assert (await bench.call("a2a_discover", url=url)).code == "network-refused"
        assert len(bench.person.questions) == 1
        assert far.untouched


@pytest.mark.claim("L19")
@pytest.mark.parametrize(
    ("tool", "arguments", "rule", "detail"),
    [
        ("a2a_discover", {}, {"tool": "web_fetch"}, "tool a2a_discover"),
        ("a2a_discover", {}, {"path_prefix": "/rpc"}, "path '/.well-known/agent-card.json'"),
        ("a2a_discover", {}, {"methods": ("POST",)}, "method GET"),
        ("a2a_discover", {}, {"host": "other.test"}, "host far.test"),
        ("a2a_send", {"message": "x"}, {"tool": "a2a_discover"}, "tool a2a_send"),
        ("a2a_send", {"message": "x"}, {"path_prefix": "/rpc-2"}, "path '/rpc'"),
        ("a2a_send", {"message": "x"}, {"methods": ("GET",)}, "method POST"),
        ("a2a_send", {"message": "x"}, {"host": "other.test"}, "host far.test"),
    ],
)
async def test_the_rules_hold_for_agents(
    tool: str, arguments: dict[str, object], rule: dict[str, object], detail: str
) -> None:
    async with far_side(answer_ok) as far:
        fields: dict[str, object] = {"host": "far.test", "schemes": ("http",), "ports": (far.port,)}
        rules = [EgressRule(**(fields | rule))]  # type: ignore[arg-type]
        url = f"http://far.test:{far.port}/rpc"
        async with web_bench(rules) as bench:
            result = await bench.call(tool, url=url, allow_private=True, **arguments)
            assert (result.code, result.text) == ("egress-refused", REFUSAL)
            assert f"no egress rule for {detail}" in str(bench.detail)
        assert far.untouched


@pytest.mark.claim("L19")
async def test_what_a_rule_allows_reaches_the_agent() -> None:
    agent = Agent({"/.well-known/agent-card.json": CARD}, {"SendMessage": {"result": TASK}})
    async with far_side(agent) as far:
        where: dict[str, Any] = {"host": "far.test", "schemes": ("http",), "ports": (far.port,)}
        rules = [
            EgressRule(tool="a2a_discover", path_prefix="/.well-known", methods=("GET",), **where),
            EgressRule(tool="a2a_send", path_prefix="/rpc", methods=("POST",), **where),
        ]
        async with web_bench(rules) as bench:
            url = f"http://far.test:{far.port}/rpc"
            assert not (await bench.call("a2a_discover", url=url, allow_private=True)).code
            sent = await bench.call("a2a_send", url=url, message="x", allow_private=True)
            assert not sent.code


@pytest.mark.parametrize("tool", ["a2a_discover", "a2a_send"])
@pytest.mark.parametrize(
    "url", ["http://user@far.test/", "file:///etc/passwd", "http://127.1/", "http://far.test\n/"]
)
async def test_urls_are_as_strict_as_those_of_pages(tool: str, url: str) -> None:
    async with web_bench() as bench:
        arguments = {"message": "x"} if tool == "a2a_send" else {}
        assert (await bench.call(tool, url=url, **arguments)).code == "bad-url"


@pytest.mark.parametrize(
    ("tool", "serve", "code"),
    [
        ("a2a_discover", answers(b"[]"), "a2a-failed"),
        ("a2a_discover", answers(b"<html>"), "a2a-failed"),
        ("a2a_discover", answers(b"{}", status=500), "a2a-failed"),
        ("a2a_discover", answers(b'{"a": "' + b"x" * 300_000 + b'"}'), "a2a-failed"),
        ("a2a_discover", redirects("http://169.254.169.254/"), "network-refused"),
        ("a2a_send", answers(b"not JSON"), "a2a-failed"),
        ("a2a_send", answers(b"[" * 100_000), "a2a-failed"),
        ("a2a_send", answers(b'{"jsonrpc": "2.0", "id": 1}'), "a2a-failed"),
        ("a2a_send", answers(b'{"error": {"code": -32000, "message": "no"}}'), "a2a-failed"),
        ("a2a_send", answers(b'{"result": "' + b"x" * 300_000 + b'"}'), "a2a-failed"),
        ("a2a_send", redirects("http://169.254.169.254/", status=307), "a2a-failed"),
    ],
)
async def test_a_strange_answer_is_an_error(tool: str, serve: Serve, code: str) -> None:
    async with far_side(serve) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/"
        arguments = {"message": "x"} if tool == "a2a_send" else {}
        result = await bench.call(tool, url=url, allow_private=True, **arguments)
        assert result.code == code
        assert len(result.text) < 1000
