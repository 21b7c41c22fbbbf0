"""Watches the descriptors of all children with one epoll instance.

A child needs several descriptors for a few milliseconds. An epoll instance of our own, registered
with the event loop once, needs one system call to watch a descriptor and none to forget it (closing
does that), under asyncio and uvloop.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_EVENTS = 64


class FdWatcher:
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

    def watch_writing(self, fd: int, *, wanted: bool) -> None:
        """Also call back for a watched `fd` when it is writable, or stop doing so."""
        both = select.EPOLLIN | select.EPOLLOUT
        self._epoll.modify(fd, both if wanted else select.EPOLLIN)

    def watch_reading(self, fd: int, *, wanted: bool) -> None:
        """Call back for a watched `fd` when it is readable, or only when it is closed."""
        self._epoll.modify(fd, select.EPOLLIN if wanted else 0)

    def forget(self, fd: int) -> None:
        """Stop calling back for `fd`; its owner closes it next."""
        self._callbacks.pop(fd, None)

    async def readable(self, fd: int, timeout_s: float) -> bool:
        """Wait until `fd` is readable; return False after `timeout_s`."""
        try:
            await asyncio.wait_for(self._once(fd), timeout_s)
        except TimeoutError:
            return False
        return True

    async def writable(self, fd: int) -> None:
        """Wait until `fd` is writable or its reader is gone."""
        await self._once(fd, write=True)

    def close_fd(self, fd: int) -> None:
        self.forget(fd)
        os.close(fd)

    def close(self) -> None:
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
        for fd, _ in self._epoll.poll(0, _MAX_EVENTS):
            # An earlier callback of this loop may have closed it.
            callback = self._callbacks.get(fd)
            if callback is None:
                continue
            try:
                callback()
            except Exception as error:  # noqa: BLE001  (as the event loop does: the others go on)
                self._loop.call_exception_handler(
                    {"message": f"a child's descriptor {fd} failed", "exception": error}
                )
