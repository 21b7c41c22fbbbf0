"""A credential broker at work, and a provider on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from infloop.egress.broker import Account, AdmittedCall, Broker, CallRefused, KeyField
from infloop.egress.limits import ProxyLimits
from infloop.policy.routes import Dialect, Route
from infloop.providers.base import Usage
from infloop.providers.http.dialects import dialect_of
from infloop.providers.http.usage_meter import UsageMeter
from support.egress_proxy import (
    TOKEN,
    Far,
    Run,
    far_side,
    read_request,
    running_proxy,
)

KEY = "sk-the-real-key-of-the-operator"


@dataclass
class Provider:
    """A provider's API: what it was asked, and what it answers."""

    answer: bytes = b'{"ok":true}'
    head: str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    heard: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await read_request(reader))
        length = f"content-length: {len(self.answer)}\r\n\r\n"
        writer.write(f"{self.head}{length}".encode() + self.answer)

    def fields(self) -> dict[str, str]:
        """Return the fields of the only request."""
        ((head, _),) = self.heard
        lines = head.decode().split("\r\n")[1:-2]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


class Meter(UsageMeter):
    """A meter that says when it finishes."""

    on_finish: Callable[[], None] = staticmethod(lambda: None)

    def finish(self, *, sent: bool) -> None:
        self.on_finish()
        super().finish(sent=sent)


@dataclass
class Books:
    """Keeps every meter, and refuses what a test wants."""

    meters: list[UsageMeter] = field(default_factory=list)
    on_finish: Callable[[], None] = lambda: None
    why_not: str = ""
    is_limited: bool = False
    waits: bool = False
    sent_instead: bytes = b""
    bodies: list[bytes | None] = field(default_factory=list)

    async def admit(self, dialect: Dialect, route: Route, body: bytes | None) -> AdmittedCall:
        if self.waits:
            await asyncio.Event().wait()
        if self.why_not:
            raise CallRefused(402, self.why_not)
        self.bodies.append(body)
        body = self.sent_instead or body
        api = dialect_of(route.path)
        if api is None:
            return AdmittedCall(None, body)
        meter = Meter(api, lambda: None)
        meter.on_finish = self.on_finish
        self.meters.append(meter)
        return AdmittedCall(self.meters[-1], body)

    @property
    def used(self) -> Usage:
        return sum((each.usage for each in self.meters), Usage())


@dataclass
class World:
    run: Run
    far: Far
    provider: Provider
    budget: Books
    broker: Broker

    def request(self, path: str, *fields: str, method: str = "POST", body: bytes = b"{}") -> bytes:
        shown = fields or (f"x-api-key: {TOKEN}",)
        lines = (
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.run.port}",
            *shown,
            *((f"content-length: {len(body)}",) if body else ()),
            "",
            "",
        )
        return "\r\n".join(lines).encode() + body

    async def call(
        self, path: str, *fields: str, method: str = "POST", body: bytes = b"{}"
    ) -> tuple[int, bytes]:
        return await self.run.ask(self.request(path, *fields, method=method, body=body))


@asynccontextmanager
async def brokered(
    provider: Provider | None = None,
    *,
    dialect: Dialect = "anthropic",
    key_field: KeyField = "x-api-key",
    base_path: str = "",
    limits: ProxyLimits | None = None,
) -> AsyncIterator[World]:
    provider = provider or Provider()
    books = Books()
    async with far_side(provider.serve) as far:
        account = Account(
            "claude",
            f"http://127.0.0.1:{far.port}{base_path}",
            dialect,
            key_field,
            KEY,
            private_ok=True,
        )
        async with (
            Broker([account], token=TOKEN, limits=limits or ProxyLimits(), budget=books) as broker,
            running_proxy(broker=broker, limits=limits) as run,
        ):
            yield World(run, far, provider, books, broker)
