"""The credential broker: calls of children, real sockets, a provider that is played on loopback."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from infloop.egress.broker import Account, Broker
from infloop.egress.key_redaction import KeyRedactor
from infloop.egress.limits import ProxyLimits
from infloop.errors import SettingsError
from infloop.policy.routes import Dialect, Route
from infloop.providers.base import Usage
from support.egress_broker import KEY, Books, Provider, World, brokered
from support.egress_proxy import (
    PATIENCE_S,
    TOKEN,
    far_side,
    read_request,
    running_proxy,
)
from support.eventually import eventually_async


async def test_a_call_with_the_runs_token_is_made_with_the_key() -> None:
    async with brokered() as world:
        status, body = await world.call("/broker/claude/v1/messages?beta=true", body=b'{"a":1}')
        assert (status, body) == (200, b'{"ok":true}')
        await eventually_async(lambda: world.run.ended)
    ((head, sent),) = world.provider.heard
    assert head.startswith(b"POST /v1/messages?beta=true HTTP/1.1\r\n")
    assert sent == b'{"a":1}'
    fields = world.provider.fields()
    assert fields["x-api-key"] == KEY
    assert TOKEN not in head.decode()
    (decision,) = world.run.decisions
    assert (decision.kind, decision.verdict) == ("broker", "allowed")
    assert decision.reason == "a call of provider 'claude'"
    assert decision.rule == "POST /v1/messages"
    assert (world.run.ended[0].sent, world.run.ended[0].received) == (7, 11)
    assert KEY not in repr(world.run.decisions) + repr(world.run.ended)


async def test_the_token_and_the_key_may_be_bearers() -> None:
    async with brokered(dialect="openai", key_field="bearer", base_path="/api") as world:
        path = "/broker/claude/v1/chat/completions"
        status, _ = await world.call(path, f"Authorization: Bearer {TOKEN}")
        assert status == 200
    assert world.provider.heard[0][0].startswith(b"POST /api/v1/chat/completions HTTP/1.1\r\n")
    fields = world.provider.fields()
    assert fields["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in fields


@pytest.mark.parametrize(
    "fields",
    [
        ("Accept: */*",),
        ("x-api-key: sk-the-attackers-own",),
        ("Authorization: Bearer sk-the-attackers-own",),
        (f"x-api-key: {TOKEN}", "Authorization: Bearer sk-the-attackers-own"),
        (f"Authorization: Basic {TOKEN}",),
        (f"Proxy-Authorization: Bearer {TOKEN}",),
        (f"x-api-key: {TOKEN}x",),
        ("x-api-key:",),
    ],
)
async def test_another_key_is_refused_and_nobody_is_asked(fields: tuple[str, ...]) -> None:
    async with brokered() as world:
        assert (await world.call("/broker/claude/v1/messages", *fields))[0] == 401
        assert world.run.decisions[0].verdict == "refused"
        assert world.far.untouched


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        ("HEAD /broker/claude", (), 204),
        ("HEAD /broker/claude/", (), 204),
        ("HEAD /broker/nobody", (), 204),
        ("HEAD /broker/", (), 401),
        ("HEAD /broker/claude?x", (), 401),
        ("HEAD /broker/claude/v1/messages", (), 401),
        ("HEAD /broker/claude", ("x-api-key: another",), 401),
        ("HEAD /broker/claude", ("authorization: Basic abc",), 401),
        ("HEAD /broker/claude", ("content-length: 3",), 401),
        ("HEAD /broker/claude", ("transfer-encoding: chunked",), 401),
        ("GET /broker/claude", (), 401),
        ("POST /broker/claude", (), 401),
    ],
)
async def test_an_agent_may_open_its_connection_before_it_shows_a_token(
    line: str, fields: tuple[str, ...], status: int
) -> None:
    async with brokered() as world:
        host = f"Host: 127.0.0.1:{world.run.port}"
        asked = "\r\n".join((f"{line} HTTP/1.1", host, *fields, "", "")).encode()
        assert (await world.run.ask(asked))[0] == status
        assert world.provider.heard == []
        refused = [each for each in world.run.decisions if each.verdict == "refused"]
        assert bool(refused) is (status == 401)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/broker/claude/v1/files", 403),
        ("GET", "/broker/claude/v1/messages", 403),
        ("DELETE", "/broker/claude/v1/messages", 403),
        ("POST", "/broker/claude/v1/messages/batches", 403),
        ("POST", "/broker/claude/v1/messages/../files", 400),
        ("POST", "/broker/claude/v1/%2e%2e/files", 400),
        ("POST", "/broker/claude//v1/messages", 400),
        ("POST", "/broker/claude", 403),
        ("POST", "/broker/other/v1/messages", 403),
        ("POST", "/broker/../v1/messages", 403),
        ("POST", "/brokerx/claude/v1/messages", 403),
        ("POST", "/v1/messages", 403),
        ("POST", "/", 403),
    ],
)
async def test_only_the_calls_of_the_dialect_are_made(method: str, path: str, status: int) -> None:
    async with brokered() as world:
        assert (await world.call(path, method=method))[0] == status
        assert world.far.untouched


async def test_a_request_under_another_name_is_not_for_the_broker() -> None:
    async with brokered() as world:
        asked = world.request("/broker/claude/v1/messages")
        own = f"127.0.0.1:{world.run.port}".encode()
        status, _ = await world.run.ask(asked.replace(own, b"rebound.evil.test"))
        assert status == 400
        status, _ = await world.run.ask(asked.replace(own, own.replace(b"127.0.0.1", b"localhost")))
        assert status == 200
    assert world.far.connections == 1


async def test_only_fields_that_a_call_needs_are_passed_on() -> None:
    async with brokered() as world:
        await world.call(
            "/broker/claude/v1/messages",
            f"x-api-key: {TOKEN}",
            "anthropic-version: 2023-06-01",
            "anthropic-beta: a,b",
            "content-type: application/json",
            "x-stainless-lang: js",
            "Cookie: a=b",
            "X-Forwarded-For: 10.0.0.1",
            "Forwarded: for=10.0.0.1",
            "Proxy-Foo: x",
            "anthropic-organization: other",
            "OpenAI-Organization: other",
            "X-Evil: 1",
            "Accept-Encoding: gzip",
        )
    assert set(world.provider.fields()) == {
        "host",
        "accept-encoding",
        "x-api-key",
        "anthropic-version",
        "anthropic-beta",
        "content-type",
        "content-length",
        "x-stainless-lang",
    }
    assert world.provider.fields()["accept-encoding"] == "identity"


async def test_a_redirect_is_passed_back_and_not_followed() -> None:
    async with far_side() as elsewhere:
        head = (
            f"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{elsewhere.port}/\r\n"
            f"x-echo: {KEY}\r\nset-cookie: a=b\r\n"
        )
        async with brokered(Provider(b"", head)) as world:
            child = await world.run.child()
            child.writer.write(world.request("/broker/claude/v1/messages"))
            answer = (await child.head()).decode()
            child.writer.close()
        assert answer.startswith("HTTP/1.1 302 ")
        assert f"location: http://127.0.0.1:{elsewhere.port}/\r\n" in answer
        assert KEY not in answer
        assert "set-cookie" not in answer
        assert elsewhere.untouched


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with brokered(limits=ProxyLimits(call_body=1_000)) as world:
        status, _ = await world.call("/broker/claude/v1/messages", body=b"x" * 1_001)
        assert status == 413
        assert world.far.untouched
        chunked = (
            f"POST /broker/claude/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{world.run.port}\r\n"
            f"x-api-key: {TOKEN}\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n"
        )
        status, _ = await world.run.ask(chunked.encode() + b"x" * 2_000 + b"\r\n0\r\n\r\n")
        assert status == 413
        await eventually_async(lambda: len(world.run.ended) == 2)
        assert [one.sent for one in world.run.ended] == [0, 0]


async def test_a_token_is_worth_nothing_once_the_broker_is_closed() -> None:
    async with brokered() as world:
        world.broker.close()
        assert (await world.call("/broker/claude/v1/messages"))[0] == 401
        assert (await world.call("/broker/claude/v1/messages", "x-api-key:"))[0] == 401
        assert world.far.untouched


async def test_a_token_of_another_run_is_refused() -> None:
    async with brokered() as world, running_proxy() as other:
        asked = world.request("/broker/claude/v1/messages")
        asked = asked.replace(f":{world.run.port}".encode(), f":{other.port}".encode())
        assert (await other.ask(asked))[0] == 403
        assert world.far.untouched


async def test_after_the_run_nobody_listens() -> None:
    async with brokered() as world:
        pass
    with pytest.raises(ConnectionRefusedError):
        await world.run.child()


async def test_a_provider_that_fails_is_told_as_such() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with far_side(hang_up) as far:
        base = f"http://127.0.0.1:{far.port}"
        account = Account("claude", base, "anthropic", "x-api-key", KEY, private_ok=True)
        async with (
            Broker([account], token=TOKEN, limits=ProxyLimits()) as broker,
            running_proxy(broker=broker) as run,
        ):
            world = World(run, far, Provider(), Books(), broker)
            status, body = await world.call("/broker/claude/v1/messages")
            assert status == 502
            assert KEY.encode() not in body


async def test_an_account_on_this_machine_must_be_meant_to_be() -> None:
    async with far_side() as far:
        base = f"http://127.0.0.1:{far.port}"
        account = Account("claude", base, "anthropic", "x-api-key", KEY)
        async with (
            Broker([account], token=TOKEN, limits=ProxyLimits()) as broker,
            running_proxy(broker=broker) as run,
        ):
            world = World(run, far, Provider(), Books(), broker)
            assert (await world.call("/broker/claude/v1/messages"))[0] == 403
        assert far.untouched


async def test_a_hang_up_ends_the_call_and_what_is_known_is_counted() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        start = {"model": "m", "usage": {"input_tokens": 25, "output_tokens": 1}}
        event = {"type": "message_start", "message": start}
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(f"data: {json.dumps(event)}\n\n".encode())
        await reader.read()

    budget = Books()
    async with far_side(half) as far:
        account = Account(
            "claude",
            f"http://127.0.0.1:{far.port}",
            "anthropic",
            "x-api-key",
            KEY,
            private_ok=True,
        )
        async with (
            Broker([account], token=TOKEN, limits=ProxyLimits(), budget=budget) as broker,
            running_proxy(broker=broker) as run,
        ):
            child = await run.child()
            world = World(run, far, Provider(), budget, broker)
            child.writer.write(world.request("/broker/claude/v1/messages"))
            await child.head()
            child.writer.close()
            async with asyncio.timeout(PATIENCE_S):
                await far.ended.wait()
            await eventually_async(lambda: run.ended)
    (meter,) = budget.meters
    assert (meter.usage, meter.over, meter.is_complete) == (Usage(25, 1, model="m"), True, False)


def stream(*events: object) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


ANTHROPIC = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100}
RESPONSES = {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}
CHAT = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
SSE = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
JSON = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ERROR = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"


MESSAGE = {"type": "message_start", "message": {"model": "m", "usage": ANTHROPIC}}
LATER = {"type": "message_delta", "usage": {"output_tokens": 50}}
STOP = {"type": "message_stop"}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
HI = {"choices": [{"delta": {"content": "hi"}}]}
DONE = b"data: [DONE]\n\n"
WHOLE = json.dumps({"type": "message", "model": "m", "usage": ANTHROPIC}).encode()
SUMMARY = {"type": "compaction", "input_tokens": 1_000, "output_tokens": 200}
ANSWER = {"type": "message", "input_tokens": 10, "output_tokens": 5}
ITERATIONS = {"input_tokens": 10, "output_tokens": 5, "iterations": [SUMMARY, ANSWER]}
SUMMARIZED = json.dumps({"type": "message", "model": "m", "usage": ITERATIONS}).encode()
HOUR = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 50}
WRITTEN = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 60}
KEPT = json.dumps({"model": "m", "usage": {**WRITTEN, "cache_creation": HOUR}}).encode()
COMPLETED = {"type": "response.completed", "response": {"model": "m", "usage": RESPONSES}}
DELTA = {"type": "response.output_text.delta", "delta": "hi"}
BACKGROUND = b'{"model":"m","status":"queued","usage":null}'


@pytest.mark.parametrize(
    ("path", "head", "answer", "usage", "told"),
    [
        ("/v1/messages", SSE, stream(MESSAGE, LATER, STOP), Usage(110, 50, 100, model="m"), True),
        ("/v1/messages", SSE, stream(MESSAGE, LATER), Usage(110, 50, 100, model="m"), False),
        ("/v1/messages", SSE, stream(MESSAGE, OVERLOADED), Usage(110, 5, 100, model="m"), False),
        ("/v1/messages", SSE, b"", Usage(), False),
        ("/v1/messages", JSON, WHOLE, Usage(110, 5, 100, model="m"), True),
        ("/v1/messages", JSON, SUMMARIZED, Usage(1_010, 205, model="m"), True),
        ("/v1/messages", JSON, KEPT, Usage(70, 5, 0, 60, "m", 50), True),
        ("/v1/messages", JSON, b"not json %", Usage(), False),
        ("/v1/messages", ERROR, WHOLE, Usage(), True),
        ("/v1/responses", SSE, stream(DELTA, COMPLETED), Usage(10, 5, 4, model="m"), True),
        ("/v1/responses", SSE, stream(DELTA), Usage(), False),
        (
            "/v1/responses",
            JSON,
            json.dumps({"model": "m", "usage": RESPONSES}).encode(),
            Usage(10, 5, 4, model="m"),
            True,
        ),
        ("/v1/responses", JSON, BACKGROUND, Usage(), False),
        (
            "/v1/chat/completions",
            SSE,
            stream(HI, {"model": "m", "usage": CHAT}) + DONE,
            Usage(10, 5, 4, model="m"),
            True,
        ),
        ("/v1/chat/completions", SSE, stream(HI) + DONE, Usage(), False),
        (
            "/v1/chat/completions",
            JSON,
            json.dumps({"model": "m", "choices": [], "usage": CHAT}).encode(),
            Usage(10, 5, 4, model="m"),
            True,
        ),
    ],
)
async def test_what_a_call_used_is_counted_whatever_the_child_says(
    path: str, head: str, answer: bytes, usage: Usage, *, told: bool
) -> None:
    dialect: Dialect = "anthropic" if path.endswith("/messages") else "openai"
    async with brokered(Provider(answer, head), dialect=dialect) as world:
        _, body = await world.call(f"/broker/claude{path}")
        assert body == answer
        await eventually_async(lambda: world.run.ended)
    (meter,) = world.budget.meters
    assert (meter.usage, meter.over, meter.is_complete) == (usage, True, told)


@pytest.mark.parametrize(
    ("method", "path", "dialect"),
    [("POST", "/v1/messages/count_tokens", "anthropic"), ("GET", "/v1/models", "openai")],
)
async def test_a_call_that_costs_nothing_has_no_meter(
    method: str, path: str, dialect: Dialect
) -> None:
    async with brokered(Provider(b'{"input_tokens":9}'), dialect=dialect) as world:
        assert (await world.call(f"/broker/claude{path}", method=method, body=b""))[0] == 200
    assert world.budget.meters == []


async def test_a_call_whose_answer_nobody_waits_for_has_not_told_its_usage() -> None:
    asked = asyncio.Event()

    async def think(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()

    async with brokered(Provider()) as world, far_side(think) as slow:
        account = Account(
            "slow", f"http://127.0.0.1:{slow.port}", "anthropic", "x-api-key", KEY, private_ok=True
        )
        async with (
            Broker([account], token=TOKEN, limits=ProxyLimits(), budget=world.budget) as broker,
            running_proxy(broker=broker) as run,
        ):
            child = await run.child()
            world.run = run
            child.writer.write(world.request("/broker/slow/v1/messages"))
            await eventually_async(asked.is_set)
            await eventually_async(lambda: world.budget.meters)
            child.writer.close()
            await eventually_async(lambda: run.ended)
    (meter,) = world.budget.meters
    assert (meter.over, meter.is_complete) == (True, False)


async def test_a_provider_that_was_not_reached_cost_nothing() -> None:
    async with far_side() as gone:
        port = gone.port
    account = Account(
        "claude", f"http://127.0.0.1:{port}", "anthropic", "x-api-key", KEY, private_ok=True
    )
    budget = Books()
    async with (
        Broker([account], token=TOKEN, limits=ProxyLimits(), budget=budget) as broker,
        running_proxy(broker=broker) as run,
    ):
        world = World(run, gone, Provider(), budget, broker)
        assert (await world.call("/broker/claude/v1/messages"))[0] == 502
    (meter,) = budget.meters
    assert (meter.usage, meter.is_complete) == (Usage(), True)


@pytest.mark.parametrize(
    ("dialect", "path", "kind"),
    [
        ("anthropic", "/v1/messages", "billing_error"),
        ("openai", "/v1/responses", "insufficient_quota"),
        ("openai", "/v1/chat/completions", "insufficient_quota"),
    ],
)
async def test_when_the_money_is_spent_no_call_is_made(
    dialect: Dialect, path: str, kind: str
) -> None:
    async with brokered(dialect=dialect) as world:
        world.budget.why_not = "budget: the run spent $2.0000"
        status, body = await world.call(f"/broker/claude{path}")
        error = json.loads(body)["error"]
        assert (status, error["type"]) == (402, kind), "in the words of the API"
        assert error["message"].endswith(world.budget.why_not)
        assert (world.run.decisions[-1].verdict, world.run.decisions[-1].cause) == (
            "refused",
            "budget",
        )
        assert world.far.untouched


async def test_under_a_limit_the_budget_sees_the_whole_body_and_says_what_is_sent() -> None:
    async with brokered() as world:
        world.budget.is_limited = True
        world.budget.sent_instead = b'{"b":2}'
        assert (await world.call("/broker/claude/v1/messages", body=b'{"a":1}'))[0] == 200
        chunked = world.request(
            "/broker/claude/v1/messages",
            f"x-api-key: {TOKEN}",
            "transfer-encoding: chunked",
            body=b"",
        )
        assert (await world.run.ask(chunked + b"3\r\n{}\n\r\n0\r\n\r\n"))[0] == 200
        await eventually_async(lambda: len(world.run.ended) == 2)
    assert world.budget.bodies == [b'{"a":1}', b"{}\n"]
    assert [sent for _, sent in world.provider.heard] == [b'{"b":2}'] * 2
    assert [one.sent for one in world.run.ended] == [7, 7]


async def test_bodies_that_the_budget_needs_take_bounded_memory() -> None:
    async with brokered(limits=ProxyLimits(buffered_bodies=1_000)) as world:
        world.budget.is_limited = True
        half = world.request("/broker/claude/v1/messages", body=b"x" * 900)
        child = await world.run.child()
        child.writer.write(half[:-1])
        await eventually_async(lambda: world.broker.buffered_bytes == 900)
        status, body = await world.call("/broker/claude/v1/messages", body=b"x" * 101)
        assert (status, b"too many large calls" in body) == (503, True)
        assert (await world.call("/broker/claude/v1/messages", body=b"x" * 100))[0] == 200
        child.writer.close()
        await eventually_async(lambda: world.broker.buffered_bytes == 0)
    assert len(world.provider.heard) == 1


async def test_a_call_does_not_wait_for_money_without_end() -> None:
    async with brokered(limits=ProxyLimits(budget_s=0.05)) as world:
        world.budget.waits = True
        status, body = await world.call("/broker/claude/v1/messages")
        assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
        assert world.far.untouched


def test_a_secret_is_found_however_it_is_cut() -> None:
    secret = "sk-sk-abc"
    said = b"a sk-sk-sk-abc, sk-sk-ab, sk-sk-abcsk-sk-abc sk-"
    for first in range(len(said)):
        for second in range(first, len(said)):
            scrubber = KeyRedactor(secret)
            pieces = (said[:first], said[first:second], said[second:])
            shown = b"".join([*map(scrubber.feed, pieces), scrubber.finish()])
            assert shown == b"a sk-*********, sk-sk-ab, ****************** sk-"


@pytest.mark.parametrize("whole", [True, False])
async def test_a_provider_that_says_the_key_is_not_heard_saying_it(*, whole: bool) -> None:
    said = f'{{"error":"invalid x-api-key {KEY}: {KEY[:9]}"}}'.encode()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        length = f"content-length: {len(said)}" if whole else "connection: close"
        writer.write(f"HTTP/1.1 401 Unauthorized\r\n{length}\r\n\r\n".encode())
        for at in range(0, len(said), 7):
            writer.write(said[at : at + 7])
            await writer.drain()

    provider = Provider()
    provider.serve = echo  # type: ignore[method-assign]
    async with brokered(provider) as world:
        status, body = await world.call("/broker/claude/v1/messages")
    assert status == 401
    assert KEY.encode() not in body
    assert b"invalid x-api-key *" in body
    assert KEY[:9].encode() in body


async def test_a_provider_whose_head_is_broken_and_holds_the_key_is_told_without_it() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(f"HTTP/1.1 401 Unauthorized\r\n{KEY} no colon\r\n\r\n".encode())

    provider = Provider()
    provider.serve = echo  # type: ignore[method-assign]
    async with brokered(provider) as world:
        status, body = await world.call("/broker/claude/v1/messages")
        await eventually_async(lambda: world.run.ended)
    assert status == 502
    assert KEY.encode() not in body
    assert KEY not in repr(world.run.decisions) + repr(world.run.ended)


@pytest.mark.parametrize("key", ["", " ", "a\r\nb", "schlüssel", "sk-1 ", " sk-1", "sk 1", "a\tb"])
def test_a_key_that_no_header_can_hold_is_an_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(SettingsError, match="the key of provider 'claude'") as caught:
        Account("claude", "https://api.example.test", "anthropic", "x-api-key", key)
    assert not key.strip() or key not in str(caught.value)


def test_an_account_does_not_show_its_key() -> None:
    account = Account("claude", "https://api.example.test", "openai", "bearer", KEY)
    assert KEY not in repr(account)
    assert Route("POST", "/v1/responses") in account.allowed_routes


async def test_a_child_has_no_whole_answer_before_its_cost_is_known() -> None:
    arrived: list[bytes] = []
    async with brokered(Provider(answer=b'{"usage":{"input_tokens":1},"end":"here"}')) as world:
        with socket.create_connection(("127.0.0.1", world.run.port)) as child:
            child.settimeout(0)

            def look() -> None:
                try:
                    arrived.append(child.recv(65_536, socket.MSG_PEEK))
                except BlockingIOError:
                    arrived.append(b"")

            world.budget.on_finish = look
            child.sendall(world.request("/broker/claude/v1/messages"))
            got = b""
            async with asyncio.timeout(30):
                while piece := await asyncio.get_running_loop().sock_recv(child, 65_536):
                    got += piece
    assert b'"here"' in got
    assert b'"here"' not in arrived[0]
