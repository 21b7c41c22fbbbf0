"""Room on the disks that no run takes: without it, nothing could be recorded any more.

A child can write until a disk is full. So where less is left than must stay free, no run begins,
and those that work there are ended, their children at once and without grace.

Rules
  * The data directory's disk is every run's: all of them are recorded there.
  * Another disk is that of the runs whose children work on it; on which disk a directory is, a run
    asks once. It may belong to a network and not answer: a thread asks it, nobody waits for that,
    and it is not asked again meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from infloop.errors import GuardError, StoreError
from infloop.runtime.blocking_calls import PATIENCE_S, aside

T = TypeVar("T")

LEAST_FILES = 20_000
"""How many more files must find room on a disk that counts them."""


class Left(NamedTuple):
    """What is left on a disk; `files` is None where the disk does not count them."""

    size: int
    files: int | None


class Reserve:
    """How much must stay free, 0 for nothing, and whether it does where the runs are recorded."""

    def __init__(self, data_dir: str = "", least: int = 0) -> None:
        """`data_dir` must be there."""
        self._data_dir = data_dir
        self._least = least
        self._device = Path(data_dir).stat().st_dev if least else 0

    def of_run(self) -> RunDisks:
        """Return what keeps an eye on the disks of one run."""
        return RunDisks(self)

    def shortage(self) -> str:
        """Return why no run can go on, wherever it works, or nothing."""
        if not self._least:
            return ""
        left = left_on(self._data_dir)
        return self.why_short(self._data_dir, left) if left else _unknown(self._data_dir)

    def refuse_all(self) -> None:
        """Raise StoreError if any run would be ended at once."""
        if reason := self.shortage():
            raise StoreError(reason)

    async def refuse(self, directory: str) -> None:
        """Raise GuardError if a run in a directory would be, for the sake of its own disk."""
        disk = await self.disk_elsewhere(directory)
        if disk is None:
            return
        await _patiently(disk.ask(), directory)
        if disk.left is None:
            raise GuardError(_unknown(directory))
        if reason := self.why_short(directory, disk.left):
            raise GuardError(reason)

    async def disk_elsewhere(self, directory: str) -> Disk | None:
        """Return the disk of a directory; None if it is the data directory's, or nothing counts.

        Raises GuardError if nobody answers.
        """
        if not self._least:
            return None
        device = await _patiently(aside(partial(_device, directory)), directory)
        if device in (None, self._device):
            return None  # where there is no directory, a step that works there says so
        return Disk(device, directory)

    def why_short(self, directory: str, left: Left) -> str:
        """Return why nobody may work in a directory with so much left on its disk, or nothing."""
        what_to_do = "remove what is not needed there, or let less stay free"
        if left.size < self._least:
            return (
                f"only {shown_size(left.size)} are left on the disk of {directory!r}, and "
                f"{shown_size(self._least)} must stay free (INFLOOP_MIN_FREE_DISK_BYTES): "
                f"{what_to_do}"
            )
        if left.files is not None and left.files < LEAST_FILES:
            return (
                f"only {left.files} more files find room on the disk of {directory!r}, and room "
                f"for {LEAST_FILES} must stay free (INFLOOP_MIN_FREE_DISK_BYTES): {what_to_do}"
            )
        return ""


class RunDisks:
    """The disks that the children of one run write to."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._known: set[str] = set()
        self._elsewhere: dict[int, Disk] = {}
        self._short = False

    async def add(self, *directories: str) -> None:
        """Keep an eye on the disks of these directories, too; GuardError if one does not answer."""
        for directory in directories:
            if directory not in self._known:
                disk = await self._reserve.disk_elsewhere(directory)
                if disk is not None:
                    self._elsewhere.setdefault(disk.device, disk)
                self._known.add(directory)

    def shortage(self) -> str:
        """Return why the run must end, by what its own disks last said, and ask them again."""
        for disk in self._elsewhere.values():
            disk.ask()
            if disk.left and (reason := self._reserve.why_short(disk.directory, disk.left)):
                return reason
        return ""

    def give_up(self) -> None:
        """The run is being ended for want of room."""
        self._short = True

    def is_short(self) -> bool:
        """Say whether the run is being ended for want of room: then nobody may write on."""
        return self._short


class Disk:
    """A disk that may not answer; `left` is what it said last."""

    def __init__(self, device: int, directory: str) -> None:
        self.device = device
        self.directory = directory
        self.left: Left | None = None
        self._answer: asyncio.Future[Left | None] | None = None

    def ask(self) -> asyncio.Future[Left | None]:
        """Return what is done when the disk has answered; it is asked once at a time."""
        if self._answer is None or self._answer.done():
            self._answer = aside(self._look)
        return self._answer

    def _look(self) -> Left | None:
        self.left = left_on(self.directory)
        return self.left


async def _patiently(answer: asyncio.Future[T], directory: str) -> T:
    """Return what the disk of a directory answers; GuardError if it takes too long."""
    try:
        async with asyncio.timeout(PATIENCE_S):
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


def left_on(directory: str) -> Left | None:
    """Return what is left on the disk of a directory; None if it cannot be known."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return Left(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def shown_size(size: float) -> str:
    """Return a number of bytes for people."""
    units = ["GB", "MB", "KB", "bytes"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop()
    return f"{size:.1f}".removesuffix(".0") + f" {units[-1]}"
