"""Listening sockets that a keeper opens for a child and passes to the server."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.sandbox.spawn_request import BubblewrapOptions

_TIMEOUT_S = 10.0


class PassedListeners:
    """The listeners of one child, which is held until they have an owner; the owner closes them."""

    def __init__(self, bubblewrap: BubblewrapOptions) -> None:
        self._bubblewrap = bubblewrap
        self._arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sockets: list[socket.socket] = []
        self._wanted = True

    def receive(self, descriptors: list[int]) -> None:
        """Take the descriptors that the keeper sent, in the order of the ports."""
        self._sockets = [socket.socket(fileno=fd) for fd in descriptors]
        if not self._wanted:
            self.close()
        elif not self._arrived.done():
            self._arrived.set_result(True)

    def child_ended(self) -> None:
        """Stop waiting: the child has ended, so no listeners will come."""
        if not self._arrived.done():
            self._arrived.set_result(False)

    async def deliver(self) -> bool:
        """Wait for the listeners and pass them to their owner; False if the child ends before."""
        if not await self._arrived:
            return False
        assert self._bubblewrap.on_listening
        by_port = dict(zip(self._bubblewrap.ports, self._sockets, strict=True))
        async with asyncio.timeout(_TIMEOUT_S):
            await self._bubblewrap.on_listening(by_port)
        self._sockets = []
        return True

    def close(self) -> None:
        """Close listeners that have no owner, now or when they come."""
        self._wanted = False
        while self._sockets:
            self._sockets.pop().close()
