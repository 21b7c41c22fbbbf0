"""The workflows that wait to run. Pure, apart from waking who waits for the next one.

Events and observed hooks come first, in their order. Then come changed files. A workflow that waits
because of changed files waits once, for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.watch.causes import Chain, Started

MOST_WAITING = 1_000
"""With so many waiting, further events are refused."""

_SHOWN_FILES = 3


class Waiting(msgspec.Struct, frozen=True):
    """A workflow, why it runs, and which changed files are the reason."""

    workflow: str
    cause: str
    files: tuple[str, ...] = ()
    chain: Chain = ()


class WorkflowQueue:
    """The queue of one loop."""

    def __init__(self) -> None:
        self._caused: deque[Waiting] = deque()
        self._changed: dict[str, Waiting] = {}
        self._filled = asyncio.Event()

    def has_room(self) -> bool:
        return len(self._caused) < MOST_WAITING

    def put_event(self, workflow: str, event: str) -> None:
        """Add the workflow of an event that was accepted."""
        self._put(Waiting(workflow, f"event '{event}'"))

    def put_observed(self, workflow: str, hook: str) -> None:
        """Add the workflow of an observed hook that changed the state."""
        self._put(Waiting(workflow, f"hook '{hook}' changed the state"))

    def put_changed(self, started: Started) -> None:
        """Add a workflow whose files changed, or its files to those that it waits for already."""
        known = self._changed.get(started.workflow)
        files, chain = started.files, started.chain
        if known is not None:
            files = tuple(sorted({*known.files, *files}))
            chain = max(known.chain, chain, key=len)
        waiting = Waiting(started.workflow, _described(files), files, chain)
        self._changed[started.workflow] = waiting
        self._filled.set()

    async def next(self) -> Waiting:
        """Wait for the next workflow and take it."""
        while not self._caused and not self._changed:
            self._filled.clear()
            await self._filled.wait()
        if self._caused:
            return self._caused.popleft()
        return self._changed.pop(next(iter(self._changed)))

    def _put(self, waiting: Waiting) -> None:
        self._caused.append(waiting)
        self._filled.set()


def _described(files: Sequence[str]) -> str:
    shown = ", ".join(files[:_SHOWN_FILES])
    more = len(files) - _SHOWN_FILES
    return f"{shown}{f' and {more} more' if more > 0 else ''} changed"
