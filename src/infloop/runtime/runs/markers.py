"""Active runs as files, for people who use `ls` and for tools.

While a process drives a run, there is a file for it in the data directory:

    active-runs/<run id>.<instance id>    {"runId", "workflowId", "instanceId", "pid",
                                           "processStarted", "bootId", "startedAt"}

- A marker exists from before the run's first step until the run has settled. It is always complete.
- infloop itself reads the journal and the lock files instead. So a marker is not synced, and a
  marker that cannot be written stops no run.
- Markers of dead processes are removed at the next start.
- Unused files are kept under names that begin with a dot and are reused, because creating a file
  takes longest.
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
_MAX_FREE = 32


class RunMarkers:
    """The markers of the runs that this process drives."""

    def __init__(self, directory: Path, process: InstanceRow) -> None:
        private_directory(directory)
        self._directory = directory
        self._process = process
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._marked: set[str] = set()

    def act_as(self, process: InstanceRow) -> None:
        """Mark runs as those of another id from now on; no run is active."""
        self.close()
        self._process = process

    def add(self, run_id: str, workflow_id: str, started_at: int) -> None:
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
        free = self._path(f".free{number}")
        with suppress(OSError):
            _write(free, msgspec.json.encode(marker) + b"\n")
            os.rename(free, self._path(run_id))  # noqa: PTH104  (hundreds a second: no Path)
            self._marked.add(run_id)

    def remove(self, run_id: str) -> None:
        if run_id not in self._marked:
            return
        self._marked.remove(run_id)
        with suppress(OSError):
            if len(self._free) >= _MAX_FREE:
                os.unlink(self._path(run_id))  # noqa: PTH108  (as above)
                return
            number = str(next(self._numbers))
            os.rename(self._path(run_id), self._path(f".free{number}"))  # noqa: PTH104
            self._free.append(number)

    async def clear(self, is_dead: Callable[[str], Awaitable[bool]]) -> None:
        """Remove the markers of dead processes."""
        for path in list(self._directory.iterdir()):
            named = _NAME.fullmatch(path.name)
            if named is None or await is_dead(named[1]):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Remove the unused files; no run is active."""
        while self._free:
            with suppress(OSError):
                os.unlink(self._path(f".free{self._free.pop()}"))  # noqa: PTH108

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}.{self._process.id}"


def _write(path: str, data: bytes) -> None:
    # No O_TRUNC: some file systems flush a file to the disk that was truncated on open.
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        os.write(fd, data)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
