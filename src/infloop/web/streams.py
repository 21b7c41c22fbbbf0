"""Server-sent events: many small events in one write, and nothing left behind by who went away.

A stream is made of batches; between two writes there is a pause in which more gathers, and a
heartbeat when nothing does. How many streams are open at once is bounded. A client that never reads
is held up by its own connection (`connection`) and costs one batch.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

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
MOST_STREAMS = 256
_CACHED = 4096

_encoder = msgspec.json.Encoder()


def frame(message: Message | JsonObject, name: str = "") -> bytes:
    """Return one event as it is written; `name` is what a client resumes from."""
    data = _encoder.encode(message)
    return b"id: %s\ndata: %s\n\n" % (name.encode(), data) if name else b"data: %s\n\n" % data


class Frames:
    """The messages of recorded events as they are written; each is encoded once for all clients."""

    def __init__(self, scope: Callable[[str], Awaitable[JsonObject]]) -> None:
        self._scope = scope
        self._made: OrderedDict[int, tuple[Recorded, bytes]] = OrderedDict()

    async def of_run(self, recorded: Recorded) -> bytes:
        """Return an event under its number in its run."""
        known = self._made.get(id(recorded))
        if known is not None:
            return known[1]
        made = await self.named(recorded, str(recorded.seq))
        self._made[id(recorded)] = recorded, made  # the event is kept, so its id stays its own
        if len(self._made) > _CACHED:
            self._made.popitem(last=False)
        return made

    async def named(self, recorded: Recorded, name: str) -> bytes:
        """Return an event's messages; only the last has the name, so none is lost on resuming."""
        messages = expand(recorded)
        if not messages:
            return b""
        *first, last = messages
        if isinstance(last, RunFinished):
            last.scope = await self._scope(recorded.run_id)
        return b"".join(map(frame, first)) + frame(last, name)


class Streams:
    """All open streams; closing ends every one of them."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._open: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._closed = True
        for task in self._open:
            task.cancel()

    @contextmanager
    def place(self, task: asyncio.Task[None]) -> Iterator[None]:
        """Take one of the places; raise Refused if there is none."""
        if self._closed or len(self._open) >= self._most:
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
    """An answer that goes on: `batches` until they end, or until the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, batches: AsyncGenerator[bytes], streams: Streams) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._batches = batches
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream."""
        writing = asyncio.create_task(self._write(send))
        with self._streams.place(writing):
            leaving = asyncio.create_task(_left(receive))
            try:
                await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (writing, leaving):
                    task.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)
        if not writing.cancelled():
            writing.result()  # whatever went wrong is for the log
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in _with_heartbeats(self._batches):
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(GATHER_SECONDS)


async def _left(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _with_heartbeats(batches: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the batches, and a comment whenever there was none for a while."""
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
