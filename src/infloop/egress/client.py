"""The server's own HTTP client: it goes where it is told and nowhere else.

Rules
  * A destination is scheme, host and port, named before; or the client is given an allowlist.
  * A name is resolved once per connection, all its addresses are checked, and a checked one is
    dialled; the certificate is verified for the name.
  * Redirects are answers, not orders. No cookies, no proxy variables, no retries, no decompression.
  * Connecting and every read and write have deadlines; an answer has a size.
"""

from __future__ import annotations

import functools
import ssl
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from infloop.egress.resolve import SystemLookup
from infloop.errors import EgressError
from infloop.policy.addresses import LOOPBACK, PRIVATE, refused_range
from infloop.policy.hosts import Allowlist, HostDecision, authority, canonical_host, parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import httpcore2

    from infloop.egress.resolve import Gate, Lookup
    from infloop.policy.addresses import Address
    from infloop.policy.hosts import HttpUrl, Scheme

Content: TypeAlias = "bytes | AsyncIterator[bytes] | None"

_MOST_CONNECTIONS = 100
_IDLE_S = 30.0


@dataclass(frozen=True, slots=True)
class Destination:
    """One place that the client may ask; `private_ok` if it may be on this machine or network."""

    scheme: Scheme
    host: str
    port: int
    private_ok: bool = False

    def __post_init__(self) -> None:
        if canonical_host(self.host) != self.host:
            raise EgressError(f"{self.host!r} is not written in lower case")

    @classmethod
    def of(cls, url: str, *, private_ok: bool = False) -> Destination:
        """Return where a URL leads; raise EgressError if it is not a plain http(s) one."""
        place = parse_url(url)
        return cls(place.scheme, place.host, place.port, private_ok)


class Destinations:
    """The gate of a client that knows its destinations."""

    def __init__(self, destinations: Sequence[Destination]) -> None:
        self._known = {(one.scheme, one.host, one.port) for one in destinations}
        self._private_ok = {(one.host, one.port) for one in destinations if one.private_ok}

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Allow what was named."""
        if (scheme, host, port) in self._known:
            return HostDecision(
                "allowed", "a known destination", f"{scheme}://{authority(host, port)}"
            )
        return HostDecision("refused", "not a destination that was set up")

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Allow global addresses, and with `private_ok` those of this machine and network."""
        found = refused_range(address)
        private_ok = (host, port) in self._private_ok and found in (LOOPBACK, PRIVATE)
        return f"{host} has a {found} address" if found and not private_ok else ""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer whose body is still coming. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """Return the rest of the body; `max_response_bytes` bounds it."""
        return b"".join([chunk async for chunk in self.chunks])


@functools.cache
def machine_trust() -> ssl.SSLContext:
    """Return the authorities that this machine trusts, read once, for it takes a while."""
    return ssl.create_default_context()


class Client:
    """Asks the places it was given. Used as `async with Client(...) as client`."""

    def __init__(
        self,
        allowed: Sequence[Destination] | Allowlist,
        *,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Take what may be asked; `lookup` and `tls` replace the machine's own names and trust."""
        self._gate: Gate = allowed if isinstance(allowed, Allowlist) else Destinations(allowed)
        self._lookup = lookup or SystemLookup()
        self._tls = tls
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def __aenter__(self) -> Self:
        import httpcore2

        from infloop.egress.backend import CheckedBackend

        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._tls or machine_trust(),
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedBackend(self._gate, self._lookup),
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
        """Send a request and yield the answer while its body comes in.

        A `content-length` among the headers is kept for content that comes in pieces, and must be
        true. `connect_timeout_s` bounds resolving and dialling, and the TLS handshake after it;
        `read_timeout_s` each wait for the other side. Raises EgressError, here or while chunks are
        read, when the URL is not allowed, the other side fails, or the body is larger than
        `max_response_bytes`.
        """
        if self._pool is None:
            raise EgressError("this client is closed")
        place = parse_url(url)
        ruling = self._gate.judge(place.host, place.port, place.scheme)
        if not ruling.allowed:
            raise EgressError(f"{authority(place.host, place.port)} is refused: {ruling.reason}")
        request = _request(method, place, headers or {}, content, connect_timeout_s, read_timeout_s)
        with _readable(place):
            answer = await self._pool.handle_async_request(request)
        try:
            async with aclosing(_chunks(answer, place, max_response_bytes)) as chunks:
                yield Response(answer.status, _headers(answer), chunks)
        finally:
            await answer.aclose()


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
        raise EgressError("a header holds characters that HTTP does not have") from None
    url = httpcore2.URL(
        scheme=place.scheme.encode(),
        host=place.host.encode(),
        port=place.port,
        target=place.target.encode(),
    )
    extensions = {"timeout": timeouts}
    return httpcore2.Request(method, url, headers=raw, content=content, extensions=extensions)


def _headers(answer: httpcore2.Response) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in answer.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


async def _chunks(answer: httpcore2.Response, place: HttpUrl, most: int) -> AsyncGenerator[bytes]:
    size = 0
    with _readable(place):
        async with aclosing(answer.aiter_stream()) as parts:
            async for part in parts:
                size += len(part)
                if size > most:
                    raise EgressError(
                        f"the answer of {place.authority} is larger than {most} bytes", "too-large"
                    )
                yield part


@contextmanager
def _readable(place: HttpUrl) -> Iterator[None]:
    """Turn what the transport raises into a sentence about the place."""
    import httpcore2

    who = place.authority
    try:
        yield
    except (httpcore2.ConnectTimeout, httpcore2.PoolTimeout):
        raise EgressError(f"{who} did not take the connection in time", "timeout") from None
    except httpcore2.TimeoutException:
        raise EgressError(f"{who} did not answer in time", "timeout") from None
    except httpcore2.ConnectError as error:
        raise EgressError(f"{who} cannot be reached: {error}", "unreachable") from None
    except httpcore2.LocalProtocolError:
        # What it says of a header holds the header, and that may be a key.
        said = f"the request to {who} cannot be sent: HTTP does not allow what is in its head"
        raise EgressError(said) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, ssl.SSLError) as error:
        raise EgressError(f"the connection to {who} broke: {error}", "broken") from None
