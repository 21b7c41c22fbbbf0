"""All descriptors of all children, watched by the event loop as one.

A child needs several descriptors for a few milliseconds. One epoll of our own, registered with the
loop once, makes each of them cost one system call to watch and none to forget (closing does it),
under asyncio and uvloop alike.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_ONCE = 64


class Readiness:
    """Calls back when a descriptor can be read (or written); callbacks must not block."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def watch(self, fd: int, callback: Callable[[], object], *, write: bool = False) -> None:
        """Call back whenever `fd` is readable, or writable when `write`, until it is closed."""
        self._epoll.register(fd, select.EPOLLOUT if write else select.EPOLLIN)
        self._callbacks[fd] = callback

    def also_write(self, fd: int, *, wanted: bool) -> None:
        """Call back for a watched `fd` also when it is writable, or no longer."""
        both = select.EPOLLIN | select.EPOLLOUT
        self._epoll.modify(fd, both if wanted else select.EPOLLIN)

    def also_read(self, fd: int, *, wanted: bool) -> None:
        """Call back for a watched `fd` whenever it is readable, or only at its end."""
        self._epoll.modify(fd, select.EPOLLIN if wanted else 0)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`, which its owner is about to close."""
        self._callbacks.pop(fd, None)

    async def readable(self, fd: int, timeout_s: float) -> bool:
        """Wait until `fd` can be read, watching it for this once; return whether it can."""
        try:
            await asyncio.wait_for(self._once(fd), timeout_s)
        except TimeoutError:
            return False
        return True

    async def writable(self, fd: int) -> None:
        """Wait until `fd` can be written, or nobody can read it, watching it for this once."""
        await self._once(fd, write=True)

    def close_fd(self, fd: int) -> None:
        """Close a descriptor, watched or not."""
        self.forget(fd)
        os.close(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    async def _once(self, fd: int, *, write: bool = False) -> None:
        ready = self._loop.create_future()
        self.watch(fd, lambda: None if ready.done() else ready.set_result(None), write=write)
        try:
            await ready
        finally:
            self._epoll.unregister(fd)
            self.forget(fd)

    def _dispatch(self) -> None:
        for fd, _ in self._epoll.poll(0, _AT_ONCE):
            # An earlier callback of this round may have closed it.
            callback = self._callbacks.get(fd)
            if callback is None:
                continue
            try:
                callback()
            except Exception as error:  # noqa: BLE001  (as the loop does: one must not stop the rest)
                self._loop.call_exception_handler(
                    {"message": f"a child's descriptor {fd} failed", "exception": error}
                )
