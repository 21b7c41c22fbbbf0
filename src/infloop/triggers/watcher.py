"""Watches directories and starts runs when their files change.

Changes to triggers, and directories that are removed or created again, are noticed within seconds.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from infloop.errors import InfloopError, StoreError
from infloop.triggers.filewatch import BadGlob, Changes, Debounce, FileFilter
from infloop.triggers.payload import Values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger, Watch
    from infloop.triggers.services import IsOwnWrite, Notify

_RESCAN_MS = 2_000
_GATHER_MS = 50
_MAX_GATHER_MS = 400

Identity: TypeAlias = tuple[int, int]
"""Device and inode, which distinguish a directory from a later one at the same path."""


class StartChanged(Protocol):
    """Starts a run of a trigger whose files changed; returns False while the queue is full."""

    def __call__(self, trigger: Trigger, changes: Changes) -> Awaitable[bool]:
        """Queue the run; see `StartRun` for the errors."""


def changed_values(watch: Watch, changes: Changes) -> Values:
    """Return the values for a file trigger's templates: `files.paths`, `files.first`."""
    return Values(
        {
            "files": {
                "directory": watch.directory,
                "paths": list(changes.paths),
                "first": changes.paths[0],
                "count": changes.count,
            }
        }
    )


@dataclass(slots=True)
class _Watched:
    """A watched trigger, and its directory as it was when the watch started."""

    trigger: Trigger
    watch: Watch
    root: str
    identity: Identity
    files: FileFilter = field(init=False)
    debounce: Debounce = field(init=False)

    def __post_init__(self) -> None:
        self.files = FileFilter(self.watch)
        self.debounce = Debounce(self.watch.debounce_ms)


class Watcher:
    """Watches the files of all triggers; `triggers` returns the present ones."""

    def __init__(
        self,
        triggers: Callable[[], Iterable[Trigger]],
        start: StartChanged,
        notify: Notify,
        is_own_write: IsOwnWrite,
        clock: Clock,
    ) -> None:
        self._triggers = triggers
        self._start = start
        self._notify = notify
        self._is_own_write = is_own_write
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._notified: dict[str, str] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_forever())
            group.create_task(self._fire())

    # -- watching ----------------------------------------------------------------------------

    async def _watch_forever(self) -> None:
        while True:
            watched = self._refresh()
            try:
                if watched:
                    await self._watch_directories(watched)
                else:
                    await asyncio.sleep(_RESCAN_MS / 1000)
            except (OSError, RuntimeError) as error:  # RuntimeError: from inside watchfiles
                for one in self._watched.values():
                    self._notify_once(one.trigger, f"cannot watch {one.root!r}: {error}")
                await asyncio.sleep(_RESCAN_MS / 1000)

    async def _watch_directories(self, watched: set[tuple[str, Identity]]) -> None:
        """Collect changes until the set of directories changes."""
        from watchfiles import awatch

        # One watch for all directories, because each watch takes a thread.
        batches = awatch(
            *sorted({root for root, _ in watched}),
            watch_filter=None,
            step=_GATHER_MS,
            debounce=_MAX_GATHER_MS,
            rust_timeout=_RESCAN_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        async with aclosing(batches):
            async for batch in batches:
                self._on_changes([path for _, path in batch])
                if self._refresh() != watched:
                    return

    def _on_changes(self, paths: list[str]) -> None:
        now = self._clock.now_ms()
        for one in self._watched.values():
            counted = [
                name
                for path in paths
                if path.startswith(f"{one.root}/")
                and one.files.counts(name := path[len(one.root) + 1 :])
                and not self._is_own_write(one.trigger.id, path, now)
            ]
            if counted:
                one.debounce.changed(counted, now)
                self._woken.set()

    def _refresh(self) -> set[tuple[str, Identity]]:
        """Update the watched triggers; return their directories."""
        before, self._watched = self._watched, {}
        for trigger in self._triggers():
            if trigger.enabled:
                one = self._watch_for(trigger, before.get(trigger.id))
                if one is not None:
                    self._watched[trigger.id] = one
        return {(one.root, one.identity) for one in self._watched.values()}

    def _watch_for(self, trigger: Trigger, before: _Watched | None) -> _Watched | None:
        """Return the watch of a trigger; an unchanged one keeps its collected changes."""
        watch = trigger.files
        assert watch is not None
        try:
            root = Path(watch.directory).resolve(strict=True)
            found = root.stat()
            identity = found.st_dev, found.st_ino
            if before is not None and (before.watch, before.identity) == (watch, identity):
                before.trigger = trigger
                return before
            made = _Watched(trigger, watch, str(root).rstrip("/"), identity)
        except BadGlob as error:
            self._notify_once(trigger, str(error))
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            self._notify_once(trigger, f"cannot watch {watch.directory!r}: {error}")
        else:
            self._notified.pop(trigger.id, None)
            return made
        return None

    def _notify_once(self, trigger: Trigger, message: str) -> None:
        if self._notified.get(trigger.id) != message:
            self._notified[trigger.id] = message
            self._notify(trigger, message)

    # -- starting ----------------------------------------------------------------------------

    async def _fire(self) -> None:
        while True:
            now = self._clock.now_ms()
            waits = [one.debounce.wait_ms(now) for one in self._watched.values()]
            wait = min((ms for ms in waits if ms is not None), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait is None else wait / 1000):
                    await self._woken.wait()
            self._woken.clear()
            for one in list(self._watched.values()):
                await self._fire_one(one)

    async def _fire_one(self, one: _Watched) -> None:
        changes = one.debounce.take(self._clock.now_ms())
        if changes is None:
            return
        if not await self._try_start(one.trigger, changes):
            one.debounce.put_back(changes, self._clock.now_ms())

    async def _try_start(self, trigger: Trigger, changes: Changes) -> bool:
        """Start a run; return False if it must be tried again."""
        try:
            return await self._start(trigger, changes)
        except (OSError, StoreError) as error:
            self._notify(trigger, f"cannot be started now: {error}")
            return False
        except InfloopError as error:
            self._notify(trigger, f"cannot be started: {error}")
            return True
