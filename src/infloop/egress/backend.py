"""How the HTTP client connects: a name is resolved and checked, and a checked address dialled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpcore2

from infloop.egress.dial import dial
from infloop.egress.resolve import addresses_to_dial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.egress.resolve import Gate, Lookup


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses alone; TLS keeps the name, which the pool hands to it."""

    def __init__(self, gate: Gate, lookup: Lookup) -> None:
        self._gate = gate
        self._lookup = lookup
        self._transport = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore2's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Return a connection to a checked address of the host; raise EgressError otherwise."""
        assert timeout is not None
        deadline = asyncio.get_running_loop().time() + timeout

        async def connect(address: str) -> httpcore2.AsyncNetworkStream:
            try:
                return await self._transport.connect_tcp(address, port)
            except httpcore2.ConnectError as error:
                raise OSError(str(error)) from None

        try:
            async with asyncio.timeout_at(deadline):
                addresses = await addresses_to_dial(
                    host, port, gate=self._gate, lookup=self._lookup
                )
                return await dial(addresses, deadline, connect)
        except TimeoutError:
            raise httpcore2.ConnectTimeout from None
