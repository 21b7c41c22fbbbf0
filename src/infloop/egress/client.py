"""The server's own HTTP client: it connects to configured destinations only.

Rules:

- A destination is a scheme, a host and a port, named in advance. A client can have an allowlist
  or another policy instead, and a check of whole requests that comes before everything else.
- A name is resolved once per connection, all its addresses are checked, and a checked one is
  dialled. The certificate is verified for the name.
- Redirects are returned and not followed. No cookies, no proxy variables, no retries, no
  decompression.
- Connecting and every read and write have timeouts. A response has a maximum size.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from infloop.egress.resolve import SystemLookup
from infloop.errors import EgressError
from infloop.model.hosts import authority, canonical_host, parse_url
from infloop.policy.addresses import LOOPBACK, PRIVATE, refused_range
from infloop.policy.hosts import HostDecision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    import httpcore2

    from infloop.egress.resolve import HostPolicy, Lookup
    from infloop.model.hosts import HttpUrl, Scheme
    from infloop.policy.addresses import Address

Content: TypeAlias = "bytes | AsyncIterator[bytes] | None"

Tls: TypeAlias = ssl.SSLContext
"""Which certificates are trusted."""

CheckRequest: TypeAlias = Callable[[str, str], None]
"""Gets the method and URL of a request before its host is resolved; raises to refuse it."""

_MAX_CONNECTIONS = 100
_IDLE_S = 30.0


class Destination(msgspec.Struct, frozen=True):
    """One destination of a client; `private_ok` if it may be on this machine or network."""

    scheme: Scheme
    host: str
    port: int
    private_ok: bool = False

    def __post_init__(self) -> None:
        if canonical_host(self.host) != self.host:
            raise EgressError(f"{self.host!r} is not in canonical form, that is in lower case")

    @classmethod
    def of(cls, url: str, *, private_ok: bool = False) -> Destination:
        """Return the destination of a URL; raise EgressError if it is not a plain http(s) URL."""
        place = parse_url(url)
        return cls(place.scheme, place.host, place.port, private_ok)


class Destinations:
    """The policy of a client with a fixed list of destinations."""

    def __init__(self, destinations: Sequence[Destination]) -> None:
        self._known = {(one.scheme, one.host, one.port) for one in destinations}
        self._private_ok = {(one.host, one.port) for one in destinations if one.private_ok}

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Allow the listed destinations."""
        if (scheme, host, port) in self._known:
            return HostDecision(
                "allowed", "a known destination", f"{scheme}://{authority(host, port)}"
            )
        return HostDecision("refused", "not a configured destination")

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Allow global addresses, and with `private_ok` those of this machine and network."""
        found = refused_range(address)
        private_ok = (host, port) in self._private_ok and found in (LOOPBACK, PRIVATE)
        return f"{host} has a {found} address" if found and not private_ok else ""


class Response(msgspec.Struct, frozen=True):
    """A response whose body is still being received. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """Return the rest of the body, at most `max_response_bytes`."""
        return b"".join([chunk async for chunk in self.chunks])


@functools.cache
def system_trust() -> ssl.SSLContext:
    """Return this machine's trusted certificate authorities; cached, because loading is slow."""
    return ssl.create_default_context()


