"""How many connections there may be, and who has to give way."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infloop.web.connections import Connections, Sender, most_connections
from support.server import PATIENCE, Events, Process, here, process, put_workflow, raw, workflow
from support.thorough import amount, some

IDLE = amount(1_000, thorough=3_000)


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    """Allow this process, and the server, enough descriptors for all that are idle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (IDLE + 1_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


SLOW = {
    "nothing": b"",
    "a head": b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n",
    "a body": (
        b"POST /api/webhook/aaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 9\r\n\r\n{"
    ),
    "a request": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.thorough
@pytest.mark.usefixtures("_many_descriptors")
@pytest.mark.parametrize("what", some([*SLOW], one_in=3))
def test_very_many_slow_connections_starve_nobody_and_cut_no_stream(
    tmp_path: Path, what: str
) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    with process(tmp_path) as served, ExitStack() as held:
        stream = held.enter_context(Events(served.client, "/api/events"))
        for _ in range(IDLE):
            slow = held.enter_context(socket.socket())
            slow.settimeout(PATIENCE)
            slow.connect(("127.0.0.1", served.client.port))
            slow.sendall(SLOW[what])
        for _ in range(20):
            assert served.client.get("/api/workflows").status == 200
        assert served.client.run("tiny")["status"] == "succeeded"
        assert stream.until("run_finished")
        assert 0 < accepted(served) < most_connections() // 2 + 200 < IDLE


def accepted(served: Process) -> int:
    """Count the connections that the server holds; its descriptors are hidden from its own user."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    at_port = (line for line in lines if int(line[1].rpartition(":")[2], 16) == served.client.port)
    return sum(line[3] == "01" and line[9] != "0" for line in at_port)


@dataclass(eq=False)
class Open:
    """A connection that notes that it was closed."""

    sender: Sender
    waiting: bool = True
    dropped: bool = field(default=False, init=False)

    def drop(self) -> None:
        self.dropped = True


class Stand:
    """A server with room for eight connections, four for each sender."""

    def __init__(self) -> None:
        self.refused = 0
        self.all = Connections(lambda peer, own: None, most=8, refused=self._refused)

    def _refused(self) -> None:
        self.refused += 1

    def open(self, sender: str, *, waiting: bool = True) -> Open:
        made = Open(Sender(sender), waiting)
        if not self.all.admit(made):
            made.dropped = True
        return made


def test_a_sender_displaces_its_own_oldest_waiting_connection() -> None:
    stand = Stand()
    other = stand.open("b")
    busy = stand.open("a", waiting=False)
    waiting = [stand.open("a") for _ in range(20)]
    assert not other.dropped
    assert not busy.dropped
    assert [each.dropped for each in waiting] == [True] * 17 + [False] * 3
    assert len(stand.all) == 5


def test_a_sender_whose_connections_are_all_busy_is_refused_and_others_are_not() -> None:
    stand = Stand()
    busy = [stand.open("a", waiting=False) for _ in range(6)]
    assert [each.dropped for each in busy] == [False] * 4 + [True] * 2
    assert stand.refused == 2
    assert not any(stand.open("b", waiting=False).dropped for _ in range(4))


def test_when_all_are_used_up_the_sender_with_most_gives_way() -> None:
    stand = Stand()
    many = [stand.open("a") for _ in range(4)]
    few = [stand.open("b") for _ in range(3)]
    one, another = stand.open("c"), stand.open("d")
    assert [each.dropped for each in many] == [True, False, False, False]
    assert not any(each.dropped for each in (*few, one, another))


def test_connections_of_many_senders_are_bounded_together() -> None:
    stand = Stand()
    made = [stand.open(f"sender {number}") for number in range(100)]
    assert len(stand.all) == sum(not each.dropped for each in made) == 8


def test_a_connection_that_ends_makes_room() -> None:
    stand = Stand()
    first, *_ = [stand.open("a", waiting=False) for _ in range(4)]
    assert stand.open("a").dropped
    stand.all.release(first)
    stand.all.release(first)
    assert not stand.open("a", waiting=False).dropped
    assert len(stand.all) == 4


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("127.0.0.1", "user 7"),
        ("127.8.9.1", "user 7"),
        ("::1", "user 7"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_sender_is_a_user_of_this_machine_or_another_machine(peer: str, name: str) -> None:
    everything = Connections(lambda peer, own: 7, refused=lambda: None)
    assert everything.sender((peer, 1), ("127.0.0.1", 3000)).name == name


def test_a_peer_that_is_gone_is_nobody() -> None:
    everything = Connections(lambda peer, own: None, refused=lambda: None)
    assert everything.sender(None, None).user is None
    assert everything.sender(("127.0.0.1", 1), ("127.0.0.1", 3000)).user is None


# -- chunked bodies --------------------------------------------------------------------------------

HEAD = b"POST /api/webhook/aaaaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
BEFORE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

PADDED = {
    "an extension": b"2;a=" + b"x" * 65_536 + b"\r\n{}\r\n0\r\n\r\n",
    "many extensions": b"2" + b";a=b" * 16_384 + b"\r\n{}\r\n0\r\n\r\n",
    "a quoted extension": b'2;a="' + b"x" * 65_536 + b'"\r\n{}\r\n0\r\n\r\n',
    "an extension of the last chunk": b"2\r\n{}\r\n0;a=" + b"x" * 65_536 + b"\r\n\r\n",
    "an extension for each chunk": (b"1;a=" + b"x" * 1_000 + b"\r\n \r\n") * 64 + b"0\r\n\r\n",
    "a trailer": b"2\r\n{}\r\n0\r\nx: " + b"x" * 65_536 + b"\r\n\r\n",
    "many trailers": b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 16_384 + b"\r\n",
    "zeros before the size": b"0" * 65_536 + b"2\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", PADDED)
@pytest.mark.parametrize("before", [b"", BEFORE], ids=["alone", "after another"])
async def test_a_chunked_body_with_much_beside_its_data_is_refused(
    tmp_path: Path, case: str, before: bytes
) -> None:
    async with here(tmp_path) as served:
        got = await asyncio.to_thread(raw, served.client.port, before + CHUNKED + PADDED[case])
    assert b"HTTP/1.1 400" in got, got[:300]
    assert b"HTTP/1.1 401" not in got


PLAIN = {
    "one chunk": b"2\r\n{}\r\n0\r\n\r\n",
    "small chunks": b"1\r\n \r\n" * 20_000 + b"2\r\n{}\r\n0\r\n\r\n",
    "a large chunk": b"f0000\r\n" + b" " * 0xF0000 + b"\r\n0\r\n\r\n",
    "a small extension": b"2;a=b\r\n{}\r\n0\r\n\r\n",
    "a small trailer": b"2\r\n{}\r\n0\r\nx: y\r\n\r\n",
}


@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("before", [b"", BEFORE], ids=["alone", "after another"])
async def test_an_ordinary_chunked_body_is_read(tmp_path: Path, case: str, before: bytes) -> None:
    async with here(tmp_path) as served:
        got = await asyncio.to_thread(raw, served.client.port, before + CHUNKED + PLAIN[case])
    assert b"HTTP/1.1 401" in got, got[:300]
