"""Which runs are under way, as files: for people who look with `ls`, and for tools.

While a process drives a run there is a file for it in the data directory:

    active-runs/<run id>.<instance id>    {"runId", "workflowId", "instanceId", "pid",
                                           "processStarted", "bootId", "startedAt"}

Nothing of infloop reads what is in them: the journal says what runs there are, and lock files say
whose process lives. So a marker is not synced, and one that cannot be written stops no run. It is
there from before the run's first step, always whole, until the run has settled. What a dead process
left is removed at the next start.

Free files wait under names that begin with a dot, because making files takes longest.
"""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from infloop.store.files import FILE_MODE, private_directory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from infloop.store.interfaces.liveness import InstanceRow

_NAME = re.compile(r".+\.(i-[0-9a-f]{16})", re.ASCII)  # noqa: TID251  (fixed)
_MOST_FREE = 32


class RunMarkers:
    """Keeps the markers of the runs that one living process drives."""

    def __init__(self, directory: Path, process: InstanceRow) -> None:
        private_directory(directory)
        self._directory = directory
        self._process = process
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._marked: set[str] = set()

    def put(self, run_id: str, workflow_id: str, started_at: int) -> None:
        """Show that a run is under way."""
        marker = {
            "runId": run_id,
            "workflowId": workflow_id,
            "instanceId": self._process.id,
            "pid": self._process.pid,
            "processStarted": self._process.process_started,
            "bootId": self._process.boot_id,
            "startedAt": started_at,
        }
        number = self._free.pop() if self._free else str(next(self._numbers))
        free = self._place(f".free{number}")
        with suppress(OSError):
            _write(free, msgspec.json.encode(marker) + b"\n")
            os.rename(free, self._place(run_id))  # noqa: PTH104  (hundreds a second, no Path)
            self._marked.add(run_id)

    def remove(self, run_id: str) -> None:
        """Show it no longer."""
        if run_id not in self._marked:
            return
        self._marked.remove(run_id)
        with suppress(OSError):
            if len(self._free) >= _MOST_FREE:
                os.unlink(self._place(run_id))  # noqa: PTH108  (as above)
                return
            number = str(next(self._numbers))
            os.rename(self._place(run_id), self._place(f".free{number}"))  # noqa: PTH104
            self._free.append(number)

    async def clear(self, is_dead: Callable[[str], Awaitable[bool]]) -> None:
        """Remove what is not of a living process."""
        for path in list(self._directory.iterdir()):
            named = _NAME.fullmatch(path.name)
            if named is None or await is_dead(named[1]):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Remove what is left; no run is under way."""
        while self._free:
            with suppress(OSError):
                os.unlink(self._place(f".free{self._free.pop()}"))  # noqa: PTH108

    def _place(self, name: str) -> str:
        return f"{self._directory}/{name}.{self._process.id}"


def _write(path: str, data: bytes) -> None:
    # Not emptied when opened: file systems take that for a file to be kept at all costs.
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        os.write(fd, data)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
