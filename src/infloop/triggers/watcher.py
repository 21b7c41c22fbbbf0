"""Watches directories and starts runs when their files change.

Changes to triggers, and directories that are removed or created again, are noticed within seconds.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from infloop.triggers.payload import Values
from infloop.triggers.services import try_start
from infloop.watch.debounce import Changes, Debounce
from infloop.watch.directories import (
    RESCAN_MS,
    WatchedDirectory,
    changed_paths,
    find_directory,
)
from infloop.watch.patterns import BadGlob, FileFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger, Watch
    from infloop.triggers.services import IsOwnWrite, Notify


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
    directory: WatchedDirectory
    files: FileFilter = field(init=False)
    debounce: Debounce = field(init=False)

    def __post_init__(self) -> None:
        self.files = FileFilter(self.watch.globs, self.watch.ignore)
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
                    await asyncio.sleep(RESCAN_MS / 1000)
            except (OSError, RuntimeError) as error:  # RuntimeError: from inside watchfiles
                for one in self._watched.values():
                    self._notify_once(one.trigger, f"cannot watch {one.directory.path!r}: {error}")
                await asyncio.sleep(RESCAN_MS / 1000)

    async def _watch_directories(self, watched: set[WatchedDirectory]) -> None:
        """Collect changes until the set of directories changes."""
        async with aclosing(changed_paths(watched)) as batches:
            async for paths in batches:
                self._on_changes(paths)
                if self._refresh() != watched:
                    return

    def _on_changes(self, paths: list[str]) -> None:
        now = self._clock.now_ms()
        for one in self._watched.values():
            counted = [
                name
                for path in paths
                if path.startswith(f"{one.directory.path}/")
                and one.files.counts(name := path[len(one.directory.path) + 1 :])
                and not self._is_own_write(one.trigger.id, path, now)
            ]
            if counted:
                one.debounce.changed(counted, now)
                self._woken.set()

    def _refresh(self) -> set[WatchedDirectory]:
        """Update the watched triggers; return their directories."""
        before, self._watched = self._watched, {}
        for trigger in self._triggers():
            if trigger.enabled:
                one = self._watch_for(trigger, before.get(trigger.id))
                if one is not None:
                    self._watched[trigger.id] = one
        return {one.directory for one in self._watched.values()}

    def _watch_for(self, trigger: Trigger, before: _Watched | None) -> _Watched | None:
        """Return the watch of a trigger; an unchanged one keeps its collected changes."""
        watch = trigger.files
        assert watch is not None
        try:
            directory = find_directory(watch.directory)
            if before is not None and (before.watch, before.directory) == (watch, directory):
                before.trigger = trigger
                return before
            made = _Watched(trigger, watch, directory)
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
        attempt = self._start(one.trigger, changes)
        if not await try_start(one.trigger, attempt, self._notify):
            one.debounce.put_back(changes, self._clock.now_ms())
