"""A server on loopback that plays what a test gives it, byte by byte.

Each request gets the next act, and the last act is repeated. An act is a sequence of

    bytes       written as they are
    a function  waited for until it returns true
    HANG        nothing more, until the other side leaves
    RESET       the connection is cut

and after it the connection is closed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

from infloop.model.provider import HttpProvider
from support.eventually import eventually_async
from support.fake_model import Asked, Speech, head, read_request, whole_answer

HANG: Final = "hang"
RESET: Final = "reset"
Act: TypeAlias = Sequence[bytes | Callable[[], bool] | str]

STREAM = head(200, {"content-type": "text/event-stream"})
DEADLINE_S = 30.0


class Stage:
    """The server; open it with `async with`."""

    def __init__(self, *acts: Act) -> None:
        self.asked: list[Asked] = []
        self.left = asyncio.Event()
        self._acts = acts
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await read_request(reader))
            act = self._acts[min(len(self.asked), len(self._acts)) - 1]
            for move in act:
                if isinstance(move, bytes):
                    writer.write(move)
                    await writer.drain()
                elif move == HANG:
                    await reader.read()
                    self.left.set()
                elif move == RESET:
                    linger = struct.pack("ii", 1, 0)  # closing then means a reset
                    connection = writer.get_extra_info("socket")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                elif callable(move):
                    await eventually_async(move)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()


def event(data: object) -> bytes:
    """An event with some data, or with a text as it is."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}\n\n".encode()


def events(speech: Speech) -> list[bytes]:
    """Each event of an answer."""
    return [event(data) for _, data in (*speech.stream, *speech.end)]


def stream(*data: object) -> Act:
    """A whole answer of these events."""
    return [STREAM, *map(event, data)]


def refusal(status: int, body: object = "", headers: Mapping[str, str] | None = None) -> Act:
    """An answer that is an error."""
    if isinstance(body, dict):
        return [whole_answer(status, body, headers)]
    text = body if isinstance(body, bytes) else str(body).encode()
    return [head(status, {"content-length": str(len(text)), **(headers or {})}) + text]


def manifest(base_url: str, **changes: Any) -> HttpProvider:
    """A manifest for a server."""
    return HttpProvider.model_validate(
        {
            "id": "local",
            "label": "Local",
            "description": "a server on loopback",
            "transport": "http",
            "baseUrl": f"{base_url}/v1",
            "endpoint": "/chat/completions",
            "defaultProfile": "gpt-5.4",
            **changes,
        }
    )
