"""The table of ways to get out, tried one by one; what counts is what reached the far side."""

from __future__ import annotations

import asyncio
import json
import socket
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from infloop.egress.broker import Account, Broker
from infloop.egress.client import Client, Destination
from infloop.egress.limits import ProxyLimits
from infloop.egress.proxy import Proxy
from infloop.egress.resolve import Lookup
from infloop.errors import EgressError
from infloop.policy.hosts import Allowlist, parse_rules
from support.egress_broker import KEY, Provider, brokered
from support.egress_proxy import (
    PATIENCE_S,
    TOKEN,
    Far,
    Run,
    always,
    answer_ok,
    client_hello,
    connect,
    far_side,
    running_proxy,
)
from support.eventually import eventually_async
from support.paths import ATTACK_TABLES

TABLE = ATTACK_TABLES / "egress.toml"
LONG = ".".join(["a" * 48] * 4 + ["a" * (254 - 4 * 49 - len(".wild.test"))])


@dataclass(frozen=True)
class Attack:
    id: str
    case: str
    door: str
    send: str
    expect: str
    answer: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.id} ({self.case})"


def attacks(*doors: str) -> list[Attack]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["attack"]
    return [
        Attack(
            row["id"],
            row["case"],
            row["door"],
            send,
            row["expect"],
            tuple(tuple(answer) for answer in row.get("answer", ())),
        )
        for row in table
        for send in row["send"]
        if row["door"] in doors
    ]


def test_every_line_of_the_table_is_tried() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["attack"]
    doors = {"url", "listed", "redirect", "answer", "proxy", "tunnel", "call"}
    doors |= {"rule", "upload", "download", "fields", "moved", "counted", "broken"}
    assert {row["door"] for row in table} == doors
    assert len({row["id"] for row in table}) == len(table)


async def fetch(client: Client, url: str) -> int:
    async with (
        client,
        client.stream(
            "GET", url, connect_timeout_s=10, read_timeout_s=10, max_response_bytes=1000
        ) as response,
    ):
        await response.read()
        return response.status


# -- the server's own client -----------------------------------------------------------------------


@pytest.mark.parametrize("attack", attacks("url"), ids=str)
async def test_a_place_that_the_client_must_not_go_to_although_it_is_told_to(
    attack: Attack,
) -> None:
    async with far_side(answer_ok) as canary, far_side(answer_ok, "::1") as canary6:
        for port in (canary.port, canary6.port):
            url = attack.send.replace("{P}", str(port))
            with pytest.raises(EgressError) as caught:
                await fetch(Client([Destination.of(url)], lookup=always("127.0.0.1")), url)
            assert caught.value.failure == "refused"
        assert canary.untouched
        assert canary6.untouched


@pytest.mark.parametrize("attack", attacks("listed"), ids=str)
async def test_next_to_what_is_listed(attack: Attack) -> None:
    async with far_side(answer_ok) as canary:
        listed = Destination("http", "allowed.test", canary.port, private_ok=True)
        client = Client([listed], lookup=always("127.0.0.1"))
        url = attack.send.replace("{P}", str(canary.port))
        if attack.expect == "allowed":
            assert await fetch(client, url) == 200
            assert canary.connections == 1
            return
        with pytest.raises(EgressError):
            await fetch(client, url)
        assert canary.untouched


@pytest.mark.parametrize("attack", attacks("redirect"), ids=str)
async def test_a_redirect_leads_nowhere(attack: Attack) -> None:
    status, _, place = attack.send.partition(" ")

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        where = place.replace("{P}", str(canary.port)).replace("{A}", str(far.port))
        head = f"HTTP/1.1 {status} x\r\nlocation: {where}\r\ncontent-length: 0\r\n\r\n"
        writer.write(head.encode())

    async with far_side(answer_ok) as canary, far_side(redirect) as far:
        listed = Destination("http", "allowed.test", far.port, private_ok=True)
        client = Client([listed], lookup=always("127.0.0.1"))
        assert await fetch(client, f"http://allowed.test:{far.port}/") == int(status)
        assert canary.untouched
        assert far.connections == 1


@pytest.mark.parametrize("attack", attacks("answer"), ids=str)
async def test_what_the_name_service_says_does_not_open_a_way(attack: Attack) -> None:
    async with far_side(answer_ok) as canary:
        url = attack.send.replace("{P}", str(canary.port))
        answers = _each_then_the_last(attack.answer)
        for _ in attack.answer:
            with pytest.raises(EgressError) as caught:
                await fetch(Client([Destination.of(url)], lookup=answers), url)
            assert caught.value.failure == "refused"
        assert canary.untouched


def _each_then_the_last(answers: Sequence[Sequence[str]]) -> Lookup:
    waiting = list(answers)

    async def lookup(_: str) -> Sequence[str]:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return lookup


