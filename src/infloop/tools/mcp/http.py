"""Messages of a server that is reached over HTTP: the protocol's "streamable HTTP" transport.

Each message is a POST. Its answer is one message, or a stream of events that ends with the answer.
Requests pass the operator's rules as tool `mcp_SERVER`; redirects are not followed. Streams that
the server could open by itself are not asked for.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata

from infloop.errors import InfloopError
from infloop.tools.mcp.streams import MAX_MESSAGE_BYTES, Inbox, Outbox, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.shared.message import SessionMessage

    from infloop.egress.client import Response
    from infloop.tools.http_requests import ToolRequests
    from infloop.tools.mcp.streams import Streams

_SESSION_HEADER = "mcp-session-id"
_MAX_SESSION_CHARS = 1_000
_ACCEPTED = 202


@asynccontextmanager
async def http_streams(
    requests: ToolRequests,
    tool: str,
    url: str,
    *,
    token: str,
    timeout_s: float,
    private_ok: bool,
) -> AsyncGenerator[Streams]:
    """Yield the streams to a server; `timeout_s` limits each wait for it."""
    posts = _Posts(requests, tool, url, token=token, timeout_s=timeout_s, private_ok=private_ok)
    try:
        yield posts.inbox, Outbox(posts.start)
    finally:
        await posts.close()


class _Posts:
    """The requests to one server that have not been answered."""

    def __init__(
        self,
        requests: ToolRequests,
        tool: str,
        url: str,
        *,
        token: str,
        timeout_s: float,
        private_ok: bool,
    ) -> None:
        self.inbox = Inbox()
        self._requests = requests
        self._tool = tool
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self._private_ok = private_ok
        self._session = ""
        self._open: set[asyncio.Task[None]] = set()
        self._requested: dict[types.RequestId, asyncio.Task[None]] = {}

    async def start(self, item: SessionMessage) -> None:
        """Send a message; its answer goes to the inbox when it comes."""
        message = item.message
        task = asyncio.create_task(self._post(item))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        if isinstance(message, types.JSONRPCRequest):
            number = message.id
            self._requested[number] = task
            task.add_done_callback(lambda _: self._requested.pop(number, None))
            return
        if isinstance(message, types.JSONRPCNotification):
            self._abandon(message)
        await task  # keep the order: the server may need it before the next request

    def _abandon(self, message: types.JSONRPCNotification) -> None:
        """End the request that the session no longer waits for."""
        number = cancelled_request_id_from_params(message.params)
        if message.method == "notifications/cancelled" and number in self._requested:
            self._requested[number].cancel()

    async def close(self) -> None:
        """Abandon what was not answered."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _post(self, item: SessionMessage) -> None:
        number = item.message.id if isinstance(item.message, types.JSONRPCRequest) else None
        try:
            async with self._requests.send(
                self._tool,
                "POST",
                self._url,
                timeout_s=self._timeout_s,
                max_bytes=MAX_MESSAGE_BYTES,
                headers=self._headers(item),
                content=encoded(item.message),
                private_ok=self._private_ok,
            ) as (_, response):
                self._session = _session(response) or self._session
                missing = await self._pass_on(response) if number is not None else ""
        except InfloopError as error:
            missing = str(error)
        if number is not None and missing:
            await self.inbox.put_error(number, missing)

    async def _pass_on(self, response: Response) -> str:
        """Give the answer to the session; return why if there is none."""
        answered = f"the server answered {response.status}"
        if response.headers.get("content-encoding", "identity") != "identity":
            return f"{answered}, compressed"
        if response.status == _ACCEPTED:
            return f"{answered} to a request"
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            async with aclosing(_events(response.chunks)) as events:
                async for data in events:
                    if await self.inbox.put(data):
                        return ""
        elif await self.inbox.put(await response.read()):
            return ""
        return f"{answered} without an answer to the request"

    def _headers(self, item: SessionMessage) -> dict[str, str]:
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if self._session:
            headers[_SESSION_HEADER] = self._session
        if isinstance(item.metadata, ClientMessageMetadata) and item.metadata.headers:
            headers |= item.metadata.headers
        return headers


def _session(response: Response) -> str:
    name = response.headers.get(_SESSION_HEADER, "")
    is_plain = name.isascii() and name.isprintable() and len(name) <= _MAX_SESSION_CHARS
    return name if is_plain else ""


async def _events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Yield the data of each event of a stream; the client limits the size of the whole."""
    rest = b""
    data: list[str] = []
    async for chunk in chunks:
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(
                    line.removeprefix(b"data:").removeprefix(b" ").decode("utf-8", "replace")
                )
            elif not line and data:
                yield "\n".join(data)
                data = []
