"""The tools on standard input and output: one JSON message a line, and nothing else.

Whatever else this process prints goes to standard error. Reading and writing happen in threads that
nobody waits for, so a client that neither speaks nor reads cannot keep this process from ending.
While a client has too many calls without an answer, no more are read.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from infloop.application.caller import Caller
from infloop.errors import UsageError
from infloop.mcp_server.messages import read_message, unreadable
from infloop.mcp_server.server import build_server
from infloop.model.audit import Actor
from infloop.model.reading import MAX_FILE_BYTES
from infloop.model.values import compact_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from infloop.mcp_server.dependencies import McpDependencies

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]

CHUNK = 64 << 10
MOST_UNANSWERED = 64
LAST_ANSWERS_SECONDS = 5.0
"""How long calls may still take when the client has said its last word."""

Result = TypeVar("Result")


async def serve_stdio(mcp: McpDependencies, wire: Wire, stopping: asyncio.Event) -> None:
    """Answer the client on the wire until it closes its end, or `stopping` is set."""
    server = build_server(mcp, _caller)
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage]()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(wire.read_into(to_server))
        writing = group.create_task(wire.write_from(from_server))
        told = group.create_task(_end_when(stopping, reading))
        await server.run(incoming, outgoing, server.create_initialization_options())
        told.cancel()
        await asyncio.wait((writing,), timeout=LAST_ANSWERS_SECONDS)
        writing.cancel()


async def _end_when(stopping: asyncio.Event, reading: asyncio.Task[None]) -> None:
    await stopping.wait()
    reading.cancel()


def _caller(_: Any) -> Caller:
    return Caller(Actor("mcp"), "mcp", f"cid_{secrets.token_hex(16)}", "stdio")


class Wire:
    """The two ends of the conversation."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._unanswered: Counter[object] = Counter()
        self._answered = asyncio.Event()
        self._turn = asyncio.Lock()

    async def read_into(self, server: Incoming) -> None:
        """Hand over what the client sends, until its end; then let the last calls be answered."""
        async with server:
            async for line in self._lines():
                try:
                    message = jsonrpc_message_adapter.validate_python(
                        read_message(line), by_name=False
                    )
                except UsageError as error:
                    await self._write(compact_json(unreadable(error)))
                    continue
                except ValidationError:
                    refused = UsageError("not a request, a notification or an answer")
                    await self._write(compact_json(unreadable(refused)))
                    continue
                self._note(message)
                await server.send(SessionMessage(message))
                await self._until(MOST_UNANSWERED)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                    await self._until(1)

    async def write_from(self, server: Outgoing) -> None:
        """Send what the server says, until it has nothing more to say."""
        async with server:
            async for item in server:
                message = item.message
                await self._write(message.model_dump_json(by_alias=True, exclude_unset=True))
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._settle(message.id)

    # -- calls without an answer -------------------------------------------------------------

    def _note(self, message: object) -> None:
        if isinstance(message, JSONRPCRequest):
            self._unanswered[message.id] += 1
        elif isinstance(message, JSONRPCNotification) and message.method.endswith("/cancelled"):
            self._settle((message.params or {}).get("requestId"))

    def _settle(self, request_id: object) -> None:
        self._unanswered[request_id] -= 1
        self._unanswered = +self._unanswered  # what has none left is forgotten
        self._answered.set()

    async def _until(self, fewer: int) -> None:
        """Wait until there are fewer calls without an answer than that."""
        while self._unanswered.total() >= fewer:
            self._answered.clear()
            await self._answered.wait()

    # -- bytes -------------------------------------------------------------------------------

    async def _lines(self) -> AsyncIterator[bytes]:
        """Yield what the client sends, line by line; of a line without end, its beginning."""
        kept = b""
        too_long = False
        while chunk := await _apart(lambda: os.read(self._source, CHUNK)):
            *lines, rest = (kept + chunk).split(b"\n")
            for line in lines:
                if line.strip() and not too_long:
                    yield line
                too_long = False
            kept = b"" if too_long else rest
            if len(kept) > MAX_FILE_BYTES:
                yield kept
                kept, too_long = b"", True
        if kept.strip():
            yield kept

    async def _write(self, text: str) -> None:
        data = f"{text}\n".encode()
        async with self._turn:
            await _apart(lambda: _write_all(self._target, data))


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    with suppress(BrokenPipeError):  # the client is gone; reading will say so
        while view:
            view = view[os.write(target, view) :]


def _apart(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Do something in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(result: Result | None, error: OSError | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: Result | None = None
        failed: OSError | None = None
        try:
            result = work()
        except OSError as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return done