class Client:
    """Sends requests to allowed destinations. Used as `async with Client(...) as client`."""

    def __init__(
        self,
        allowed: Sequence[Destination] | HostPolicy,
        *,
        check_request: CheckRequest | None = None,
        lookup: Lookup | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Allow these destinations; `lookup` and `tls` replace the system's resolver and trust."""
        self._policy: HostPolicy = (
            Destinations(allowed) if isinstance(allowed, Sequence) else allowed
        )
        self._check_request = check_request
        self._lookup = lookup or SystemLookup()
        self._tls = tls
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def __aenter__(self) -> Self:
        import httpcore2

        from infloop.egress.backend import CheckedBackend

        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._tls or system_trust(),
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedBackend(self._policy, self._lookup),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pool, self._pool = self._pool, None
        if isinstance(self._lookup, SystemLookup):
            self._lookup.close()
        if pool is not None:
            await pool.aclose()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content = None,
        connect_timeout_s: float,
        read_timeout_s: float,
        max_response_bytes: int,
    ) -> AsyncGenerator[Response]:
        """Send a request and yield the response while its body is received.

        - A `content-length` header is kept for content that comes in pieces, and must be correct.
        - `connect_timeout_s` limits resolving and dialling together, and then the TLS handshake.
        - `read_timeout_s` limits each wait for the server.
        - Raises EgressError, here or while chunks are read, when the URL is not allowed, the server
          fails, or the body is larger than `max_response_bytes`.
        """
        if self._pool is None:
            raise EgressError("this client is closed")
        if self._check_request is not None:
            self._check_request(method, url)
        place = parse_url(url)
        ruling = self._policy.judge(place.host, place.port, place.scheme)
        if not ruling.allowed:
            raise EgressError(f"{authority(place.host, place.port)} is refused: {ruling.reason}")
        request = _request(method, place, headers or {}, content, connect_timeout_s, read_timeout_s)
        with _translated_errors(place):
            response = await self._pool.handle_async_request(request)
        try:
            async with aclosing(_chunks(response, place, max_response_bytes)) as chunks:
                yield Response(response.status, _headers(response), chunks)
        finally:
            await response.aclose()


def _request(
    method: str,
    place: HttpUrl,
    headers: Mapping[str, str],
    content: Content,
    connect_timeout_s: float,
    read_timeout_s: float,
) -> httpcore2.Request:
    import httpcore2

    sent = {"accept-encoding": "identity"} | {k.lower(): v for k, v in headers.items()}
    sent["host"] = place.authority
    length = sent.pop("content-length", None)
    sent.pop("transfer-encoding", None)
    if isinstance(content, bytes):
        sent["content-length"] = str(len(content))
    elif content is not None:
        sent |= {"content-length": length} if length else {"transfer-encoding": "chunked"}
    timeouts = {
        "connect": connect_timeout_s,
        "pool": connect_timeout_s,
        "read": read_timeout_s,
        "write": read_timeout_s,
    }
    try:
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in sent.items()]
    except UnicodeEncodeError:
        raise EgressError("a header contains characters that HTTP does not allow") from None
    url = httpcore2.URL(
        scheme=place.scheme.encode(),
        host=place.host.encode(),
        port=place.port,
        target=place.target.encode(),
    )
    extensions = {"timeout": timeouts}
    return httpcore2.Request(method, url, headers=raw, content=content, extensions=extensions)


def _headers(response: httpcore2.Response) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


async def _chunks(
    response: httpcore2.Response, place: HttpUrl, max_bytes: int
) -> AsyncGenerator[bytes]:
    size = 0
    with _translated_errors(place):
        async with aclosing(response.aiter_stream()) as parts:
            async for part in parts:
                size += len(part)
                if size > max_bytes:
                    raise EgressError(
                        f"the response of {place.authority} is larger than {max_bytes} bytes",
                        "too-large",
                    )
                yield part


@contextmanager
def _translated_errors(place: HttpUrl) -> Iterator[None]:
    """Turn the transport's exceptions into an EgressError about the destination."""
    import httpcore2

    name = place.authority
    try:
        yield
    except (httpcore2.ConnectTimeout, httpcore2.PoolTimeout):
        raise EgressError(f"{name} did not accept the connection in time", "timeout") from None
    except httpcore2.TimeoutException:
        raise EgressError(f"{name} did not answer in time", "timeout") from None
    except httpcore2.ConnectError as error:
        raise EgressError(f"{name} cannot be reached: {error}", "unreachable") from None
    except httpcore2.LocalProtocolError:
        # Its message contains the header, which may be a key.
        message = f"the request to {name} cannot be sent: its head is not valid HTTP"
        raise EgressError(message) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, ssl.SSLError) as error:
        raise EgressError(f"the connection to {name} broke: {error}", "broken") from None
