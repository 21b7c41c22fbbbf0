"""Watches directories and starts runs when their files change.

- A file counts if its content differs. A write that changes nothing starts nothing.
- Changes to triggers, and directories that are removed or created again, are noticed within
  seconds.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from infloop.triggers.payload import Values
from infloop.triggers.services import try_start
from infloop.watch.content_watch import open_watch
from infloop.watch.debounce import Changes, Debounce
from infloop.watch.directories import find_directory
from infloop.watch.patterns import IGNORED_DIRECTORIES, BadGlob, FileFilter
from infloop.watch.targets import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger, Watch
    from infloop.triggers.services import IsOwnWrite, Notify
    from infloop.watch.content_watch import ContentWatch
    from infloop.watch.directories import WatchedDirectory

RESCAN_MS = 2_000
"""How often triggers and their directories are looked at again."""

_GATHER_S = 0.05


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


class _Watched:
    """The files of one trigger, in its directory as it was when the watch started.

    `on_changed` is called when there is something to start.
    """

    def __init__(
        self,
        trigger: Trigger,
        watch: Watch,
        directory: WatchedDirectory,
        is_own_write: IsOwnWrite,
        clock: Clock,
        on_changed: Callable[[], None],
    ) -> None:
        """Raise BadGlob for patterns that cannot be used."""
        self.trigger = trigger
        self.watch = watch
        self.directory = directory
        self.debounce = Debounce(watch.debounce_ms)
        self._files = FileFilter(watch.globs, watch.ignore)
        self._is_own_write = is_own_write
        self._clock = clock
        self._on_changed = on_changed
        self._content: ContentWatch | None = None
        self._noticed: dict[str, bool] = {}
        self._comparing: asyncio.Task[None] | None = None

    async def open(self, warn: Callable[[str], None]) -> None:
        """Watch from now on; raise OSError where that is not possible."""
        self._content = await open_watch(
            self.directory.path,
            Scope(self.watch.globs, exclude=IGNORED_DIRECTORIES),
            self._files.counts,
            self._on_noticed,
            warn,
            self._clock,
            poll_ms=RESCAN_MS,
        )

    def close(self) -> None:
        if self._content is not None:
            self._content.close()
        if self._comparing is not None:
            self._comparing.cancel()

    def _on_noticed(self, paths: set[str]) -> None:
        """Note for each path whether somebody else than a run of the trigger may have changed it.

        That is asked now: later, the run may be long over.
        """
        now = self._clock.now_ms()
        for path in paths:
            full = f"{self.directory.path}/{path}".rstrip("/")
            foreign = not self._is_own_write(self.trigger.id, full, now)
            self._noticed[path] = foreign or self._noticed.get(path, False)
        if self._comparing is None:
            self._comparing = asyncio.get_running_loop().create_task(self._compare())

    async def _compare(self) -> None:
        """Compare contents, with pauses in which changes gather."""
        assert self._content is not None
        loop = asyncio.get_running_loop()
        pause = _GATHER_S
        while self._noticed:
            await asyncio.sleep(pause)
            noticed, self._noticed = self._noticed, {}
            began = loop.time()
            changed = await self._content.changed(noticed)
            # A large file that is always written takes a tenth of the time at most.
            pause = max(_GATHER_S, 9 * (loop.time() - began))
            found = [each.path for each in changed if _is_foreign(each.path, noticed)]
            if found:
                self.debounce.changed(found, self._clock.now_ms())
                self._on_changed()
        self._comparing = None


def _is_foreign(path: str, noticed: Mapping[str, bool]) -> bool:
    """Tell whether a file was noticed as somebody else's: itself, a directory of it, or all."""
    if path in noticed:
        return noticed[path]
    return any(noticed[each] for each in noticed if not each or path.startswith(each))


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
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_forever())
                group.create_task(self._fire())
        finally:
            for one in self._watched.values():
                one.close()

    # -- watching ----------------------------------------------------------------------------

    async def _watch_forever(self) -> None:
        while True:
            await self._refresh()
            await asyncio.sleep(RESCAN_MS / 1000)

    async def _refresh(self) -> None:
        """Watch what the present triggers ask for, and nothing else."""
        wanted = {trigger.id: trigger for trigger in self._triggers() if trigger.enabled}
        for trigger_id in self._watched.keys() - wanted.keys():
            self._watched.pop(trigger_id).close()
        for trigger in wanted.values():
            await self._watch_for(trigger)

    async def _watch_for(self, trigger: Trigger) -> None:
        """Watch the files of a trigger; an unchanged watch keeps its collected changes."""
        watch = trigger.files
        assert watch is not None
        before = self._watched.pop(trigger.id, None)
        try:
            directory = find_directory(watch.directory)
            if before is not None and (before.watch, before.directory) == (watch, directory):
                before.trigger = trigger
                self._watched[trigger.id], before = before, None
                return
            made = _Watched(
                trigger, watch, directory, self._is_own_write, self._clock, self._woken.set
            )
            await made.open(lambda message: self._notify(trigger, message))
        except BadGlob as error:
            self._notify_once(trigger, str(error))
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            self._notify_once(trigger, f"cannot watch {watch.directory!r}: {error}")
        else:
            self._notified.pop(trigger.id, None)
            self._watched[trigger.id] = made
        finally:
            if before is not None:
                before.close()

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
