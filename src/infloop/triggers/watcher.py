"""Watches directories and starts what waits for their files.

A trigger that was added, changed or switched off, and a directory that was removed or made again,
are noticed within seconds.
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

_LOOK_AGAIN_MS = 2_000
_GATHER_MS = 50
_MAX_GATHER_MS = 400

Identity: TypeAlias = tuple[int, int]
"""What tells a directory from one that was made later in its place."""


class StartChanged(Protocol):
    """Asks for a run of a trigger whose files changed; returns whether it is queued."""

    def __call__(self, trigger: Trigger, changes: Changes) -> Awaitable[bool]:
        """Queue the run; raise InfloopError when it can never be queued, StoreError if not now."""


class TellAboutFiles(Protocol):
    """Is told what a person should know about a watched directory."""

    def __call__(self, trigger: Trigger, message: str) -> None:
        """Write it down."""


class Owns(Protocol):
    """Says whether a run of the trigger itself made the change that was just heard of."""

    def __call__(self, trigger_id: str, path: str, now_ms: int) -> bool:
        """Return True for a run's own write."""


def changed_values(watch: Watch, changes: Changes) -> Values:
    """Return what a file trigger's templates can refer to: `files.paths`, `files.first`."""
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
    """A trigger that is being watched, and the directory as it was when that began."""

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
    """Keeps a watch on the files of all triggers. `triggers` says which there are now."""

    def __init__(
        self,
        triggers: Callable[[], Iterable[Trigger]],
        start: StartChanged,
        tell: TellAboutFiles,
        owns: Owns,
        clock: Clock,
    ) -> None:
        self._triggers = triggers
        self._start = start
        self._tell = tell
        self._owns = owns
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._told: dict[str, str] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._fire())

    # -- listening ---------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            watched = self._refreshed()
            try:
                if watched:
                    await self._listen_to(watched)
                else:
                    await asyncio.sleep(_LOOK_AGAIN_MS / 1000)
            except (OSError, RuntimeError) as error:  # RuntimeError: from inside watchfiles
                for one in self._watched.values():
                    self._complain(one.trigger, f"cannot watch {one.root!r}: {error}")
                await asyncio.sleep(_LOOK_AGAIN_MS / 1000)

    async def _listen_to(self, watched: set[tuple[str, Identity]]) -> None:
        """Take note of changes until other directories are to be watched."""
        from watchfiles import awatch

        # One watch for all of them: each takes a thread.
        batches = awatch(
            *sorted({root for root, _ in watched}),
            watch_filter=None,
            step=_GATHER_MS,
            debounce=_MAX_GATHER_MS,
            rust_timeout=_LOOK_AGAIN_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        async with aclosing(batches):
            async for batch in batches:
                self._heard([path for _, path in batch])
                if self._refreshed() != watched:
                    return

    def _heard(self, paths: list[str]) -> None:
        now = self._clock.now_ms()
        for one in self._watched.values():
            counted = [
                name
                for path in paths
                if path.startswith(f"{one.root}/")
                and one.files.counts(name := path[len(one.root) + 1 :])
                and not self._owns(one.trigger.id, path, now)
            ]
            if counted:
                one.debounce.changed(counted, now)
                self._woken.set()

    def _refreshed(self) -> set[tuple[str, Identity]]:
        """Bring what is watched up to date; return the directories."""
        before, self._watched = self._watched, {}
        for trigger in self._triggers():
            if trigger.kind == "file" and trigger.enabled:
                one = self._prepared(trigger, before.get(trigger.id))
                if one is not None:
                    self._watched[trigger.id] = one
        return {(one.root, one.identity) for one in self._watched.values()}

    def _prepared(self, trigger: Trigger, before: _Watched | None) -> _Watched | None:
        """Return what is to be watched; changes that were noted already are kept."""
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
            self._complain(trigger, str(error))
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            self._complain(trigger, f"cannot watch {watch.directory!r}: {error}")
        else:
            self._told.pop(trigger.id, None)
            return made
        return None

    def _complain(self, trigger: Trigger, message: str) -> None:
        if self._told.get(trigger.id) != message:
            self._told[trigger.id] = message
            self._tell(trigger, message)

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
        if not await self._started(one.trigger, changes):
            one.debounce.put_back(changes, self._clock.now_ms())

    async def _started(self, trigger: Trigger, changes: Changes) -> bool:
        """Ask for a run; return False when it is to be asked for again."""
        try:
            return await self._start(trigger, changes)
        except (OSError, StoreError) as error:
            self._tell(trigger, f"cannot be started now: {error}")
            return False
        except InfloopError as error:
            self._tell(trigger, f"cannot be started: {error}")
            return True
