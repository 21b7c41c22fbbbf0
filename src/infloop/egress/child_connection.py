"""One connection of a child: parse the request, decide, report, act."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from infloop.egress.broker import PREFIX, Broker, CallRefused, error_body, is_warm_up
from infloop.egress.client import Client
from infloop.egress.client_hello import hello_refusal
from infloop.egress.dial import dial
from infloop.egress.exchange import Exchange
from infloop.egress.peekable_stream import PeekableStream
from infloop.egress.protocol import (
    Forward,
    Head,
    Local,
    Refusal,
    Tunnel,
    has_token,
    parse_request,
    read_head,
    refusal_response,
)
from infloop.egress.relay import Relay
from infloop.egress.reports import ConnectionEnded, Decision
from infloop.egress.resolve import addresses_to_dial
from infloop.errors import EgressError
from infloop.lowlevel.own_ports import is_own_port
from infloop.model.hosts import authority, parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from infloop.egress.limits import ProxyLimits, UploadBudget
    from infloop.egress.reports import Kind, RefusalCause
    from infloop.egress.resolve import HostPolicy, Lookup
    from infloop.errors import EgressFailure
    from infloop.model.hosts import HttpUrl, Scheme
    from infloop.policy.hosts import HostVerdict
    from infloop.policy.routes import Dialect

_WARMED_UP = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
_TUNNEL_OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_RESPONSE_BYTES = 1 << 40
_TIME_LIMIT_REACHED = "the time limit of the connection is reached"

_STATUS: dict[EgressFailure, int] = {
    "refused": 403,
    "unreachable": 502,
    "broken": 502,
    "timeout": 504,
    "too-large": 413,
}


class ProxyContext(msgspec.Struct):
    """What all connections of a proxy share. `token` is empty if the listener is private."""

    allowed: HostPolicy
    limits: ProxyLimits
    uploads: UploadBudget
    lookup: Lookup
    token: str
    own_names: frozenset[str]
    broker: Broker | None
    on_decision: Callable[[Decision], None]
    on_ended: Callable[[ConnectionEnded], None]
    deadline: float
    hidden_names_allowed: bool = False
    relays: set[Relay] = msgspec.field(default_factory=set)


class Refused(Exception):
    """The request is refused; the child gets a response with the reason, if possible."""

    def __init__(self, status: int, cause: RefusalCause, reason: str, rule: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.cause: RefusalCause = cause
        self.rule = rule


class UpstreamFailed(Exception):
    """An allowed request failed; the child gets a response with the reason, if possible."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Traffic(msgspec.Struct):
    """What an allowed connection carried."""

    sent: int = 0
    received: int = 0
    reason: str = ""


