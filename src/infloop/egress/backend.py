"""Connects for the HTTP client: resolves a name, checks its addresses, dials a checked one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpcore2

from infloop.egress.dial import dial
from infloop.egress.resolve import addresses_to_dial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.egress.resolve import HostPolicy, Lookup


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only. The pool passes the name to TLS."""

    def __init__(self, policy: HostPolicy, lookup: Lookup) -> None:
        self._policy = policy
        self._lookup = lookup
        self._transport = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore2's interface)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Return a connection to a checked address of the host; raise EgressError on failure."""
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
                    host, port, policy=self._policy, lookup=self._lookup
                )
                return await dial(addresses, deadline, connect)
        except TimeoutError:
            raise httpcore2.ConnectTimeout from None
