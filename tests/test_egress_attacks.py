"""The table of ways to get out, tried one by one; what counts is what reached the far side."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from egress_world import (
    TOKEN,
    Far,
    Run,
    always,
    answer_ok,
    client_hello,
    connect,
    far_side,
    running_proxy,
    until,
)
from infloop.egress.broker import Account, Broker
from infloop.egress.client import Client, Destination
from infloop.egress.limits import Limits
from infloop.egress.resolve import Lookup
from infloop.errors import EgressError

TABLE = Path(__file__).parent / "attacks_egress.toml"
LONG = ".".join(["a" * 48] * 4 + ["a" * (254 - 4 * 49 - len(".wild.test"))])

# Cases of the catalogue that need more than a line of the table, and where they are tried.
ELSEWHERE = {
    "egress-044": "test_egress_proxy.py::test_a_tunnel_that_sends_too_much_is_cut_off",
    "egress-046": "test_egress_hosts.py::test_a_listed_address_is_the_only_exception",
    "egress-047": "test_egress_proxy.py::test_a_proxy_that_cannot_go_on_ends_with_its_tunnels",
    "egress-048": "test_egress_proxy.py::test_a_proxy_that_cannot_start_raises",
    "egress-055": "test_egress_broker.py::test_a_redirect_is_passed_back_and_not_followed",
    "egress-056": "test_egress_broker.py::test_a_token_is_worth_nothing_once_the_broker_is_closed",
    "egress-057": "test_egress_broker.py::test_only_fields_that_a_call_needs_are_passed_on",
    "egress-058": "test_egress_broker.py::test_a_body_that_is_too_large_is_refused",
    "egress-059": "test_egress_broker.py::test_what_a_call_used_is_counted_whatever_the_child_says",
    "ssrf-105": "test_egress_client.py::test_a_body_that_is_too_large_is_cut_off",
}


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
    assert {row["door"] for row in table} == doors
    assert len({row["id"] for row in table}) == len(table)


@pytest.mark.parametrize("test", ELSEWHERE.values())
def test_what_is_tried_elsewhere_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TABLE.parent / file).read_text()


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
async def proxied(limits: Limits | None = None) -> AsyncIterator[tuple[Far, Run]]:
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
    limits = Limits(head_s=0.2 if attack.send == "slow" else 10, hello_s=0.2)
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
            await until(lambda: canary.heard == said)
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
            Broker([account], token=TOKEN, limits=Limits()) as broker,
            running_proxy(broker=broker) as run,
        ):
            asked = (
                f"{method} /broker/claude{path} HTTP/1.1\r\nHost: 127.0.0.1:{run.port}\r\n"
                f"x-api-key: {TOKEN}\r\ncontent-length: 2\r\n\r\n{{}}"
            )
            status, _ = await run.ask(asked.encode())
        assert status == int(attack.expect)
        assert canary.untouched is (status != 200)
