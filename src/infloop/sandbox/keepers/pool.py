"""A pool of keepers that run children.

A keeper owns one child tree at a time and is reused. As many as needed run at one time, and a few
stay when idle. Everything happens in callbacks of one event loop:

    `spawn` is sent -> `exited` -> `clean` -> the pipes reach their end -> the call returns

`end` (timeout, cancel, close) is one more message to the keeper. A keeper that dies or does not
answer is killed, and the server ends the processes that it left behind (see orphans).
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.child import Child
from infloop.sandbox.keepers.connection import (
    EncodedSpawn,
    KeeperConnection,
    KeeperOptions,
    spawn_frame,
)
from infloop.sandbox.keepers.fd_watcher import FdWatcher
from infloop.sandbox.keepers.orphans import adopt_orphans
from infloop.sandbox.keepers.passed_listeners import PassedListeners

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.spawn_request import SpawnRequest

_MAX_IDLE = 4
_NICE, _NICE_OF_MANY = 10, 19
"""The priority of children, and of those that start when every processor could have one."""


class KeeperPool:
    """Runs children, each under a keeper of its own; belongs to the loop that first uses it.

    With a `user` (uid and gid; needs root) keepers and their children run as that user. `modules`
    are modules in this directory that the keepers import for their children.
    """

    def __init__(
        self,
        max_idle: int = _MAX_IDLE,
        *,
        user: tuple[int, int] | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        self._max_idle = max_idle
        self._options = KeeperOptions(user, modules)
        self._watcher: FdWatcher | None = None
        self._idle: list[KeeperConnection] = []
        self._busy: set[KeeperConnection] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(
        self,
        request: ChildRequest,
        spawn: SpawnRequest,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        """Run the command `spawn` for `request`; see `Sandbox.run`."""
        if self._closed:
            return ChildResult(error="the sandbox is closed")
        listeners = _listeners(spawn)
        try:
            child = Child(request, self._fd_watcher(), on_output, on_started)
        except OSError as error:
            return ChildResult(error=f"the child could not be started: {error}")
        keeper = None
        try:
            if self._options.user:
                child.pipes.change_owner(self._options.user)
            pipes = len(child.pipes.child_ends)
            frame = spawn_frame(
                request, spawn, pipes=pipes, announce=on_started is not None, nice=self._nice()
            )
            message = EncodedSpawn(frame, spawn.descriptors, listeners, spawn.on_placed)
            keeper = self._assign_keeper(child, message)
        except ValueError as error:
            child.not_started(str(error))
        except OSError as error:
            child.not_started(f"no keeper could be started: {error}")
        try:
            if keeper and listeners and await listeners.deliver():
                keeper.release_child(child)
            await child.settled.wait()
        except BaseException:
            child.end()
            await run_uncancelled(child.settled.wait())
            raise
        finally:
            if listeners:
                listeners.close()
        return child.outcome()

    async def close(self) -> None:
        """End every child and every keeper; calls that wait for a child return."""
        self._closed = True
        await run_uncancelled(self._end_all())

    async def _end_all(self) -> None:
        children = [keeper.child for keeper in self._busy if keeper.child]
        for child in children:
            child.error = "the sandbox was closed"
            child.end()
        for child in children:
            await child.settled.wait()
        while self._idle:
            self._retire(self._idle.pop())
        while self._reaping:
            await asyncio.wait(self._reaping)
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _nice(self) -> int:
        """Return the priority of the next child.

        All children together must leave enough time for the server.
        """
        return _NICE if len(self._busy) < len(os.sched_getaffinity(0)) else _NICE_OF_MANY

    def _fd_watcher(self) -> FdWatcher:
        if self._watcher is None:
            adopt_orphans()
            self._watcher = FdWatcher(asyncio.get_running_loop())
        return self._watcher

    def _assign_keeper(self, child: Child, message: EncodedSpawn) -> KeeperConnection:
        """Give the child to an idle keeper that is alive, or to a new one."""
        keeper = None
        while self._idle and keeper is None:
            keeper = self._idle.pop()
            if not keeper.spawn(child, message):
                self._retire(keeper)
                keeper = None
        if keeper is None:
            keeper = KeeperConnection(
                self._fd_watcher(), self._on_free, self._on_lost, self._options
            )
            if not keeper.spawn(child, message):
                self._retire(keeper)
                raise ConnectionError("it ended at once")
        self._busy.add(keeper)
        return keeper

    def _on_free(self, keeper: KeeperConnection) -> None:
        self._busy.discard(keeper)
        if len(self._idle) < self._max_idle and not self._closed:
            self._idle.append(keeper)
        else:
            self._retire(keeper)

    def _on_lost(self, keeper: KeeperConnection) -> None:
        self._busy.discard(keeper)
        if keeper in self._idle:
            self._idle.remove(keeper)
        self._retire(keeper)

    def _retire(self, keeper: KeeperConnection) -> None:
        keeper.disconnect()
        reaping = asyncio.get_running_loop().create_task(keeper.reap())
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)


def _listeners(spawn: SpawnRequest) -> PassedListeners | None:
    bubblewrap = spawn.bubblewrap
    return PassedListeners(bubblewrap) if bubblewrap and bubblewrap.ports else None
