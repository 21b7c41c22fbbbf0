"""Turns changed files into workflows.

- Changes are collected for a fixed time after the first one, and then decided together.
- Only a file whose content differs has changed.
- What changes while a workflow runs is decided at its end: children of the workflow or a person may
  have written it. `written` tells them apart.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.supervisor.written import Moment, Written
from infloop.watch.causes import decide
from infloop.watch.content_watch import open_watch
from infloop.watch.globs import GlobSet
from infloop.watch.targets import DEFAULT_EXCLUDES, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from infloop.model.clock import Clock
    from infloop.model.dev.config import DevConfig
    from infloop.supervisor.reports import Surface
    from infloop.supervisor.written import Child
    from infloop.watch.causes import Decision, Writer
    from infloop.watch.content_watch import ContentWatch

_LOOK_INTERVAL_S = 0.02
_LOOK_SHARE = 0.1
"""Looking at what children have written takes this share of the time at most."""

MOST_IN_A_ROW = 20
"""So often in a row a file may be a person's that was changed while the workflow ran.

A workflow that writes in a way that nobody can see must not run for ever.
"""


class Changes:
    """Watches the files of one loop; `on_decision` gets what starts.

    `children` returns what runs now, and what that has written.
    """

    def __init__(
        self,
        config: DevConfig,
        surface: Surface,
        clock: Clock,
        on_decision: Callable[[Decision], None],
        children: Callable[[], Iterable[Child]],
    ) -> None:
        self._config = config
        self._surface = surface
        self._clock = clock
        self._on_decision = on_decision
        self._children = children
        patterns = [path for group in config.watch.values() for path in group.paths]
        excludes = DEFAULT_EXCLUDES if config.watcher.default_excludes else frozenset[str]()
        self._scope = Scope(patterns, exclude=excludes)
        self._all = GlobSet(patterns)
        self._groups = [
            (config.workflow_of(name), GlobSet(group.paths)) for name, group in config.watch.items()
        ]
        self._own_file = _relative(config.state_path, config.root)
        self._watch: ContentWatch | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._written = Written()
        self._noticed: set[str] = set()
        """Paths that may have changed while no workflow ran."""
        self._meanwhile: dict[str, dict[int, Moment]] | None = None
        """Paths that may have changed while the present workflow runs; None while none runs.

        Each time of a file's content has its moment.
        """
        self._known: dict[str, Writer | None] = {}
        """Files that did change while a workflow ran, and who did it."""
        self._in_a_row: dict[str, int] = {}

    async def start(self) -> None:
        """Watch from now on."""
        watcher = self._config.watcher
        self._watch = await open_watch(
            self._config.root,
            self._scope,
            self._counts,
            self._on_noticed,
            lambda message: self._surface.log("WARN", message),
            self._clock,
            poll_ms=watcher.poll_interval_ms,
            native=watcher.kind == "native",
        )
        for target in self._scope.targets:
            path = str(Path(self._config.root, target.path))
            note = " (recursive)" if target.recursive else ""
            self._surface.log("INFO", f"watching {path}{note}")

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._deciding is not None:
            self._deciding.cancel()

    @asynccontextmanager
    async def written_by(self, writer: Writer) -> AsyncIterator[None]:
        """Find out who writes files while a workflow runs."""
        if self._watch is None:  # startup workflows run before anything is watched
            yield
            return
        self._watch.drain()
        self._meanwhile = {}
        self._written.begin(self._children(), self._clock.now_ms())
        looking = asyncio.get_running_loop().create_task(self._keep_looking())
        try:
            yield
        finally:
            looking.cancel()
            self._watch.drain()
            self.look()
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile:
                await self._attribute(meanwhile, writer)

    async def _attribute(self, meanwhile: dict[str, dict[int, Moment]], writer: Writer) -> None:
        """Decide who changed the files that changed while a workflow ran."""
        assert self._watch is not None
        by_person = {}
        # What was noticed before is a person's, and is decided with the other changes of that time.
        for change in await self._watch.changed(meanwhile.keys() - self._noticed):
            moments = meanwhile.get(change.path) or {0: self._moment(change.path)}
            verdict = self._written.verdict(moments.values(), change.written)
            if verdict == "person":
                by_person[change.path] = self._in_a_row.get(change.path, 0) + 1
                if by_person[change.path] > MOST_IN_A_ROW:
                    verdict = "unclear"
            if verdict == "unclear":
                self._surface.log(
                    "INFO",
                    f"{change.path} changed while workflow {writer.workflow} ran; it is not clear "
                    "who did it",
                )
            self._known[change.path] = (
                None if verdict == "person" else replace(writer, unclear=verdict == "unclear")
            )
        self._in_a_row = by_person
        if self._known:
            self._decide_soon()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self.look()
            took = loop.time() - began
            await asyncio.sleep(max(_LOOK_INTERVAL_S, took / _LOOK_SHARE))

    def look(self) -> None:
        """Note what the children of the running workflow have written until now."""
        if self._meanwhile is not None:
            self._written.look(self._children(), self._clock.now_ms())

    def _moment(self, path: str) -> Moment:
        now = self._clock.now_ms()
        try:
            found = Path(self._config.root, path).stat()
        except OSError:
            return Moment(now)
        # An empty file tells nothing: it may be filled later.
        return Moment(now, found.st_mtime_ns // 1_000_000 if found.st_size else 0)

    def _counts(self, path: str) -> bool:
        return path != self._own_file and not self._scope.excludes(path) and self._all.matches(path)

    def _on_noticed(self, paths: set[str]) -> None:
        if self._meanwhile is None:
            self._noticed |= paths
            self._decide_soon()
            return
        for path in paths:
            moments = self._meanwhile.setdefault(path, {})
            if path[-1:] not in ("", "/"):
                moment = self._moment(path)
                moments[moment.content_ms] = moment
        self.look()

    def _decide_soon(self) -> None:
        if self._deciding is None:
            self._deciding = asyncio.get_running_loop().create_task(self._decide())

    async def _decide(self) -> None:
        await asyncio.sleep(self._config.debounce_ms / 1000)
        assert self._watch is not None
        self._deciding = None
        noticed, self._noticed = self._noticed, set()
        known, self._known = self._known, {}
        by_person = dict.fromkeys(change.path for change in await self._watch.changed(noticed))
        changed: dict[str, Writer | None] = {**known, **by_person}
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
