"""Disk space that no run may use up: without it, nothing could be recorded any more.

A child can write until a disk is full. When less than the reserve is free, no run starts there, and
the runs that work there are aborted; their children are killed without a grace period.

Rules
  * The disk of the data directory concerns every run: all of them are recorded there.
  * Another disk concerns the runs whose children work on it. A run looks up the disk of a directory
    once.
  * Another disk may be a network disk that does not answer. It is queried in a daemon thread that
    nobody waits for, and not queried again until it has answered.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from infloop.errors import GuardError, StoreError
from infloop.runtime.blocking_calls import TIMEOUT_S, call_in_daemon_thread

T = TypeVar("T")

MIN_FREE_FILES = 20_000
"""How many files must still fit on a disk that limits their number."""


class FreeSpace(NamedTuple):
    """What is free on a disk; `files` is None where the number of files is not limited."""

    size: int
    files: int | None


class DiskReserve:
    """How many bytes must stay free on each disk; 0 for none."""

    def __init__(self, data_dir: str = "", min_free: int = 0) -> None:
        """`data_dir` must exist."""
        self._data_dir = data_dir
        self._min_free = min_free
        self._device = Path(data_dir).stat().st_dev if min_free else 0

    def for_run(self) -> RunDisks:
        return RunDisks(self)

    def shortage(self) -> str:
        """Return why no run can go on, wherever it works; empty if runs can go on."""
        if not self._min_free:
            return ""
        free = free_space(self._data_dir)
        return self.why_short(self._data_dir, free) if free else _unknown(self._data_dir)

    def check_data_disk(self) -> None:
        """Raise StoreError if the disk of the data directory is too full for any run."""
        if reason := self.shortage():
            raise StoreError(reason)

    async def check_disk(self, directory: str, device: int) -> None:
        """Raise GuardError if the disk of a directory is too full for a run that works there.

        `device` is that disk, which the caller has just asked for the directory.
        """
        if not self._min_free or device == self._device:
            return
        disk = Disk(device, directory)
        await _with_timeout(disk.query(), directory)
        if disk.free is None:
            raise GuardError(_unknown(directory))
        if reason := self.why_short(directory, disk.free):
            raise GuardError(reason)

    async def other_disk(self, directory: str) -> Disk | None:
        """Return the disk of a directory; None if it is the data directory's, or without a reserve.

        Raises GuardError if the disk does not answer.
        """
        if not self._min_free:
            return None
        find_device = partial(_device, directory)
        device = await _with_timeout(call_in_daemon_thread(find_device), directory)
        if device in (None, self._device):
            return None  # a step reports a directory that does not exist
        return Disk(device, directory)

    def why_short(self, directory: str, free: FreeSpace) -> str:
        """Return why no run may work in a directory; empty if there is enough space."""
        what_to_do = "remove what is not needed there, or let less stay free"
        if free.size < self._min_free:
            return (
                f"only {format_size(free.size)} are left on the disk of {directory!r}, and "
                f"{format_size(self._min_free)} must stay free (INFLOOP_MIN_FREE_DISK_BYTES): "
                f"{what_to_do}"
            )
        if free.files is not None and free.files < MIN_FREE_FILES:
            return (
                f"only {free.files} more files fit on the disk of {directory!r}, and room "
                f"for {MIN_FREE_FILES} must stay free (INFLOOP_MIN_FREE_DISK_BYTES): {what_to_do}"
            )
        return ""


class RunDisks:
    """The disks that the children of one run write to."""

    def __init__(self, reserve: DiskReserve) -> None:
        self._reserve = reserve
        self._directories: set[str] = set()
        self._disks: dict[int, Disk] = {}
        self._exhausted = False

    async def add(self, *directories: str) -> None:
        """Check the disks of these directories too; GuardError if one does not answer."""
        for directory in directories:
            if directory not in self._directories:
                disk = await self._reserve.other_disk(directory)
                if disk is not None:
                    self._disks.setdefault(disk.device, disk)
                self._directories.add(directory)

    def shortage(self) -> str:
        """Return why the run must end, by the last answers of its own disks; query them again."""
        for disk in self._disks.values():
            disk.query()
            if disk.free and (reason := self._reserve.why_short(disk.directory, disk.free)):
                return reason
        return ""

    def mark_exhausted(self) -> None:
        """Note that the run is aborted for lack of disk space."""
        self._exhausted = True

    def is_exhausted(self) -> bool:
        """Say whether the run is aborted for lack of disk space: its children get no grace."""
        return self._exhausted


class Disk:
    """A disk that may not answer; `free` is its last answer."""

    def __init__(self, device: int, directory: str) -> None:
        self.device = device
        self.directory = directory
        self.free: FreeSpace | None = None
        self._query: asyncio.Future[FreeSpace | None] | None = None

    def query(self) -> asyncio.Future[FreeSpace | None]:
        """Return the next answer; only one query runs at a time."""
        if self._query is None or self._query.done():
            self._query = call_in_daemon_thread(self._update)
        return self._query

    def _update(self) -> FreeSpace | None:
        self.free = free_space(self.directory)
        return self.free


async def _with_timeout(answer: asyncio.Future[T], directory: str) -> T:
    """Return what the disk of a directory answers; GuardError if it takes too long."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.shield(answer)
    except TimeoutError:
        raise GuardError(_unknown(directory)) from None


def _device(directory: str) -> int | None:
    try:
        return Path(directory).stat().st_dev
    except (OSError, ValueError):
        return None


def _unknown(directory: str) -> str:
    return (
        f"the disk of {directory!r} does not answer, so nobody knows what is left on it; "
        "mount it again, or work in another directory"
    )


def free_space(directory: str) -> FreeSpace | None:
    """Return what is free on the disk of a directory; None if that is unknown."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def format_size(size: float) -> str:
    """Return a number of bytes for people: `1.5 MB`."""
    units = ["GB", "MB", "KB", "bytes"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop()
    return f"{size:.1f}".removesuffix(".0") + f" {units[-1]}"
