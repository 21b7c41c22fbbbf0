"""The HTTP client of libraries that speak to model APIs, on top of `egress.client`.

Rules
  * It connects to the address of one API and to nothing else. No proxies, no redirects.
  * The key is added here. The library does not have it, so no message or object of the library can
    show it. Keys that the library finds by itself are not sent: only a few headers pass.
  * A request is repeated when the server is overloaded and says so before it answered: a few times,
    after the time that it names or a short one. A longer time is the caller's decision.
  * `failure` is what went wrong with the last request, because libraries wrap errors of their own
    around it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

import httpx2
import msgspec

from infloop.egress.client import Client, Destination
from infloop.errors import EgressError, InfloopError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from infloop.egress.client import Response

ModelClient: TypeAlias = httpx2.AsyncClient

CONNECT_S = 30.0
READ_S = 600.0
MAX_RESPONSE_BYTES = 64 << 20
MAX_ERROR_BYTES = 64 << 10
MAX_TRIES = 3
MAX_WAIT_S = 20.0

_SENT = frozenset(
    ("accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
)
_OVERLOADED = frozenset((429, 500, 502, 503, 504, 529))


class FailedResponse(msgspec.Struct, frozen=True):
    """An error response: its status, its headers, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: str


class ModelTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of a library to one API, with its key. Its owner must close it."""

    def __init__(
        self,
        base_url: str,
        key_headers: Mapping[str, str],
        *,
        before_sending: Callable[[bytes], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Raise EgressError if `base_url` is not a plain http(s) URL.

        It may be on this machine or a private network: the operator wrote it. `before_sending` gets
        the body of each request; if it raises, nothing is sent.
        """
        self._client = Client([Destination.of(base_url, private_ok=True)])
        self._key_headers = key_headers
        self._before_sending = before_sending
        self._sleep = sleep
        self._is_open = False
        self.failure: FailedResponse | InfloopError | None = None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self._is_open = True
        return self

    async def aclose(self) -> None:
        """Close all connections."""
        if self._is_open:
            self._is_open = False
            await self._client.__aexit__(None, None, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return the response while its body is received."""
        self.failure = None
        body = await request.aread()
        try:
            await self._before_sending(body)
        except InfloopError as error:
            self.failure = error
            raise
        for attempt in range(1, MAX_TRIES + 1):
            stack = AsyncExitStack()
            try:
                response = await stack.enter_async_context(self._stream(request, body))
                if 200 <= response.status < 300:
                    return httpx2.Response(
                        response.status,
                        headers=dict(response.headers),
                        stream=_Body(self, stack, response.chunks),
                        request=request,
                    )
                self.failure = failed = await _read_failure(response)
                await stack.aclose()
            except EgressError as error:
                await stack.aclose()
                self.failure = error
                raise httpx2.ConnectError(str(error), request=request) from None
            except BaseException:
                await stack.aclose()
                raise
            wait_s = _wait_s(failed, attempt)
            if wait_s is None:
                break
            await self._sleep(wait_s)
        return httpx2.Response(failed.status, content=failed.body.encode(), request=request)

    def _stream(
        self, request: httpx2.Request, body: bytes
    ) -> AbstractAsyncContextManager[Response]:
        headers = {name: value for name, value in request.headers.items() if name in _SENT}
        return self._client.stream(
            request.method,
            str(request.url),
            headers={**headers, **self._key_headers},
            content=body or None,
            connect_timeout_s=CONNECT_S,
            read_timeout_s=READ_S,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )


class _Body(httpx2.AsyncByteStream):
    """The body of a response; closing it closes the connection."""

    def __init__(
        self, transport: ModelTransport, stack: AsyncExitStack, chunks: AsyncIterator[bytes]
    ) -> None:
        self._transport = transport
        self._stack = stack
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except EgressError as error:
            self._transport.failure = error
            raise httpx2.ReadError(str(error)) from None

    async def aclose(self) -> None:
        await self._stack.aclose()


def model_client(transport: ModelTransport) -> ModelClient:
    """Return the client that a library gets: no environment, no redirects."""
    return httpx2.AsyncClient(
        transport=transport, trust_env=False, follow_redirects=False, timeout=READ_S
    )


async def _read_failure(response: Response) -> FailedResponse:
    body = bytearray()
    async for chunk in response.chunks:
        body += chunk[: MAX_ERROR_BYTES - len(body)]
        if len(body) >= MAX_ERROR_BYTES:
            break
    return FailedResponse(response.status, response.headers, body.decode("utf-8", "replace"))


def _wait_s(failed: FailedResponse, attempt: int) -> float | None:
    """Return how long to wait before the request is repeated; None if it is not."""
    if failed.status not in _OVERLOADED or attempt >= MAX_TRIES:
        return None
    named = failed.headers.get("retry-after", "")
    if not named:
        return float(attempt)
    seconds = float(named) if named.isdecimal() and len(named) < 10 else MAX_WAIT_S + 1
    return seconds if seconds <= MAX_WAIT_S else None
