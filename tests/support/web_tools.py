"""The web tools behind a gate, and servers for them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from infloop.egress.resolve import Lookup
from infloop.model.agent_config import EgressRule
from infloop.model.capabilities import ToolRule
from infloop.tools.gate import Gate, ToolResult
from infloop.tools.http_requests import ToolRequests
from infloop.tools.web.family import WebTools
from infloop.tools.web.search import SearchEndpoint
from support.egress_proxy import Serve, always, read_request
from support.tools import AuditList, Person, gate_for


class WebBench(NamedTuple):
    """The web tools, what was asked and what was recorded."""

    gate: Gate
    audit: AuditList
    person: Person

    async def fetch(self, url: str, **arguments: object) -> dict[str, Any]:
        """Fetch something that must be there."""
        result = await self.call("web_fetch", url=url, **arguments)
        assert not result.code, result
        fetched: dict[str, Any] = json.loads(result.text)
        return fetched

    async def call(self, tool: str, **arguments: object) -> ToolResult:
        return await self.gate.call(tool, arguments)  # type: ignore[arg-type]

    @property
    def detail(self) -> object:
        """What the operator reads about the last call."""
        return self.audit.entries[-1].details.get("detail")


@asynccontextmanager
async def web_bench(
    rules: Sequence[EgressRule] = (),
    *,
    lookup: Lookup | None = None,
    tls: ssl.SSLContext | None = None,
    search: SearchEndpoint | None = None,
    permissions: Sequence[ToolRule] = (),
    person: Person | None = None,
) -> AsyncIterator[WebBench]:
    """Open the web tools; every name is this machine, and a person allows everything."""
    requests = ToolRequests(rules, lookup=lookup or always("127.0.0.1"), tls=tls)
    person, audit = person or Person(allows=True), AuditList()
    async with gate_for(
        WebTools(requests, search),
        rules=permissions,
        ask=person,
        record=audit,
        max_text_chars=4 << 20,
    ) as gate:
        yield WebBench(gate, audit, person)


def answers(body: bytes, *headers: str, status: int = 200) -> Serve:
    """Answer every request with this."""
    head = "".join(f"{line}\r\n" for line in headers)
    length = "" if "content-length" in head or "chunked" in head else len(body)
    lengths = f"content-length: {length}\r\n" if length != "" else ""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(f"HTTP/1.1 {status} x\r\n{lengths}{head}\r\n".encode() + body)
        await writer.drain()

    return serve


def redirects(location: str, status: int = 302) -> Serve:
    """Redirect every request."""
    return answers(b"", f"location: {location}", status=status)
