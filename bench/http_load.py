"""A light HTTP/1.1 client: so many connections, on each one request after another.

It writes requests that were made before and looks at answers no more than it must, so that what is
measured is the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

END = b"\r\n\r\n"
LENGTH = b"content-length: "


@dataclass(slots=True)
class Answers:
    """What came back: how many of each status, and how long each took, in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def slowest_hundredth(self) -> float:
        """Return how long it took to answer all but one in a hundred."""
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]


class Asker(asyncio.Protocol):
    """Sends one request after another on one connection, until there are no more."""

    def __init__(self, requests: Iterator[bytes], answers: Answers) -> None:
        self._requests = requests
        self._answers = answers
        self._buffer = b""
        self._began = 0.0
        self._transport: asyncio.Transport
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(END)
        if head < 0:
            return
        length = self._buffer.find(LENGTH, 0, head)
        if length >= 0:
            end = self._buffer.find(b"\r\n", length)
            if len(self._buffer) < head + len(END) + int(self._buffer[length + len(LENGTH) : end]):
                return
        self._answers.seconds.append(time.perf_counter() - self._began)
        self._answers.statuses[int(self._buffer[9:12])] += 1
        self._buffer = b""
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server hung up"))


async def ask_all(port: int, requests: Iterator[bytes], connections: int) -> Answers:
    """Send all requests over so many connections."""
    answers = Answers()
    loop = asyncio.get_running_loop()
    askers = [
        (await loop.create_connection(lambda: Asker(requests, answers), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(asker.done for asker in askers))
    return answers


def get(port: int, path: str) -> bytes:
    """Return a GET request."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()


def post(port: int, path: str, body: bytes, headers: str = "") -> bytes:
    """Return a POST request with a JSON body; each line of `headers` ends as in HTTP."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"{headers}content-length: {len(body)}\r\n\r\n"
    ).encode() + body