# -- a run's proxy ---------------------------------------------------------------------------------


@asynccontextmanager
async def proxied(limits: ProxyLimits | None = None) -> AsyncIterator[tuple[Far, Run]]:
    async with far_side() as canary:
        port = canary.port
        rules = (f"api.allowed.test:{port}", f"*.wild.test:{port}", f"127.0.0.1:{port}")
        async with running_proxy(*rules, limits=limits) as run:
            yield canary, run


def words(attack: Attack, port: int) -> bytes:
    said = attack.send.replace("{P}", str(port)).replace("{L}", LONG)
    said = said.replace("{T}", f"Proxy-Authorization: Bearer {TOKEN}\r\n")
    match said:
        case "large":
            return connect(f"api.allowed.test:{port}", more=f"X: {'y' * 65_536}\r\n")
        case "many":
            return connect(f"api.allowed.test:{port}", more="a: b\r\n" * 2_000)
        case "slow":
            return connect(f"api.allowed.test:{port}")[:-1]
    if said.startswith("CONNECT ") and "\r\n" not in said:
        return connect(said.removeprefix("CONNECT "))
    return said.encode("latin-1")


@pytest.mark.parametrize("attack", attacks("proxy"), ids=str)
async def test_words_to_the_proxy(attack: Attack) -> None:
    limits = ProxyLimits(head_s=0.2 if attack.send == "slow" else 10, hello_s=0.2)
    async with proxied(limits) as (canary, run):
        status, _ = await run.ask(words(attack, canary.port))
        assert status == int(attack.expect)
        assert not canary.heard
        if status == 200:
            assert canary.connections == 1
            return
        assert canary.untouched
        assert [one.verdict for one in run.decisions] == ["refused"]


@pytest.mark.parametrize("attack", attacks("tunnel"), ids=str)
async def test_words_in_a_tunnel(attack: Attack) -> None:
    async with proxied() as (canary, run):
        child = await run.tunnel("api.allowed.test", canary.port)
        kind, _, name = attack.send.partition(" ")
        said = attack.send.encode("latin-1")
        if kind.startswith("hello"):
            said = hello_with_ech(name) if kind == "hello-ech" else client_hello(name or None)
        child.writer.write(said)
        if attack.expect == "allowed":
            await eventually_async(lambda: canary.heard == said)
            child.writer.close()
            return
        assert await child.rest() == b""
        child.writer.close()
        assert not canary.heard
        assert run.decisions[-1].verdict == "refused"


def hello_with_ech(name: str) -> bytes:
    """Return a real ClientHello with one more extension, which hides another name."""
    extension = b"\xfe\x0d\x00\x04\x00\x01\x02\x03"
    message = bytearray(client_hello(name)[5:])
    at = 4 + 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2], "big")
    at += 1 + message[at]
    size = int.from_bytes(message[at : at + 2], "big") + len(extension)
    message[at : at + 2] = size.to_bytes(2, "big")
    message += extension
    message[1:4] = (len(message) - 4).to_bytes(3, "big")
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + bytes(message)


# -- the broker ------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", attacks("call"), ids=str)
async def test_calls_with_the_token(attack: Attack) -> None:
    method, _, path = attack.send.partition(" ")
    async with far_side(answer_ok) as canary:
        account = Account(
            "claude",
            f"http://127.0.0.1:{canary.port}",
            "anthropic",
            "x-api-key",
            "sk-real",
            private_ok=True,
        )
        async with (
            Broker([account], token=TOKEN, limits=ProxyLimits()) as broker,
            running_proxy(broker=broker) as run,
        ):
            asked = (
                f"{method} /broker/claude{path} HTTP/1.1\r\nHost: 127.0.0.1:{run.port}\r\n"
                f"x-api-key: {TOKEN}\r\ncontent-length: 2\r\n\r\n{{}}"
            )
            status, _ = await run.ask(asked.encode())
        assert status == int(attack.expect)
        assert canary.untouched is (status != 200)


@pytest.mark.parametrize("attack", attacks("fields"), ids=str)
async def test_fields_of_a_call(attack: Attack) -> None:
    name = attack.send.partition(":")[0].lower()
    async with brokered() as world:
        status, _ = await world.call(
            "/broker/claude/v1/messages", f"x-api-key: {TOKEN}", attack.send
        )
    if status == 200:
        assert (name in world.provider.fields()) is (attack.expect == "passed")
        assert world.provider.fields()["x-api-key"] == KEY
        return
    assert attack.expect == "stripped"
    assert world.far.untouched


