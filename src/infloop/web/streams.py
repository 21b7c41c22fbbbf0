"""Server-sent events.

- Events that arrive within 10 ms are one write.
- A comment is sent as a heartbeat when nothing happens.
- The number of open streams is limited.
- A client that never reads blocks only its own connection and costs one batch.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from infloop.model.events import Recorded
from infloop.model.messages import Message, RunFinished, expand
from infloop.web.errors import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from infloop.model.values import JsonObject

HEARTBEAT_SECONDS = 15.0
GATHER_SECONDS = 0.01
MAX_STREAMS = 256
_CACHED = 4096

_encoder = msgspec.json.Encoder()


def frame(message: Message | JsonObject, name: str = "") -> bytes:
    """Return one server-sent event; a client resumes from its `name`."""
    data = _encoder.encode(message)
    return b"id: %s\ndata: %s\n\n" % (name.encode(), data) if name else b"data: %s\n\n" % data


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; each `data` is one JSON object with its `type`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""How a stream is documented."""


class Frames:
    """Encoded messages of recorded events; each is encoded once for all clients."""

    def __init__(self, scope: Callable[[str], Awaitable[JsonObject]]) -> None:
        self._scope = scope
        self._encoded: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def of_run(self, recorded: Recorded) -> bytes:
        """Return an event's frames, named by its sequence number."""
        key = recorded.run_id, recorded.seq
        known = self._encoded.get(key)
        if known is None:
            known = self._encoded[key] = await self.named(recorded, str(recorded.seq))
            if len(self._encoded) > _CACHED:
                self._encoded.popitem(last=False)
        return known

    async def named(self, recorded: Recorded, name: str) -> bytes:
        """Return an event's frames; only the last has the name, so that none is lost on resume."""
        messages = expand(recorded)
        if not messages:
            return b""
        if len(messages) == 1 and not isinstance(messages[0], RunFinished):
            return frame(messages[0], name)
        *first, last = messages
        if isinstance(last, RunFinished):
            last.scope = await self._scope(recorded.run_id)
        return b"".join(map(frame, first)) + frame(last, name)


class Streams:
    """All open streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self._open: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams and refuse new ones."""
        self._closed = True
        for task in self._open:
            task.cancel()

    @contextmanager
    def register(self, task: asyncio.Task[None]) -> Iterator[None]:
        """Count a stream while this is open; raise Refused if there are too many."""
        if self._closed or len(self._open) >= self._limit:
            task.cancel()
            raise Refused(
                503,
                "too-many-streams",
                f"{len(self._open)} event streams are open already; close one, or try again later",
                headers={"retry-after": "5"},
            )
        self._open.add(task)
        try:
            yield
        finally:
            self._open.discard(task)


class EventStream(Response):
    """A response that streams `batches` until they end or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, batches: AsyncGenerator[bytes], streams: Streams) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._batches = batches
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        with self._streams.register(writing):
            disconnect = asyncio.create_task(_disconnected(receive))
            try:
                await asyncio.wait({writing, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (writing, disconnect):
                    task.cancel()
                await asyncio.gather(writing, disconnect, return_exceptions=True)
        if not writing.cancelled():
            writing.result()  # raises what went wrong, for the log
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in _with_heartbeats(self._batches):
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(GATHER_SECONDS)


async def _disconnected(receive: Receive) -> None:
    """Return when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _with_heartbeats(batches: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the batches, and a comment after each quiet period."""
    waiting: asyncio.Future[bytes] | None = None
    try:
        yield b": stream\n\n"
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(batches))
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": alive\n\n"
                continue
            try:
                chunk = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield chunk
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await batches.aclose()
