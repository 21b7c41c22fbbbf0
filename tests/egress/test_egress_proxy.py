"""A run's proxy, spoken to by children over real sockets; what counts is what the far side saw."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import h11
import psutil
import pytest
import uvloop

from infloop.egress.limits import ProxyLimits, UploadBudget
from infloop.egress.proxy import Proxy
from infloop.egress.reports import Decision
from infloop.errors import EgressError
from infloop.policy.hosts import Allowlist, parse_rules
from support.egress_proxy import (
    PATIENCE_S,
    TOKEN,
    Child,
    Far,
    always,
    answer_ok,
    client_hello,
    connect,
    far_side,
    read_request,
    running_proxy,
)
from support.eventually import eventually_async

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def rules(far: Far, *more: str) -> tuple[str, ...]:
    """Return rules that lead to the far side, by name, and pardon its address."""
    return (f"far.test:{far.port}", f"127.0.0.1:{far.port}", *more)


def get(url: str, *fields: str, token: str = TOKEN) -> bytes:
    host = url.split("/")[2]
    shown = (f"Proxy-Authorization: Bearer {token}",) if token else ()
    lines = (f"GET {url} HTTP/1.1", f"Host: {host}", *shown, *fields, "", "")
    return "\r\n".join(lines).encode()


async def hear(child: Child, size: int) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await child.reader.readexactly(size)


# -- what is let through ---------------------------------------------------------------------------


@pytest.mark.claim("I40")
async def test_a_tunnel_to_a_listed_host_carries_bytes_both_ways_and_is_reported() -> None:
    hello = client_hello("far.test")
    async with far_side() as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(hello)
        assert await hear(child, len(hello)) == hello
        child.writer.write(b"more")
        assert await hear(child, 4) == b"more"
        child.writer.close()
        await eventually_async(lambda: run.ended)
    (decision,) = run.decisions
    assert str(decision) == f"allowed far.test:{far.port}, in the allowlist of provider claude"
    assert decision.rule == f"far.test:{far.port}"
    (ended,) = run.ended
    assert (ended.number, ended.sent, ended.received) == (1, len(hello) + 4, len(hello) + 4)
    assert ended.reason == ""
    assert bytes(far.heard) == hello + b"more"


@pytest.mark.claim("I40")
async def test_a_host_that_is_not_listed_is_refused_and_the_run_is_told() -> None:
    async with far_side() as far, running_proxy(*rules(far)) as run:
        status, body = await run.ask(connect("evil.example:443"))
        assert status == 403
        assert body == b"refused evil.example:443, not in the allowlist of provider claude\n"
        status, _ = await run.ask(get(f"http://evil.example:{far.port}/"))
        assert status == 403
    assert [str(one) for one in run.decisions] == [
        "refused evil.example:443, not in the allowlist of provider claude",
        f"refused evil.example:{far.port}, not in the allowlist of provider claude",
    ]
    assert run.ended == []
    assert far.untouched


async def test_what_the_operator_denies_is_refused_although_it_is_listed() -> None:
    async with far_side() as far, running_proxy(*rules(far), denied=["far.test"]) as run:
        assert (await run.ask(connect(f"far.test:{far.port}")))[0] == 403
        assert run.decisions[0].reason == "denied by the operator"
        assert far.untouched


async def test_an_address_is_reached_when_it_is_listed_and_the_hello_has_no_name() -> None:
    async with far_side() as far, running_proxy(f"127.0.0.1:{far.port}") as run:
        child = await run.tunnel("127.0.0.1", far.port)
        hello = client_hello(None)
        child.writer.write(hello)
        assert await hear(child, len(hello)) == hello
        child.writer.close()


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("", 407),
        ("Proxy-Authorization: Bearer another\r\n", 407),
        ("Proxy-Authorization: Bearer \r\n", 407),
        (f"Proxy-Authorization: Digest {TOKEN}\r\n", 407),
        (f"Authorization: Bearer {TOKEN}\r\n", 407),
        (f"Proxy-Authorization: Basic {base64.b64encode(f'x:{TOKEN}'.encode()).decode()}\r\n", 200),
    ],
)
async def test_a_shared_listener_wants_the_token_of_the_run(shown: str, status: int) -> None:
    async with far_side(answer_ok) as far, running_proxy(*rules(far)) as run:
        url = f"http://far.test:{far.port}/"
        asked = f"GET {url} HTTP/1.1\r\nHost: far.test:{far.port}\r\n{shown}\r\n".encode()
        assert (await run.ask(asked))[0] == status
        assert far.untouched is (status == 407)


async def test_a_listener_of_the_childs_own_needs_no_token() -> None:
    async with far_side(answer_ok) as far, running_proxy(*rules(far), token="") as run:
        assert await run.ask(get(f"http://far.test:{far.port}/", token="")) == (200, b"ok")


# -- plain HTTP ------------------------------------------------------------------------------------


async def test_a_plain_request_is_built_anew() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await read_request(reader))[0])
        writer.write(OK)

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        fields = ("X-Mine: 1", "Connection: X-Gone", "X-Gone: 1", "Proxy-Connection: close")
        status, body = await run.ask(get(f"http://FAR.test:{far.port}/a?b", *fields))
        assert (status, body) == (200, b"ok")
        await eventually_async(lambda: run.ended)
    (head,) = heard
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "get /a?b http/1.1"
    assert f"host: far.test:{far.port}" in lines
    assert "x-mine: 1" in lines
    assert not [line for line in lines if "x-gone" in line or "proxy" in line or TOKEN in line]
    assert run.decisions[0].kind == "request"
    assert run.ended[0].received == 2


@pytest.mark.parametrize(
    ("framing", "body", "arrives"),
    [
        ("Content-Length: 6", b"abcdef", b"content-length: 6\r\n"),
        ("Content-Length: 0", b"", b"content-length: 0\r\n"),
        (
            "Transfer-Encoding: chunked",
            b"3;x=y\r\nabc\r\n3\r\ndef\r\n0\r\nT: x\r\n\r\n",
            b"chunked",
        ),
    ],
)
async def test_a_body_arrives_whole(framing: str, body: bytes, arrives: bytes) -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(b"".join(await read_request(reader)))
        writer.write(OK)

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        asked = get(f"http://far.test:{far.port}/", framing).replace(b"GET", b"POST", 1)
        assert await run.ask(asked + body) == (200, b"ok")
    assert arrives in heard
    assert b"x=y" not in heard
    assert b"T: x" not in heard


async def test_a_child_that_waits_for_permission_to_send_gets_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        assert b"expect" not in head.lower()
        assert body == b"abc"
        writer.write(OK)

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.child()
        fields = ("Content-Length: 3", "Expect: 100-continue")
        child.writer.write(get(f"http://far.test:{far.port}/", *fields).replace(b"GET", b"PUT", 1))
        assert (await child.head()).startswith(b"HTTP/1.1 100 ")
        child.writer.write(b"abc")
        assert (await child.head()).startswith(b"HTTP/1.1 200 ")
        child.writer.close()


async def test_a_second_request_on_the_same_connection_is_not_heard() -> None:
    async with far_side(answer_ok) as far, running_proxy(*rules(far)) as run:
        first = get(f"http://far.test:{far.port}/")
        answer = await run.ask(first + get(f"http://far.test:{far.port}/second"))
        assert answer == (200, b"ok")
        assert far.connections == 1
        assert len(run.decisions) == 1


async def test_a_large_answer_to_a_slow_child_arrives_whole() -> None:
    size = 3 << 20

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
        await writer.drain()

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.child()
        child.writer.write(get(f"http://far.test:{far.port}/"))
        await child.head()
        await eventually_async(lambda: far.ended.is_set() or run.decisions)
        assert len(await child.rest()) == size
        child.writer.close()


async def test_a_request_ends_when_the_child_hangs_up() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def think(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await reader.read()
        ended.set()

    async with far_side(think) as far, running_proxy(*rules(far)) as run:
        child = await run.child()
        child.writer.write(get(f"http://far.test:{far.port}/"))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            child.writer.close()
            await ended.wait()
        await eventually_async(lambda: run.ended)


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["8.8.8.8", "127.0.0.1"], ["::1"], []],
)
@pytest.mark.claim("I41")
async def test_a_name_with_an_address_inside_is_refused(answer: list[str]) -> None:
    async with far_side() as far:
        async with running_proxy(f"far.test:{far.port}", lookup=always(*answer)) as run:
            assert (await run.ask(connect(f"far.test:{far.port}")))[0] == 403
            assert (await run.ask(get(f"http://far.test:{far.port}/")))[0] == 403
        assert [one.verdict for one in run.decisions] == ["refused", "refused"]
        assert far.untouched


@pytest.mark.claim("I41")
async def test_a_name_is_resolved_once_and_what_was_checked_is_dialled() -> None:
    async with far_side() as inside:
        asked: list[str] = []

        async def rebinding(name: str) -> Sequence[str]:
            asked.append(name)
            return ["127.0.0.9"] if len(asked) == 1 else ["127.0.0.1"]

        listed = (f"far.test:{inside.port}", f"127.0.0.9:{inside.port}")
        async with running_proxy(*listed, lookup=rebinding) as run:
            # Nobody listens at the address that was checked; the second answer is never asked for.
            assert (await run.ask(connect(f"far.test:{inside.port}")))[0] == 502
            assert asked == ["far.test"]
        assert inside.untouched


async def test_the_next_checked_address_is_tried() -> None:
    async with far_side(answer_ok) as far:
        lookup = always("127.0.0.9", "127.0.0.1")
        listed = rules(far, f"127.0.0.9:{far.port}")
        async with running_proxy(*listed, lookup=lookup) as run:
            assert await run.ask(get(f"http://far.test:{far.port}/")) == (200, b"ok")
            child = await run.tunnel("far.test", far.port)
            child.writer.close()


async def test_a_name_that_is_not_known_is_refused() -> None:
    async def unknown(_: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with running_proxy("far.test", lookup=unknown) as run:
        assert (await run.ask(connect("far.test:443")))[0] == 502
        assert run.decisions[0].verdict == "refused"


async def test_a_name_service_that_hangs_is_not_waited_for() -> None:
    async def hang(_: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with running_proxy("far.test", lookup=hang, limits=ProxyLimits(resolve_s=0.05)) as run:
        assert (await run.ask(connect("far.test:443")))[0] == 504
        assert str(run.decisions[0]) == "refused far.test:443, the name was not resolved in 0.05 s"


# -- what a tunnel is for --------------------------------------------------------------------------

ECH = (
    b"\x16\x03\x01\x00\x41\x01\x00\x00\x3d\x03\x03"
    + bytes(33)
    + (
        b"\x00\x02\x13\x01\x01\x00\x00\x12"
        b"\x00\x00\x00\x0d\x00\x0b\x00\x00\x08far.test"
        b"\xfe\x0d\x00\x00"
    )
)


@pytest.mark.parametrize(
    "said",
    [
        client_hello("evil.test"),
        client_hello(None),
        ECH,
        b"SSH-2.0-x\r\n",
        b"GET / HTTP/1.1\r\nHost: far.test\r\n\r\n",
        b"\x16\x03\x01" + b"\xff" * 100,
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"",
    ],
    ids=["other", "nameless", "hidden", "ssh", "http", "record", "handshake", "nothing"],
)
async def test_nothing_goes_up_a_tunnel_that_does_not_begin_with_its_own_hello(
    said: bytes,
) -> None:
    async with far_side() as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(said)
        if not said:
            child.writer.write_eof()
        assert await child.rest() == b""
        await eventually_async(lambda: run.ended)
        child.writer.close()
        assert run.verdicts == [
            ("allowed", "far.test", far.port),
            ("refused", "far.test", far.port),
        ]
        assert run.ended[0].sent == 0
        assert not far.heard


async def test_a_hello_that_comes_byte_by_byte_arrives_whole() -> None:
    hello = client_hello("far.test")
    async with far_side() as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        for number in range(len(hello) - 1):
            child.writer.write(hello[number : number + 1])
            await child.writer.drain()
        await eventually_async(lambda: run.decisions)
        assert not far.heard
        child.writer.write(hello[-1:])
        assert await hear(child, len(hello)) == hello
        child.writer.close()


async def test_a_tunnel_that_says_nothing_is_closed() -> None:
    limits = ProxyLimits(hello_s=0.05)
    async with far_side() as far, running_proxy(*rules(far), limits=limits) as run:
        child = await run.tunnel("far.test", far.port)
        assert await child.rest() == b""
        child.writer.close()
        assert run.decisions[-1].reason == "no ClientHello came in time"
        assert not far.heard


# -- both ways, to the end -------------------------------------------------------------------------


async def test_one_side_can_say_all_and_still_hear_the_other() -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())
        writer.write(b"answer")

    hello = client_hello("far.test")
    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(hello + b"question")
        child.writer.write_eof()
        assert await child.rest() == b"answer"
        child.writer.close()
        await eventually_async(lambda: run.ended)
    assert bytes(heard) == hello + b"question"


async def test_the_far_side_can_say_all_and_still_hear_the_child() -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        heard.extend(await reader.read())

    hello = client_hello("far.test")
    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(hello)
        assert await child.rest() == b"bye"
        child.writer.write(b"still here")
        child.writer.write_eof()
        await eventually_async(lambda: run.ended)
        child.writer.close()
    assert bytes(heard) == hello + b"still here"


async def test_a_side_that_is_gone_ends_the_other() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        gone.set()

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(client_hello("far.test"))
        await eventually_async(lambda: far.connections)
        child.writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()
        await eventually_async(lambda: run.ended)


async def test_nothing_piles_up_when_a_child_does_not_read() -> None:
    poured = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        await reader.read(65536)
        while poured < 256 << 20:
            writer.write(bytes(1 << 20))
            await writer.drain()
            poured += 1 << 20

    async with far_side(pour) as far, running_proxy(*rules(far)) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(client_hello("far.test"))
        amounts = [-1]

        def stands_still() -> bool:
            amounts.append(poured)
            return amounts[-1] == amounts[-2]

        # Until the kernel's buffers are full.
        await eventually_async(stands_still, every_s=0.3)
        assert poured < 64 << 20
        child.writer.transport.abort()
        await eventually_async(lambda: run.ended)


async def test_nothing_piles_up_when_the_far_side_does_not_read() -> None:
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    limits = ProxyLimits(idle_s=0.5)
    async with far_side(ignore) as far, running_proxy(*rules(far), limits=limits) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(client_hello("far.test"))
        sent = 0
        with suppress(ConnectionError):
            while sent < 256 << 20:
                child.writer.write(bytes(1 << 20))
                async with asyncio.timeout(PATIENCE_S):
                    await child.writer.drain()
                sent += 1 << 20
        child.writer.close()
        await eventually_async(lambda: run.ended)
        assert sent < 64 << 20
        assert run.decisions[-1].reason == "it was idle for 0.5 s"


async def test_many_tunnels_at_once_keep_apart() -> None:
    hello = client_hello("far.test")

    async def talk(number: int) -> None:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(hello)
        await hear(child, len(hello))
        message = b"%08d" % number * 1000
        child.writer.write(message)
        assert await hear(child, len(message)) == message
        child.writer.close()

    async with far_side() as far, running_proxy(*rules(far)) as run:
        async with asyncio.TaskGroup() as talks:
            for number in range(100):
                talks.create_task(talk(number))
        await eventually_async(lambda: len(run.ended) == 100)
        assert len({one.number for one in run.ended}) == 100


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [ProxyLimits(upload_per_connection=100_000), ProxyLimits(upload_per_run=100_000)],
    ids=["connection", "run"],
)
async def test_a_tunnel_that_sends_too_much_is_cut_off(limits: ProxyLimits) -> None:
    async with far_side() as far, running_proxy(*rules(far), limits=limits) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(client_hello("far.test"))
        with suppress(ConnectionError):
            for _ in range(100):
                child.writer.write(b"x" * 10_000)
                await child.writer.drain()
        await child.rest()
        child.writer.close()
        await eventually_async(lambda: run.ended)
        assert "has sent more than 100000 bytes" in run.decisions[-1].reason
        assert run.decisions[-1].verdict == "refused"
        assert len(far.heard) <= 100_000


async def test_a_run_that_has_sent_too_much_sends_nothing_more() -> None:
    limits = ProxyLimits(upload_per_run=1_000)
    async with far_side(answer_ok) as far, running_proxy(*rules(far), limits=limits) as run:
        for _ in range(3):
            asked = get(f"http://far.test:{far.port}/", "Content-Length: 600")
            await run.ask(asked.replace(b"GET", b"POST", 1) + b"x" * 600)
        await eventually_async(lambda: len(run.ended) == 3)
    assert [one.sent for one in run.ended] == [600, 0, 0]


async def test_what_several_proxies_of_a_run_send_adds_up() -> None:
    uploads = UploadBudget(ProxyLimits(upload_per_run=3_000))
    hello = client_hello("far.test")
    async with far_side() as far:
        for passes in (True, False):
            async with running_proxy(*rules(far), uploads=uploads) as run:
                child = await run.tunnel("far.test", far.port)
                child.writer.write(hello + b"x" * (2_500 - len(hello)))
                heard = await hear(child, 2_500) if passes else await child.rest()
                assert len(heard) == (2_500 if passes else 0)
                child.writer.close()


async def test_what_is_in_heads_counts_as_sent() -> None:
    limits = ProxyLimits(upload_per_run=20_000)
    async with far_side(answer_ok) as far, running_proxy(*rules(far), limits=limits) as run:
        asked = (
            f"GET http://far.test:{far.port}/?{'x' * 6_000} HTTP/1.1\r\n"
            f"Host: far.test:{far.port}\r\nX: {'y' * 6_000}\r\n"
            f"Proxy-Authorization: Bearer {TOKEN}\r\n\r\n"
        ).encode()
        assert [(await run.ask(asked))[0] for _ in range(3)] == [200, 413, 413]
    assert far.connections == 1


ODD_ANSWERS = {
    "it changes protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nraw bytes",
    "its length is said twice": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!"
    ),
    "it is longer than it says": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" + b"HTTP/1.1 2",
    "it is shorter than it says": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
    "it has both framings": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n"
        b"2\r\nok\r\n0\r\n\r\n"
    ),
    "a field hides another": (
        b"HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\ncontent-length: 2\r\n\r\nok"
    ),
    "a field is folded": b"HTTP/1.1 200 OK\r\nx: a\r\n b: c\r\ncontent-length: 2\r\n\r\nok",
    "it has hints before it": (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 3
        + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    ),
    "it has a trailer": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: set-cookie\r\n\r\n"
        b"2;x=y\r\nok\r\n0\r\nset-cookie: a=b\r\n\r\n"
    ),
}


CUT_OFF = ("it changes protocols", "it is shorter than it says", "it has both framings")


@pytest.mark.parametrize("odd", ODD_ANSWERS)
async def test_an_odd_answer_comes_back_with_one_meaning_or_not_at_all(odd: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ODD_ANSWERS[odd])

    async with far_side(serve) as far, running_proxy(*rules(far)) as run:
        child = await run.child()
        child.writer.write(
            f"GET http://far.test:{far.port}/ HTTP/1.1\r\nHost: far.test:{far.port}\r\n"
            f"Proxy-Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        got = await child.rest()
        child.writer.close()
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "far.test")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(got)
    reader.receive_data(b"")
    fields, body = dict[bytes, bytes](), b""
    try:
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            assert not isinstance(event, h11.InformationalResponse)
            if isinstance(event, h11.Response):
                fields = dict(event.headers)
                assert event.status_code in (200, 502)
            elif isinstance(event, h11.Data):
                body += event.data
    except h11.RemoteProtocolError:
        assert odd in CUT_OFF, got
    assert body in (b"", b"ok") or b"broke" in body
    assert not {b"set-cookie", b"upgrade", b"link", b"b"} & set(fields)
    assert fields.get(b"connection", b"close") == b"close"


async def test_a_body_that_says_it_is_too_large_is_refused_before_anybody_is_asked() -> None:
    limits = ProxyLimits(upload_per_connection=1_000)
    async with far_side(answer_ok) as far, running_proxy(*rules(far), limits=limits) as run:
        asked = get(f"http://far.test:{far.port}/", "Content-Length: 1001")
        assert (await run.ask(asked.replace(b"GET", b"POST", 1)))[0] == 413
        assert far.untouched


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ProxyLimits(idle_s=0.1), "it was idle for"),
        (ProxyLimits(connection_s=0.1), "time limit of the connection"),
        (ProxyLimits(run_s=0.5), "time limit of the connection"),
    ],
    ids=["idle", "connection", "run"],
)
async def test_a_tunnel_ends_when_its_time_is_up(limits: ProxyLimits, reason: str) -> None:
    hello = client_hello("far.test")
    async with far_side() as far, running_proxy(*rules(far), limits=limits) as run:
        child = await run.tunnel("far.test", far.port)
        child.writer.write(hello)
        assert (await child.rest()) in (hello, b"")
        child.writer.close()
        await eventually_async(lambda: run.ended)
        assert reason in run.decisions[-1].reason


async def test_a_run_whose_time_is_up_gets_no_new_connections() -> None:
    async with far_side() as far, running_proxy(*rules(far), limits=ProxyLimits(run_s=0)) as run:
        assert (await run.ask(connect(f"far.test:{far.port}")))[0] == 403
        assert far.untouched


async def test_a_head_that_comes_too_slowly_is_not_waited_for() -> None:
    async with running_proxy("far.test", limits=ProxyLimits(head_s=0.1)) as run:
        status, _ = await run.ask(b"CONNECT far.test:443 HT")
        assert status == 408


async def test_further_connections_are_turned_away_until_there_is_room() -> None:
    limits = ProxyLimits(connections=2)
    async with far_side() as far, running_proxy(*rules(far), limits=limits) as run:
        children = [await run.tunnel("far.test", far.port) for _ in range(2)]
        for _ in range(3):
            assert (await run.ask(b""))[0] == 503
        assert [one.reason for one in run.decisions if one.verdict == "refused"] == [
            "there are too many connections at once"
        ] * 3
        for child in children:
            child.writer.close()
        await eventually_async(lambda: len(run.ended) == 2)
        child = await run.tunnel("far.test", far.port)
        child.writer.close()


async def test_a_proxy_that_is_overloaded_for_long_ends_with_its_tunnels() -> None:
    limits = ProxyLimits(connections=2, max_rejected=3)

    async def overload(far: Far) -> None:
        async with running_proxy(*rules(far), limits=limits) as run:
            children = [await run.tunnel("far.test", far.port) for _ in range(2)]
            for _ in range(4):
                assert (await run.ask(b""))[0] == 503
            await asyncio.wait({run.task}, timeout=PATIENCE_S)
            for child in children:
                assert await child.rest() == b""
                child.writer.close()
            with pytest.raises(ConnectionRefusedError):
                await run.child()

    async with far_side() as far:
        with pytest.raises(EgressError, match="overloaded: there are too many connections"):
            await overload(far)


async def test_a_closed_port_is_told_and_not_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with running_proxy(f"far.test:{port}", f"127.0.0.1:{port}") as run:
        status, body = await run.ask(connect(f"far.test:{port}"))
        assert status == 502
        assert b"cannot be reached" in body
        assert [one.verdict for one in run.decisions] == ["allowed"]
        assert "cannot be reached" in run.ended[0].reason


# -- failing closed --------------------------------------------------------------------------------


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def test_a_proxy_that_cannot_go_on_ends_with_its_tunnels() -> None:
    async with far_side() as far:
        listener = listening()
        port = listener.getsockname()[1]
        allowed = Allowlist((parse_rules("provider 'x'", rules(far)),))
        proxy = Proxy(allowed, token="", on_decision=lambda _: None, lookup=always("127.0.0.1"))
        serving = asyncio.create_task(proxy.serve(listener))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        child = Child(reader, writer)
        writer.write(connect(f"far.test:{far.port}", token=""))
        await child.head()
        listener.shutdown(socket.SHUT_RDWR)
        with pytest.raises(EgressError, match="the proxy of this run stopped"):
            await asyncio.wait_for(serving, PATIENCE_S)
        assert await child.rest() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_proxy_that_cannot_start_raises(*, closed: bool) -> None:
    not_listening = socket.socket()
    if closed:
        not_listening.close()
    proxy = Proxy(Allowlist(), token="", on_decision=lambda _: None)
    with pytest.raises(EgressError, match="the proxy of this run stopped"):
        await asyncio.wait_for(proxy.serve(not_listening), PATIENCE_S)


async def test_a_proxy_that_cannot_report_lets_nothing_through_and_stops() -> None:
    def fail(_: Decision) -> None:
        raise OSError("the journal is full")

    async with far_side() as far:
        listener = listening()
        port = listener.getsockname()[1]
        allowed = Allowlist((parse_rules("provider 'x'", rules(far)),))
        proxy = Proxy(allowed, token="", on_decision=fail, lookup=always("127.0.0.1"))
        serving = asyncio.create_task(proxy.serve(listener))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(connect(f"far.test:{far.port}", token="") + client_hello("far.test"))
        with pytest.raises(EgressError, match="the journal is full"):
            await asyncio.wait_for(serving, PATIENCE_S)
        assert await Child(reader, writer).rest() == b""
        writer.close()
        assert far.untouched


async def test_when_the_run_ends_so_does_everything_of_its_proxy() -> None:
    async with far_side() as far:
        async with running_proxy(*rules(far)) as run:
            child = await run.tunnel("far.test", far.port)
            hello = client_hello("far.test")
            child.writer.write(hello)
            await hear(child, len(hello))
        assert await child.rest() == b""
        child.writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", run.port)
        assert len(run.ended) == 1
        async with asyncio.timeout(PATIENCE_S):
            await far.ended.wait()


async def test_who_knocks_while_the_proxy_ends_is_not_let_in() -> None:
    for _ in range(20):
        async with running_proxy() as run:
            assert (await run.ask(b"it serves by now\r\n\r\n"))[0] == 400
            knocking = [socket.create_connection(("127.0.0.1", run.port)) for _ in range(8)]
            # The sockets are ready now, and the proxy hears of them as it is told to end.
            run.task.cancel()
            with suppress(asyncio.CancelledError):
                await run.task
        for each in knocking:
            each.close()
        gc.collect()  # what is left behind is a warning, and that is an error


async def test_a_run_with_its_tunnels_needs_little_memory() -> None:
    runs = 20
    hello = client_hello("far.test")

    async def measure(count: int, children: list[Child]) -> int:
        for _ in range(count):
            run = await stack.enter_async_context(running_proxy(*rules(far)))
            for _ in range(5):
                child = await run.tunnel("far.test", far.port)
                child.writer.write(hello)
                await hear(child, len(hello))
                children.append(child)
        return int(psutil.Process(os.getpid()).memory_info().rss)

    async with far_side() as far, AsyncExitStack() as stack:
        children: list[Child] = []
        before = await measure(1, children)
        after = await measure(runs, children)
        for child in children:
            child.writer.close()
    assert (after - before) / runs < 5 << 20
