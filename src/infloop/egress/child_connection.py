"""One connection of a child: understand it, decide, report, act; whatever is odd is a refusal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.egress.broker import PREFIX, Broker
from infloop.egress.client import Client
from infloop.egress.client_hello import refuse_hello
from infloop.egress.dial import dial
from infloop.egress.exchange import Exchange
from infloop.egress.protocol import (
    Forward,
    Head,
    Local,
    Refusal,
    Tunnel,
    holds_token,
    read_head,
    refusal_answer,
    understand,
)
from infloop.egress.relay import Relay
from infloop.egress.reports import Decision, Ended
from infloop.egress.resolve import addresses_to_dial
from infloop.egress.wire import Wire
from infloop.errors import EgressError
from infloop.policy.hosts import authority, parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from infloop.egress.limits import Limits, Uploads
    from infloop.egress.reports import Kind, Why
    from infloop.egress.resolve import Lookup
    from infloop.errors import EgressFailure
    from infloop.policy.hosts import Allowlist, HostVerdict, HttpUrl, Scheme

_TUNNEL_OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MOST_ANSWERED = 1 << 40
_TIME_IS_UP = "the time for the connection is used up"

_STATUS: dict[EgressFailure, int] = {
    "refused": 403,
    "unreachable": 502,
    "broken": 502,
    "timeout": 504,
    "too-large": 413,
}


@dataclass(slots=True)
class Terms:
    """What holds for all conversations of a run. `token` is empty where the listener is private."""

    allowed: Allowlist
    limits: Limits
    uploads: Uploads
    lookup: Lookup
    token: str
    own_names: frozenset[str]
    broker: Broker | None
    on_decision: Callable[[Decision], None]
    on_ended: Callable[[Ended], None]
    until: float
    relays: set[Relay] = field(default_factory=set)


class Refused(Exception):
    """The child's wish is refused; it is told so if it can still be told."""

    def __init__(self, status: int, why: Why, reason: str, rule: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.why: Why = why
        self.rule = rule


class Failed(Exception):
    """What was allowed did not work; the child is told so if it can still be told."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class _Traffic:
    """What an allowed connection carried."""

    sent: int = 0
    received: int = 0
    reason: str = ""


class Conversation:
    """A child's connection, from its first byte to its last."""

    def __init__(self, number: int, wire: Wire, terms: Terms) -> None:
        self._number = number
        self._wire = wire
        self._terms = terms
        self._limits = terms.limits
        self._kind: Kind = "unknown"
        self._host = ""
        self._port = 0
        self._speaks_http = True
        self._connect_by = 0.0
        self._late: Refused | Failed = Refused(408, "limit", "the request did not come in time")

    async def hold(self) -> None:
        """Do what the child asks for, or say why not. Never raises for what a child does."""
        try:
            try:
                async with asyncio.timeout(self._limits.head_s) as self._deadline:
                    await self._obey(await self._head())
            except TimeoutError:
                raise self._late from None
        except Refused as error:
            decision = self._report("refused", str(error), error.rule, error.why)
            await self._tell(Refusal(error.status, str(decision)))
        except Failed as error:
            await self._tell(Refusal(error.status, str(error)))
        except ConnectionResetError:
            pass  # the child hung up, so nobody waits for an answer
        finally:
            self._wire.on_gone = None
            self._wire.transport.abort()

    def _within(self, seconds: float, late: Refused | Failed) -> float:
        """Begin the next part of the conversation; say how it ends when it takes too long."""
        deadline = min(asyncio.get_running_loop().time() + seconds, self._terms.until)
        self._deadline.reschedule(deadline)
        self._late = late
        return deadline

    async def _tell(self, refusal: Refusal) -> None:
        if self._speaks_http:
            self._wire.transport.write(refusal_answer(refusal))
            await self._wire.hang_up(self._limits.head_s)

    def _report(self, verdict: HostVerdict, reason: str, rule: str = "", why: Why = "") -> Decision:
        decision = Decision(
            self._number, self._kind, self._host, self._port, verdict, reason, rule, why
        )
        self._terms.on_decision(decision)
        return decision

    async def _head(self) -> Head:
        while (got := read_head(self._wire.received)) is None:
            if not await self._wire.more():
                raise ConnectionResetError
        if isinstance(got, Refusal):
            raise Refused(got.status, "malformed", got.reason)
        head, size = got
        self._wire.take(size)
        return head

    async def _obey(self, head: Head) -> None:
        if asyncio.get_running_loop().time() >= self._terms.until:
            raise Refused(403, "limit", "the time for connections of the run is used up")
        match understand(head):
            case Refusal(status, reason):
                raise Refused(status, "malformed", reason)
            case Tunnel(host, port):
                await self._tunnel(head, host, port)
            case Forward(place):
                await self._forward(head, place)
            case Local():
                await self._local(head)

    async def _judge(self, head: Head, host: str, port: int, scheme: Scheme) -> Sequence[str]:
        """Decide about a host and report it; return the addresses to dial."""
        self._host, self._port = host, port
        if self._terms.token and not holds_token(head, self._terms.token):
            raise Refused(407, "token", "the token of the run is missing or wrong")
        ruling = self._terms.allowed.judge(host, port, scheme)
        if not ruling.allowed:
            why: Why = "denied" if ruling.rule else "not-listed"
            raise Refused(403, why, ruling.reason, ruling.rule)
        patience_s = self._limits.connect_s
        late = Refused(504, "unresolved", f"the name was not resolved in {patience_s:g} s")
        self._connect_by = self._within(patience_s, late)
        try:
            addresses = await addresses_to_dial(
                host, port, gate=self._terms.allowed, lookup=self._terms.lookup
            )
        except EgressError as error:
            why = "address" if error.failure == "refused" else "unresolved"
            raise Refused(_STATUS[error.failure], why, str(error)) from None
        self._report("allowed", ruling.reason, ruling.rule)
        self._late = Failed(504, f"{authority(host, port)} did not answer in {patience_s:g} s")
        return addresses

    @contextmanager
    def _accounted(self) -> Iterator[_Traffic]:
        """Report the end of what was allowed, however it ends."""
        clock = asyncio.get_running_loop().time
        began, traffic = clock(), _Traffic()
        try:
            yield traffic
        except (Refused, Failed) as error:
            traffic.reason = str(error)
            raise
        except asyncio.CancelledError:
            traffic.reason = "it was cut off"
            raise
        finally:
            self._terms.on_ended(
                Ended(
                    self._number,
                    self._kind,
                    self._host,
                    self._port,
                    traffic.sent,
                    traffic.received,
                    clock() - began,
                    traffic.reason,
                )
            )

    # -- tunnels -----------------------------------------------------------------------------------

    async def _tunnel(self, head: Head, host: str, port: int) -> None:
        self._kind = "tunnel"
        addresses = await self._judge(head, host, port, "https")
        with self._accounted() as traffic:
            upstream = await self._dial(addresses, port)
            try:
                self._wire.transport.write(_TUNNEL_OPEN)
                self._speaks_http = False
                await self._check_hello(host)
                await self._carry(upstream, traffic)
            finally:
                upstream.transport.abort()

    async def _dial(self, addresses: Sequence[str], port: int) -> Wire:
        loop = asyncio.get_running_loop()

        async def connect(address: str) -> Wire:
            _, wire = await loop.create_connection(Wire, address, port)
            return wire

        try:
            return await dial(addresses, self._connect_by, connect)
        except EgressError as error:
            where = authority(self._host, self._port)
            raise Failed(_STATUS[error.failure], f"{where}: {error}") from None

    async def _check_hello(self, host: str) -> None:
        self._within(self._limits.hello_s, Refused(403, "hello", "no ClientHello came in time"))
        while (why := refuse_hello(self._wire.received, host)) is None:
            if not await self._wire.more():
                raise Refused(403, "hello", "the tunnel was closed before a ClientHello came")
        if why:
            raise Refused(403, "hello", why)

    async def _carry(self, upstream: Wire, traffic: _Traffic) -> None:
        if self._wire.transport.is_closing() or upstream.transport.is_closing():
            return
        self._within(self._limits.connection_s, Refused(403, "limit", _TIME_IS_UP))
        relay = Relay(self._wire, upstream, self._terms.uploads.refuse)
        self._terms.relays.add(relay)
        try:
            if reason := await relay.over:
                raise Refused(403, "limit", reason)
        finally:
            relay.end()
            traffic.sent, traffic.received = relay.sent, relay.received
            self._terms.relays.discard(relay)

    # -- plain HTTP --------------------------------------------------------------------------------

    async def _forward(self, head: Head, place: HttpUrl) -> None:
        self._kind = "request"
        addresses = await self._judge(head, place.host, place.port, "http")

        async def already_known(_: str) -> Sequence[str]:
            return addresses

        async with (
            self._exchanging(head, self._limits.upload_a_connection) as exchange,
            Client(self._terms.allowed, lookup=already_known) as client,
            client.stream(
                head.method,
                f"http://{place.authority}{place.target}",
                headers=head.passed_on() | exchange.length,
                content=exchange.content(),
                connect_timeout_s=self._limits.connect_s,
                read_timeout_s=self._limits.idle_s,
                max_response_bytes=_MOST_ANSWERED,
            ) as response,
        ):
            await exchange.answer(response, response.headers)

    async def _local(self, head: Head) -> None:
        self._kind = "broker"
        broker = self._terms.broker
        if head.fields.get("host") not in self._terms.own_names:
            raise Refused(400, "malformed", "the Host field does not name this proxy")
        if broker is None or not head.target.startswith(PREFIX):
            raise Refused(403, "call", "there is nothing here")
        call = broker.judge(head)
        if isinstance(call, Refusal):
            raise Refused(call.status, "token" if call.status == 401 else "call", call.reason)
        place = parse_url(call.account.base_url)
        self._host, self._port = place.host, place.port
        if why := await broker.refusal():
            raise Refused(402, "budget", why)
        self._report("allowed", f"a call of provider {call.account.provider!r}", str(call.route))
        async with self._exchanging(head, self._limits.call_body) as exchange:
            await broker.carry_out(call, exchange)

    @asynccontextmanager
    async def _exchanging(self, head: Head, most: int) -> AsyncGenerator[Exchange]:
        """Pass a request on; end it when the child hangs up, for nobody waits for its answer."""
        task = asyncio.current_task()
        assert task is not None
        self._within(self._limits.connection_s, Refused(403, "limit", _TIME_IS_UP))
        exchange = Exchange(self._wire, head, self._limits.idle_s, self._may_upload(most))
        if self._wire.ended:
            raise ConnectionResetError
        self._wire.on_gone = task.cancel
        with self._accounted() as traffic:
            try:
                if (head.length or 0) > most:
                    raise Refused(413, "limit", f"the request's body is larger than {most} bytes")
                if reason := self._terms.uploads.refuse(head.size, 0):
                    raise Refused(413, "limit", reason)
                yield exchange
                self._speaks_http = False
                await self._wire.hang_up(self._limits.idle_s)
            except EgressError as error:
                self._speaks_http = not exchange.answered
                if error.failure in ("refused", "too-large"):
                    why: Why = "limit" if error.failure == "too-large" else "address"
                    raise Refused(_STATUS[error.failure], why, str(error)) from None
                raise Failed(_STATUS[error.failure], str(error)) from None
            finally:
                self._wire.on_gone = None
                traffic.sent, traffic.received = exchange.sent, exchange.received

    def _may_upload(self, most: int) -> Callable[[int, int], str]:
        def refuse(size: int, sent_before: int) -> str:
            if sent_before + size > most:
                return f"the request's body is larger than {most} bytes"
            return self._terms.uploads.refuse(size, sent_before)

        return refuse
