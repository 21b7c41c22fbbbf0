"""The keepers of all children.

A keeper owns one child tree at a time and is used again; a few stay when idle, and as many as
are needed run at once. Everything happens in callbacks of one event loop, and nothing waits for a
child:

    spawn is sent -> `exited` -> `clean` -> the pipes reach their end -> the call returns

`end` (timeout, cancel, close) is one more message to the keeper. A keeper that dies or does not
answer is killed, and the server ends what it left behind (see strays).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.child import Child
from infloop.sandbox.keepers.connection import Keeper, Order, Outfit, spawn_frame
from infloop.sandbox.keepers.fd_watcher import Readiness
from infloop.sandbox.keepers.orphans import adopt_orphans
from infloop.sandbox.keepers.passed_listeners import Listeners

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.launch import Launch

_MAX_IDLE = 4


class KeeperPool:
    """Runs children, each under a keeper of its own; belongs to the loop that first uses it.

    With a `user` (uid and gid; needs root) keepers, and so their children, are that user from the
    beginning. `modules` are those beside keeper.py that its children need.
    """

    def __init__(
        self,
        max_idle: int = _MAX_IDLE,
        *,
        user: tuple[int, int] | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        self._max_idle = max_idle
        self._outfit = Outfit(user, modules)
        self._readiness: Readiness | None = None
        self._idle: list[Keeper] = []
        self._busy: set[Keeper] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(
        self,
        request: ChildRequest,
        launch: Launch,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        """Run what `launch` says on behalf of the request; see `Sandbox.run`."""
        if self._closed:
            return ChildResult(error="the sandbox is closed")
        listeners = Listeners(launch.bubble) if launch.bubble and launch.bubble.ports else None
        try:
            child = Child(request, self._watching(), on_output, on_started)
        except OSError as error:
            return ChildResult(error=f"the child could not be started: {error}")
        keeper = None
        try:
            if self._outfit.user:
                child.pipes.give_to(self._outfit.user)
            pipes = len(child.pipes.child_ends)
            frame = spawn_frame(request, launch, pipes=pipes, announce=on_started is not None)
            keeper = self._hand_to_keeper(child, Order(frame, launch.descriptors, listeners))
        except ValueError as error:
            child.not_started(str(error))
        except OSError as error:
            child.not_started(f"no keeper could be started: {error}")
        try:
            if keeper and listeners and await listeners.hand_on():
                keeper.let_begin(child)
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
        await run_uncancelled(self._close())

    async def _close(self) -> None:
        self._closed = True
        children = [keeper.child for keeper in self._busy if keeper.child]
        for child in children:
            child.error = "the sandbox was closed"
            child.end()
        for child in children:
            await child.settled.wait()
        while self._idle:
            self._retire(self._idle.pop())
        while self._burials:
            await asyncio.wait(self._burials)
        if self._readiness is not None:
            self._readiness.close()
            self._readiness = None

    def _watching(self) -> Readiness:
        if self._readiness is None:
            adopt_orphans()
            self._readiness = Readiness(asyncio.get_running_loop())
        return self._readiness

    def _hand_to_keeper(self, child: Child, order: Order) -> Keeper:
        """Give the child to an idle keeper that still lives, or to a new one."""
        keeper = None
        while self._idle and keeper is None:
            keeper = self._idle.pop()
            if not keeper.take(child, order):
                self._retire(keeper)
                keeper = None
        if keeper is None:
            keeper = Keeper(self._watching(), self._on_free, self._on_lost, self._outfit)
            if not keeper.take(child, order):
                self._retire(keeper)
                raise ConnectionError("it ended at once")
        self._busy.add(keeper)
        return keeper

    def _on_free(self, keeper: Keeper) -> None:
        self._busy.discard(keeper)
        if len(self._idle) < self._max_idle and not self._closed:
            self._idle.append(keeper)
        else:
            self._retire(keeper)

    def _on_lost(self, keeper: Keeper) -> None:
        self._busy.discard(keeper)
        if keeper in self._idle:
            self._idle.remove(keeper)
        self._retire(keeper)

    def _retire(self, keeper: Keeper) -> None:
        keeper.shut()
        burial = asyncio.get_running_loop().create_task(keeper.bury())
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
