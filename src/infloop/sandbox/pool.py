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
import contextlib
from typing import TYPE_CHECKING

from infloop.sandbox.base import ChildResult
from infloop.sandbox.child import Child
from infloop.sandbox.keeping import Keeper, spawn_frame
from infloop.sandbox.readiness import Readiness
from infloop.sandbox.strays import adopt_orphans

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted

_MAX_IDLE = 4


class KeeperPool:
    """Runs children, each under a keeper of its own; belongs to the loop that first uses it."""

    def __init__(self, max_idle: int = _MAX_IDLE) -> None:
        self._max_idle = max_idle
        self._readiness: Readiness | None = None
        self._idle: list[Keeper] = []
        self._busy: set[Keeper] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        """Run `program` with the request's arguments; see `Sandbox.run`."""
        if self._closed:
            return ChildResult(error="the sandbox is closed")
        try:
            frame = spawn_frame(request, program, announce=on_started is not None)
            child = Child(request, self._watching(), on_output, on_started)
        except (ValueError, OSError) as error:
            return ChildResult(error=f"the child could not be started: {error}")
        try:
            self._hand_to_keeper(child, frame)
        except OSError as error:
            child.not_started(f"no keeper could be started: {error}")
        try:
            await asyncio.shield(child.settled)
        except asyncio.CancelledError:
            child.end()
            await _to_the_end(child.settled)
            raise
        return child.outcome()

    async def close(self) -> None:
        """End every child and every keeper; calls that wait for a child return."""
        self._closed = True
        children = [keeper.child for keeper in self._busy if keeper.child]
        for child in children:
            child.error = "the sandbox was closed"
            child.end()
        for child in children:
            await _to_the_end(child.settled)
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

    def _hand_to_keeper(self, child: Child, frame: bytes) -> None:
        """Give the child to an idle keeper that still lives, or to a new one."""
        keeper = None
        while self._idle and keeper is None:
            keeper = self._idle.pop()
            if not keeper.take(child, frame):
                self._retire(keeper)
                keeper = None
        if keeper is None:
            keeper = Keeper(self._watching(), self._on_free, self._on_lost)
            if not keeper.take(child, frame):
                self._retire(keeper)
                raise ConnectionError("it ended at once")
        self._busy.add(keeper)

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


async def _to_the_end(settled: asyncio.Future[None]) -> None:
    """Wait although this task is cancelled, again and again if need be; others rely on the end."""
    while not settled.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(settled)
