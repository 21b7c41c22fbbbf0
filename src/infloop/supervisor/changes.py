"""Turns changed files into workflows.

- Changes are collected for a fixed time after the first one, and then decided together.
- Only a file whose content differs has changed.
- What the children of a running workflow write belongs to that workflow. While none of them has
  written anything, a change is a person's.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from infloop.watch.causes import decide
from infloop.watch.contents import Contents
from infloop.watch.globs import GlobSet
from infloop.watch.inotify import InotifyWatch
from infloop.watch.polling import PollWatch
from infloop.watch.targets import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from infloop.model.clock import Clock
    from infloop.model.dev.config import DevConfig
    from infloop.supervisor.reports import Surface
    from infloop.watch.causes import Decision, Writer

Backend: TypeAlias = InotifyWatch | PollWatch

# The kernel's file times may be some milliseconds behind the clock.
_CLOCK_GRAIN_MS = 50
_LOOK_INTERVAL_S = 0.2


class Changes:
    """Watches the files of one loop; `on_decision` gets what starts."""

    def __init__(
        self,
        config: DevConfig,
        surface: Surface,
        clock: Clock,
        on_decision: Callable[[Decision], None],
        children_wrote: Callable[[], bool],
    ) -> None:
        self._config = config
        self._surface = surface
        self._clock = clock
        self._on_decision = on_decision
        self._children_wrote = children_wrote
        patterns = [path for group in config.watch.values() for path in group.paths]
        self._scope = Scope(patterns, default_excludes=config.watcher.default_excludes)
        self._all = GlobSet(patterns)
        self._groups = [
            (config.workflow_of(name), GlobSet(group.paths)) for name, group in config.watch.items()
        ]
        self._own_file = _relative(config.state_path, config.root)
        self._contents = Contents(config.root, self._scope, self._counts)
        self._backend: Backend | None = None
        self._learned: asyncio.Future[None] | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._writer: Writer | None = None
        self._by_person: set[str] = set()
        self._by_children: set[str] = set()
        self._written: dict[str, Writer] = {}

    def start(self) -> None:
        """Watch from now on."""
        before_ns = (self._clock.now_ms() - _CLOCK_GRAIN_MS) * 1_000_000
        self._backend = self._open_backend()
        loop = asyncio.get_running_loop()
        self._learned = loop.run_in_executor(None, self._contents.learn, before_ns)
        for target in self._scope.targets:
            path = str(Path(self._config.root, target.path))
            note = " (recursive)" if target.recursive else ""
            self._surface.log("INFO", f"watching {path}{note}")

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
        if self._deciding is not None:
            self._deciding.cancel()

    @asynccontextmanager
    async def written_by(self, writer: Writer) -> AsyncIterator[None]:
        """Attribute what children write meanwhile to a running workflow."""
        if self._backend is None:  # startup workflows run before anything is watched
            yield
            return
        self._backend.drain()
        self._writer = writer
        looking = asyncio.get_running_loop().create_task(self._keep_looking())
        try:
            yield
        finally:
            looking.cancel()
            self._backend.drain()
            self._writer = None
            async with self._reading:
                paths, self._by_children = self._by_children - self._by_person, set()
                for path in self._contents.changed(paths):
                    self._written[path] = writer
            if self._written:
                self._decide_soon()

    async def _keep_looking(self) -> None:
        """Look regularly, so that what was written long ago is not taken for a new write."""
        while True:
            self._children_wrote()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def _open_backend(self) -> Backend:
        watcher = self._config.watcher
        root = self._config.root
        if watcher.kind == "native":
            try:
                return InotifyWatch(root, self._scope, self._on_changed)
            except OSError as error:
                self._surface.log(
                    "WARN",
                    f"the kernel cannot watch {root}: {error.strerror}; polling every "
                    f"{watcher.poll_interval_ms} ms instead (see fs.inotify.max_user_watches)",
                )
        return PollWatch(root, self._scope, self._on_changed, watcher.poll_interval_ms)

    def _counts(self, path: str) -> bool:
        return path != self._own_file and not self._scope.excludes(path) and self._all.matches(path)

    def _on_changed(self, paths: set[str]) -> None:
        counted = {path for path in paths if path[-1:] in ("", "/") or self._counts(path)}
        if not counted:
            return
        if self._writer is not None and self._children_wrote():
            self._by_children |= counted
            return
        self._by_person |= counted
        self._decide_soon()

    def _decide_soon(self) -> None:
        if self._deciding is None:
            self._deciding = asyncio.get_running_loop().create_task(self._decide())

    async def _decide(self) -> None:
        await asyncio.sleep(self._config.debounce_ms / 1000)
        assert self._learned is not None
        await self._learned
        async with self._reading:
            self._deciding = None
            by_person, self._by_person = self._by_person, set()
            written, self._written = self._written, {}
            changed: dict[str, Writer | None] = {**written}
            found = await asyncio.to_thread(self._contents.changed, by_person)
            changed.update(dict.fromkeys(found))
        if changed:
            workflows_of = {
                path: {workflow for workflow, files in self._groups if files.matches(path)}
                for path in changed
            }
            self._on_decision(decide(changed, workflows_of))


def _relative(path: str, root: str) -> str:
    try:
        return str(Path(path).relative_to(root))
    except ValueError:
        return ""