@pytest.mark.parametrize("attack", attacks("moved"), ids=str)
async def test_a_call_is_not_taken_elsewhere(attack: Attack) -> None:
    async with far_side() as elsewhere:
        place = f"http://127.0.0.1:{elsewhere.port}/"
        head = f"HTTP/1.1 {attack.send} x\r\nlocation: {place}\r\nx-echo: {KEY}\r\n"
        async with brokered(Provider(b"", head)) as world:
            child = await world.run.child()
            child.writer.write(world.request("/broker/claude/v1/messages"))
            answer = (await child.head()).decode()
            child.writer.close()
        assert answer.startswith(f"HTTP/1.1 {attack.send} ")
        assert place in answer
        assert KEY not in answer
        assert elsewhere.untouched


@pytest.mark.parametrize("attack", attacks("counted"), ids=str)
async def test_what_a_call_used_is_counted_by_us(attack: Attack) -> None:
    given, made = map(int, attack.send.split())
    usage = {"input_tokens": given, "output_tokens": made}
    said = json.dumps({"type": "message", "model": "m", "usage": usage}).encode()
    async with brokered(Provider(said)) as world:
        none = b'{"usage": {"input_tokens": 0, "output_tokens": 0}}'
        assert (await world.call("/broker/claude/v1/messages", body=none))[0] == 200
        await eventually_async(lambda: world.budget.meters)
    assert (world.budget.used.input_tokens, world.budget.used.output_tokens) == (given, made)


# -- amounts, and what goes wrong ------------------------------------------------------------------


@pytest.mark.parametrize("attack", attacks("rule"), ids=str)
async def test_a_private_address_is_reached_if_it_is_listed_itself(attack: Attack) -> None:
    async with far_side() as canary:
        rules = (f"inside.test:{canary.port}", attack.send.replace("{P}", str(canary.port)))
        async with running_proxy(*rules) as run:
            status, _ = await run.ask(connect(f"inside.test:{canary.port}") + client_hello(None))
        assert status == int(attack.expect)
        assert canary.untouched is (status != 200)


@pytest.mark.parametrize("attack", attacks("upload"), ids=str)
async def test_only_so_much_goes_out(attack: Attack) -> None:
    door, much, most = attack.send.split()
    if door == "call":
        async with brokered(limits=ProxyLimits(call_body=int(most))) as world:
            sent = b"x" * int(much)
            assert (await world.call("/broker/claude/v1/messages", body=sent))[0] == 413
            assert world.far.untouched
        return
    async with proxied(ProxyLimits(upload_per_connection=int(most))) as (canary, run):
        child = await run.tunnel("api.allowed.test", canary.port)
        child.writer.write(client_hello("api.allowed.test"))
        with suppress(ConnectionError):
            for _ in range(0, int(much), 10_000):
                child.writer.write(b"x" * 10_000)
                await child.writer.drain()
        await child.rest()
        child.writer.close()
        await eventually_async(lambda: run.ended)
        assert len(canary.heard) <= int(most)
        assert run.decisions[-1].verdict == "refused"


@pytest.mark.parametrize("attack", attacks("download"), ids=str)
async def test_only_so_much_comes_in(attack: Attack) -> None:
    much, most = map(int, attack.send.split())
    poured = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while poured < much:
            writer.write(b"x" * 65_536)
            await writer.drain()
            poured += 65_536

    async with far_side(pour) as far:
        listed = Destination("http", "far.test", far.port, private_ok=True)
        client = Client([listed], lookup=always("127.0.0.1"))
        with pytest.raises(EgressError) as caught:
            async with (
                client,
                client.stream(
                    "GET",
                    f"http://far.test:{far.port}/",
                    connect_timeout_s=10,
                    read_timeout_s=10,
                    max_response_bytes=most,
                ) as response,
            ):
                await response.read()
        assert caught.value.failure == "too-large"
        async with asyncio.timeout(PATIENCE_S):
            await far.ended.wait()
    assert poured < much


@pytest.mark.parametrize("attack", attacks("broken"), ids=str)
async def test_a_proxy_that_fails_lets_nothing_through(attack: Attack) -> None:
    async with far_side() as canary:
        listener = socket.socket()
        if attack.send.startswith("while"):
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        elif "closed" in attack.send:
            listener.close()
        rules = parse_rules("a list", [f"far.test:{canary.port}", f"127.0.0.1:{canary.port}"])
        told = list[object]()
        proxy = Proxy(
            Allowlist((rules,)), token="", on_decision=told.append, lookup=always("127.0.0.1")
        )
        serving = asyncio.create_task(proxy.serve(listener))
        if attack.send.startswith("while"):
            port = listener.getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(connect(f"far.test:{canary.port}", token=""))
            await reader.readuntil(b"\r\n\r\n")
            listener.shutdown(socket.SHUT_RDWR)
        with pytest.raises(EgressError, match="the proxy of this run stopped"):
            await asyncio.wait_for(serving, PATIENCE_S)
        if attack.send.startswith("while"):
            assert await reader.read() == b""
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        assert not canary.heard
