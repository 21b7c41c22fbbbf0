"""Watches files by listing them at an interval; for file systems without kernel events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.watch.scanning import versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.watch.scanning import Version
    from infloop.watch.targets import Scope


class PollWatch:
    """Reports changed paths relative to the root."""

    def __init__(
        self, root: str, scope: Scope, on_changed: Callable[[set[str]], None], interval_ms: int
    ) -> None:
        """Look for the first time; may be called in a thread."""
        self._root = root
        self._scope = scope
        self._on_changed = on_changed
        self._interval_s = interval_ms / 1000
        self._seen = self._look()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Report from now on what has changed since the first look, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._poll())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def drain(self) -> None:
        """Look now."""
        self._compare(self._look())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self._compare(await asyncio.to_thread(self._look))

    def _look(self) -> dict[str, Version]:
        return dict(versions(self._root, self._scope))

    def _compare(self, now: dict[str, Version]) -> None:
        before, self._seen = self._seen, now
        changed = {path for path, _ in before.items() ^ now.items()}
        if changed:
            self._on_changed(changed)
