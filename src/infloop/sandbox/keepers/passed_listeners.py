"""The listeners of a child that is held, on their way from its keeper to their owner."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.sandbox.launch import Bubble

_PATIENCE_S = 10.0


class Listeners:
    """Sockets that listen inside a child's network; whoever is handed them closes them."""

    def __init__(self, bubble: Bubble) -> None:
        self._bubble = bubble
        self._arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sockets: list[socket.socket] = []
        self._wanted = True

    def arrive(self, descriptors: list[int]) -> None:
        """Take what the keeper sent, in the order of the ports."""
        self._sockets = [socket.socket(fileno=fd) for fd in descriptors]
        if not self._wanted:
            self.close()
        elif not self._arrived.done():
            self._arrived.set_result(True)

    def give_up(self) -> None:
        """Note that the child has ended: if there are none by now, none will come."""
        if not self._arrived.done():
            self._arrived.set_result(False)

    async def hand_on(self) -> bool:
        """Wait for the listeners and give them away; return False when the child ends before."""
        if not await self._arrived:
            return False
        assert self._bubble.on_listening
        by_port = dict(zip(self._bubble.ports, self._sockets, strict=True))
        async with asyncio.timeout(_PATIENCE_S):
            await self._bubble.on_listening(by_port)
        self._sockets = []
        return True

    def close(self) -> None:
        """Close what was not given away, now or when it comes."""
        self._wanted = False
        while self._sockets:
            self._sockets.pop().close()
