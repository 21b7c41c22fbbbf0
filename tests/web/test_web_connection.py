"""The bounds of one connection, on a real socket, with bounds that a test can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvicorn

from infloop.web.connection import BoundedProtocol
from infloop.web.connections import Connections
from infloop.web.http_server import _Server, bind_port


class Quick(BoundedProtocol):
    head_seconds = 0.3
    head_bytes = 4_096
    stuck_seconds = 0.3


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    ready = asyncio.Event()
    with bind_port("127.0.0.1", 0, lambda _: None) as listening:
        port: int = listening.getsockname()[1]
        connections = Connections(lambda peer, own: None, refused=lambda: None)
        protocol: Any = partial(Quick, all_connections=connections)
        config = uvicorn.Config(
            app, http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = _Server(config, ready.set)
        task = asyncio.create_task(server.serve([listening]))
        await ready.wait()
        try:
            yield port
        finally:
            server.should_exit = True
            async with asyncio.timeout(10):
                await task


async def hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with served(hello) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()


async def test_a_head_that_trickles_in_is_not_waited_for() -> None:
    async with served(hello) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            writer.write(b"X: y\r\n")
            await asyncio.wait({closed}, timeout=0.05)
        assert closed.result() == b""
        writer.close()


async def test_a_head_without_end_is_refused() -> None:
    async with served(hello) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 300)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_a_large_head_that_is_complete_at_once_counts_too() -> None:
    async with served(hello) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /" + b"a" * 8_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_requests_one_after_the_other_each_have_their_own_time() -> None:
    async with served(hello) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n")
            for _ in range(9):
                writer.write(b"x" * 1_000)
                await asyncio.sleep(0.02)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readuntil(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
        writer.close()


async def test_a_client_that_never_reads_is_given_up() -> None:
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.create_task(_left(receive))
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        ended.set()

    async with served(endless) as port, asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_024)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ended.wait()
        writer.close()


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
