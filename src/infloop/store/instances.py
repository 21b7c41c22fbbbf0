"""Processes that own runs: lock files and heartbeats.

A process that owns runs holds a lock file of its own (see lowlevel/lock_file). A held lock without
a recent heartbeat means that the process is stopped or stuck.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free
from infloop.store.base import InstanceRow, Journal, StoredStatus
from infloop.store.files import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable

Liveness: TypeAlias = Literal["alive", "frozen", "dead"]
ShownStatus: TypeAlias = Literal["stalled", "interrupted"] | StoredStatus

FROZEN_AFTER_MS = 15_000
"""How old a heartbeat may be; a process beats several times in that time."""


def derive_status(stored: StoredStatus, owner: Liveness) -> ShownStatus:
    """Return what a run is, given what was written and how its owner is."""
    if stored != "running" or owner == "alive":
        return stored
    return "stalled" if owner == "frozen" else "interrupted"


class Instance:
    """This process, as an owner of runs."""

    def __init__(
        self, journal: Journal, row: InstanceRow, lock: LockFile, clock: Callable[[], int]
    ) -> None:
        self.id = row.id
        self.row = row
        self._journal = journal
        self._lock = lock
        self._clock = clock

    async def beat(self) -> None:
        """Show that this process is well."""
        await self._journal.beat_instance(self.id, self._clock())

    async def close(self) -> None:
        """Own nothing any more; runs still in flight are interrupted from now on."""
        self._lock.release()
        await self._journal.drop_instance(self.id)


class Instances:
    """All processes that share a data directory, told apart by whether they live."""

    def __init__(self, journal: Journal, data_dir: Path, clock: Callable[[], int]) -> None:
        self._journal = journal
        self._directory = data_dir / "instances"
        self._clock = clock

    async def register(self) -> Instance:
        """Make this process an owner of runs, until it closes the answer or ends."""
        instance_id = f"i-{secrets.token_hex(8)}"
        private_directory(self._directory)
        lock = LockFile(self._path(instance_id))
        now = self._clock()
        row = InstanceRow(
            instance_id, os.getpid(), _process_started(), _boot_id(), os.uname().nodename, now, now
        )
        await self._journal.put_instance(row)
        return Instance(self._journal, row, lock, self._clock)

    async def liveness(self, instance_id: str) -> Liveness:
        """Say how a process is; one that nobody knows is dead."""
        if not is_held(self._path(instance_id)):
            return "dead"
        row = await self._journal.instance(instance_id)
        if row is not None and self._clock() - row.beat_at > FROZEN_AFTER_MS:
            return "frozen"
        return "alive"

    async def sweep(self) -> None:
        """Remove what dead processes left, except the word of those whose runs are unsettled."""
        for path in self._lock_files():
            remove_if_free(path)
        for row in await self._journal.instances():
            if not is_held(self._path(row.id)):
                await self._journal.drop_instance(row.id)

    def _path(self, instance_id: str) -> Path:
        return self._directory / f"{instance_id}.lock"

    def _lock_files(self) -> list[Path]:
        return sorted(self._directory.glob("*.lock"))


def _process_started() -> str:
    """Return when the kernel started this process; with the pid it names one process for good."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux; it is only shown to people
        return ""
    return stat.rpartition(")")[2].split()[19]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