class ChildConnection:
    """One connection of a child, from its first byte to its last."""

    def __init__(self, number: int, stream: PeekableStream, context: ProxyContext) -> None:
        self._number = number
        self._stream = stream
        self._context = context
        self._limits = context.limits
        self._kind: Kind = "unknown"
        self._host = ""
        self._port = 0
        self._dialect: Dialect | None = None
        self._can_send_refusal = True
        self._connect_by = 0.0
        self._on_timeout: Refused | UpstreamFailed = Refused(
            408, "limit", "the request was not complete in time"
        )

    async def serve(self) -> None:
        """Do what the child asks for, or refuse it. Never raises because of what a child sends."""
        try:
            try:
                async with asyncio.timeout(self._limits.head_s) as self._deadline:
                    await self._handle(await self._head())
            except TimeoutError:
                raise self._on_timeout from None
        except Refused as error:
            decision = self._report("refused", str(error), error.rule, error.cause)
            await self._send_refusal(Refusal(error.status, str(decision)))
        except UpstreamFailed as error:
            await self._send_refusal(Refusal(error.status, str(error)))
        except ConnectionResetError:
            pass  # the child closed the connection
        finally:
            self._stream.on_closed = None
            self._stream.transport.abort()

    def _set_deadline(self, seconds: float, on_timeout: Refused | UpstreamFailed) -> float:
        """Set the deadline of the next step, and the error that is raised when it passes."""
        deadline = min(asyncio.get_running_loop().time() + seconds, self._context.deadline)
        self._deadline.reschedule(deadline)
        self._on_timeout = on_timeout
        return deadline

    async def _send_refusal(self, refusal: Refusal) -> None:
        if self._can_send_refusal:
            body = (
                error_body(self._dialect, refusal.status, refusal.reason) if self._dialect else None
            )
            self._stream.transport.write(refusal_response(refusal, body))
            await self._stream.close_gracefully(self._limits.head_s)

    def _report(
        self, verdict: HostVerdict, reason: str, rule: str = "", cause: RefusalCause = ""
    ) -> Decision:
        decision = Decision(
            number=self._number,
            kind=self._kind,
            host=self._host,
            port=self._port,
            verdict=verdict,
            reason=reason,
            rule=rule,
            cause=cause,
        )
        self._context.on_decision(decision)
        return decision

    async def _head(self) -> Head:
        while (parsed := read_head(self._stream.received)) is None:
            if not await self._stream.wait_for_more():
                raise ConnectionResetError
        if isinstance(parsed, Refusal):
            raise Refused(parsed.status, "malformed", parsed.reason)
        head, size = parsed
        self._stream.take(size)
        return head

    async def _handle(self, head: Head) -> None:
        if asyncio.get_running_loop().time() >= self._context.deadline:
            raise Refused(403, "limit", "the time limit for connections of the run is reached")
        match parse_request(head):
            case Refusal(status, reason):
                raise Refused(status, "malformed", reason)
            case Tunnel(host, port):
                await self._tunnel(head, host, port)
            case Forward(place):
                await self._forward(head, place)
            case Local():
                await self._local(head)

    async def _authorize(self, head: Head, host: str, port: int, scheme: Scheme) -> Sequence[str]:
        """Decide whether a host may be reached and report it; return the addresses to dial."""
        self._host, self._port = host, port
        if self._context.token and not has_token(head, self._context.token):
            raise Refused(407, "token", "the token of the run is missing or wrong")
        ruling = self._context.allowed.judge(host, port, scheme)
        if not ruling.allowed:
            cause: RefusalCause = "denied" if ruling.rule else "not-listed"
            raise Refused(403, cause, ruling.reason, ruling.rule)
        resolve_s, timeout_s = self._limits.resolve_s, self._limits.connect_s
        on_timeout = Refused(504, "unresolved", f"the name was not resolved in {resolve_s:g} s")
        self._set_deadline(resolve_s, on_timeout)
        try:
            addresses = await addresses_to_dial(
                host, port, policy=self._context.allowed, lookup=self._context.lookup
            )
        except EgressError as error:
            cause = "address" if error.failure == "refused" else "unresolved"
            raise Refused(_STATUS[error.failure], cause, str(error)) from None
        if any(is_own_port(ip_address(address), port) for address in addresses):
            raise Refused(403, "own-port", "a server of infloop listens there")
        self._report("allowed", ruling.reason, ruling.rule)
        late = UpstreamFailed(504, f"{authority(host, port)} did not answer in {timeout_s:g} s")
        self._connect_by = self._set_deadline(timeout_s, late)
        return addresses

    @contextmanager
    def _reporting_end(self) -> Iterator[_Traffic]:
        """Report the end of an allowed connection, however it ends."""
        clock = asyncio.get_running_loop().time
        started, traffic = clock(), _Traffic()
        try:
            yield traffic
        except (Refused, UpstreamFailed) as error:
            traffic.reason = str(error)
            raise
        except asyncio.CancelledError:
            traffic.reason = "it was cancelled"
            raise
        finally:
            self._context.on_ended(
                ConnectionEnded(
                    number=self._number,
                    kind=self._kind,
                    host=self._host,
                    port=self._port,
                    sent=traffic.sent,
                    received=traffic.received,
                    seconds=clock() - started,
                    reason=traffic.reason,
                )
            )

    # -- tunnels -----------------------------------------------------------------------------------

    async def _tunnel(self, head: Head, host: str, port: int) -> None:
        self._kind = "tunnel"
        addresses = await self._authorize(head, host, port, "https")
        with self._reporting_end() as traffic:
            upstream = await self._dial(addresses, port)
            try:
                self._stream.transport.write(_TUNNEL_OPEN)
                self._can_send_refusal = False
                await self._check_client_hello(host)
                await self._relay_tunnel(upstream, traffic)
            finally:
                upstream.transport.abort()

    async def _dial(self, addresses: Sequence[str], port: int) -> PeekableStream:
        loop = asyncio.get_running_loop()

        async def connect(address: str) -> PeekableStream:
            _, stream = await loop.create_connection(PeekableStream, address, port)
            return stream

        try:
            return await dial(addresses, self._connect_by, connect)
        except EgressError as error:
            where = authority(self._host, self._port)
            raise UpstreamFailed(_STATUS[error.failure], f"{where}: {error}") from None

    async def _check_client_hello(self, host: str) -> None:
        on_timeout = Refused(403, "hello", "no ClientHello came in time")
        self._set_deadline(self._limits.hello_s, on_timeout)
        while (reason := self._hello_refusal(host)) is None:
            if not await self._stream.wait_for_more():
                raise Refused(403, "hello", "the tunnel was closed before a ClientHello came")
        if reason:
            raise Refused(403, "hello", reason)

    def _hello_refusal(self, host: str) -> str | None:
        allowed = self._context.hidden_names_allowed
        return hello_refusal(self._stream.received, host, hidden_allowed=allowed)

    async def _relay_tunnel(self, upstream: PeekableStream, traffic: _Traffic) -> None:
        if self._stream.transport.is_closing() or upstream.transport.is_closing():
            return
        self._set_deadline(self._limits.connection_s, Refused(403, "limit", _TIME_LIMIT_REACHED))
        relay = Relay(self._stream, upstream, self._context.uploads.refuse)
        self._context.relays.add(relay)
        try:
            if reason := await relay.result:
                raise Refused(403, "limit", reason)
        finally:
            relay.end()
            traffic.sent, traffic.received = relay.sent, relay.received
            self._context.relays.discard(relay)

    # -- plain HTTP --------------------------------------------------------------------------------

    async def _forward(self, head: Head, place: HttpUrl) -> None:
        self._kind = "request"
        addresses = await self._authorize(head, place.host, place.port, "http")

        async def resolved(_: str) -> Sequence[str]:
            return addresses

        async with (
            self._exchange(head, self._limits.upload_per_connection) as exchange,
            Client(self._context.allowed, lookup=resolved) as client,
            client.stream(
                head.method,
                f"http://{place.authority}{place.target}",
                headers=head.forwarded_fields() | exchange.length,
                content=exchange.content(),
                connect_timeout_s=self._limits.connect_s,
                read_timeout_s=self._limits.idle_s,
                max_response_bytes=_MAX_RESPONSE_BYTES,
            ) as response,
        ):
            await exchange.respond(response, response.headers)

    async def _local(self, head: Head) -> None:
        self._kind = "broker"
        broker = self._context.broker
        if head.fields.get("host") not in self._context.own_names:
            raise Refused(400, "malformed", "the Host field does not name this proxy")
        if broker is None or not head.target.startswith(PREFIX):
            raise Refused(403, "call", "this path does not exist on the proxy")
        if is_warm_up(head):
            self._stream.transport.write(_WARMED_UP)
            await self._stream.close_gracefully(self._limits.head_s)
            return
        call = broker.judge(head)
        if isinstance(call, Refusal):
            raise Refused(call.status, "token" if call.status == 401 else "call", call.reason)
        place = parse_url(call.account.base_url)
        self._host, self._port = place.host, place.port
        self._dialect = call.account.dialect
        reason = f"a call of provider {call.account.provider!r}"
        report = partial(self._report, "allowed", reason, str(call.route))
        async with self._exchange(head, self._limits.call_body) as exchange:
            try:
                await broker.make_call(call, exchange, report)
            except CallRefused as error:
                raise Refused(error.status, "budget", str(error)) from None

    @asynccontextmanager
    async def _exchange(self, head: Head, max_bytes: int) -> AsyncGenerator[Exchange]:
        """Forward a request; end it when the child closes the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._set_deadline(self._limits.connection_s, Refused(403, "limit", _TIME_LIMIT_REACHED))
        exchange = Exchange(self._stream, head, self._limits.idle_s, self._upload_check(max_bytes))
        if self._stream.ended:
            raise ConnectionResetError
        self._stream.on_closed = task.cancel
        with self._reporting_end() as traffic:
            try:
                if (head.length or 0) > max_bytes:
                    raise Refused(
                        413, "limit", f"the request's body is larger than {max_bytes} bytes"
                    )
                if reason := self._context.uploads.refuse(head.size, 0):
                    raise Refused(413, "limit", reason)
                yield exchange
                self._can_send_refusal = False
                await self._stream.close_gracefully(self._limits.idle_s)
            except EgressError as error:
                self._can_send_refusal = not exchange.responded
                if error.failure in ("refused", "too-large"):
                    cause: RefusalCause = "limit" if error.failure == "too-large" else "address"
                    raise Refused(_STATUS[error.failure], cause, str(error)) from None
                raise UpstreamFailed(_STATUS[error.failure], str(error)) from None
            finally:
                self._stream.on_closed = None
                traffic.sent, traffic.received = exchange.sent, exchange.received

    def _upload_check(self, max_bytes: int) -> Callable[[int, int], str]:
        def refuse(size: int, sent_before: int) -> str:
            if sent_before + size > max_bytes:
                return f"the request's body is larger than {max_bytes} bytes"
            return self._context.uploads.refuse(size, sent_before)

        return refuse
