"""A run's proxy, a server behind it that counts its connections, and a child's requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from infloop.egress.broker import Broker
from infloop.egress.limits import ProxyLimits, UploadBudget
from infloop.egress.proxy import Proxy
from infloop.egress.reports import ConnectionEnded, Decision
from infloop.egress.resolve import Lookup
from infloop.policy.hosts import Allowlist, parse_rules
from support.eventually import eventually_async

PATIENCE_S = 20.0
TOKEN = "the-token-of-the-run"


@dataclass
class Far:
    """A server on loopback: how often it was reached, and what it heard."""

    port: int = 0
    connections: int = 0
    heard: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def untouched(self) -> bool:
        return self.connections == 0 and not self.heard


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a request's head and its body, as it comes over the wire."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await reader.readexactly(int(line.partition(b":")[2]))
        if line.startswith(b"transfer-encoding:"):
            return head, await reader.readuntil(b"0\r\n\r\n")
    return head, b""


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


@asynccontextmanager
async def far_side(
    serve: Serve | None = None, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Far]:
    """Listen; without `serve`, echo everything."""
    far = Far()
    serving: set[asyncio.Task[Any]] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            far.heard += data
            writer.write(data)
            await writer.drain()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far.connections += 1
        task = asyncio.create_task((serve or echo)(reader, writer))
        serving.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await task
        finally:
            far.ended.set()
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            serving.discard(task)

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    far.port = server.sockets[0].getsockname()[1]
    try:
        yield far
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await eventually_async(lambda: not serving)


def always(*addresses: str) -> Lookup:
    """Return a resolver with one answer for all names."""

    async def lookup(_: str) -> Sequence[str]:
        return addresses

    return lookup


@dataclass
class Run:
    """A proxy that is serving, and what it reported."""

    port: int
    task: asyncio.Task[None]
    decisions: list[Decision]
    ended: list[ConnectionEnded]

    @property
    def verdicts(self) -> list[tuple[str, str, int]]:
        return [(one.verdict, one.host, one.port) for one in self.decisions]

    async def child(self) -> Child:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return Child(reader, writer)

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request as a child; return the status and the body."""
        async with asyncio.timeout(PATIENCE_S):
            child = await self.child()
            child.writer.write(data)
            answer = await child.rest()
            child.writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split(b" ")[1]) if head else 0), body

    async def tunnel(self, host: str, port: int, *, token: str = TOKEN) -> Child:
        """Open a tunnel as a child; the answer must be that it is open."""
        child = await self.child()
        child.writer.write(connect(f"{host}:{port}", token=token))
        head = await child.head()
        assert head.startswith(b"HTTP/1.1 200 "), head
        return child


@dataclass
class Child:
    """A child's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Read until the other side is done, however it ends."""
        got = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                while piece := await self.reader.read(65536):
                    got += piece
        return bytes(got)


def connect(authority: str, *, token: str = TOKEN, more: str = "") -> bytes:
    shown = f"Proxy-Authorization: Bearer {token}\r\n" if token else ""
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{shown}{more}\r\n".encode()


@asynccontextmanager
async def running_proxy(
    *rules: str,
    denied: Sequence[str] = (),
    token: str = TOKEN,
    lookup: Lookup | None = None,
    limits: ProxyLimits | None = None,
    broker: Broker | None = None,
    uploads: UploadBudget | None = None,
) -> AsyncIterator[Run]:
    """Serve a run whose provider lists `rules`; names lead to this machine unless `lookup` says."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    decisions: list[Decision] = []
    ended: list[ConnectionEnded] = []
    allowed = Allowlist(
        (parse_rules("provider claude", rules),), parse_rules("the operator", denied)
    )
    proxy = Proxy(
        allowed,
        token=token,
        on_decision=decisions.append,
        on_ended=ended.append,
        lookup=lookup or always("127.0.0.1"),
        limits=limits,
        broker=broker,
        uploads=uploads,
    )
    task = asyncio.create_task(proxy.serve(listener))
    with listener:
        try:
            yield Run(port, task, decisions, ended)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def client_hello(server_name: str | None) -> bytes:
    """Return what a real TLS client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
