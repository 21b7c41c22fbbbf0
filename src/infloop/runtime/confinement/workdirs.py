"""Checks that runs work in the directories they worked in before, not where a new link leads.

Rules
  * A path that was a directory when a run worked there, and is a link now, is refused: somebody may
    have replaced it to make a run work elsewhere. A directory that was created again is accepted,
    and so is a path that always was a link.
  * A run goes on in the directory in which it began, or not at all.
  * A file system that does not answer is refused. The file system of the data directory is used
    without a timeout, because nothing works without it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import GuardError
from infloop.model.events import DirectoryId
from infloop.runtime.blocking_calls import TIMEOUT_S, call_in_daemon_thread

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import RunLog

MAX_CACHED = 10_000
"""How many paths are cached; the journal has all of them."""


class Workdir(NamedTuple):
    """A path with all links resolved, and the directory that it names, if there is one."""

    path: str
    id: DirectoryId | None


class Workdirs:
    """The working directories of all runs in the journal."""

    def __init__(self, run_log: RunLog, data_device: int, boot_id: str) -> None:
        """`data_device` is the device number of the data directory."""
        self._run_log = run_log
        self._data_device = data_device
        self._mounts = _mounts(boot_id)
        self._on_data_device: set[str] = set()
        self._noted: set[str] = set()
        self._lookups: dict[str, asyncio.Future[Workdir]] = {}

    async def enter(self, path: str) -> Workdir:
        """Return the directory at a path in which a run is about to work, or raise GuardError."""
        found = await self._find(path)
        plain = os.path.normpath(path)  # noqa: ASYNC240  (it does not access the file system)
        if found.path != plain and await self._run_log.has_worked_in(plain):
            raise GuardError(
                f"{plain!r} leads to {found.path!r}, and was a directory itself when a run worked "
                "there: somebody may have put a link in its place. If you made the link, "
                f"work in {found.path!r} instead; otherwise remove it"
            )
        if found.id is not None and found.path not in self._noted:
            await self._run_log.note_worked_in(found.path)
            _cache(self._noted, found.path)
        return found

    async def allows(self, path: str) -> bool:
        """Say whether there is a directory at a path; GuardError if no run may work there."""
        return (await self.enter(path)).id is not None

    async def enter_again(self, run_id: str, path: str, original: DirectoryId | None) -> Workdir:
        """Return the directory at the path of a resumed run; GuardError if it is another one."""
        found = await self._find(path)
        if original is None or (found.path == path and _is_same(original, found.id)):
            return found
        if found.path != path:
            now = f"leads to {found.path!r} by a link"
        else:
            now = "is another directory" if found.id else "is not there"
        raise GuardError(
            f"{path!r} {now}, and is not the directory in which run {run_id!r} began. Put that one "
            f"back, or start a new run there with `infloop rewind {run_id} --to STEP`"
        )

    async def identity(self, path: str) -> DirectoryId | None:
        """Return which directory is at a path; None if there is none or it does not answer."""
        with suppress(GuardError):
            return (await self._find(path)).id
        return None

    async def _find(self, path: str) -> Workdir:
        if path in self._on_data_device:
            found = self._find_now(path)
        else:
            found = await self._find_with_timeout(path)
        if found.id is not None and found.id.device == self._data_device:
            _cache(self._on_data_device, path)
        else:
            self._on_data_device.discard(path)
        return found

    async def _find_with_timeout(self, path: str) -> Workdir:
        """Look up a path in a thread; concurrent callers share one lookup."""
        answer = self._lookups.get(path)
        if answer is None:
            answer = self._lookups[path] = call_in_daemon_thread(partial(self._find_now, path))
            answer.add_done_callback(lambda _: self._lookups.pop(path))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise GuardError(
                f"the file system of {path!r} does not answer; mount it again, or work in another "
                "directory"
            ) from None

    def _find_now(self, path: str) -> Workdir:
        try:
            real = os.path.realpath(path)
            found = os.stat(real)  # noqa: PTH116  (fast, at every start of a run)
        except (OSError, ValueError):
            return Workdir(path, None)  # a step that works there reports it
        if not stat.S_ISDIR(found.st_mode):
            return Workdir(real, None)
        return Workdir(real, DirectoryId(found.st_ino, found.st_dev, self._mounts))


def _is_same(original: DirectoryId, now: DirectoryId | None) -> bool:
    """Compare two directories. After other mounts, the device may have another number."""
    if now is None or now.inode != original.inode:
        return False
    return now.device == original.device or now.mounts != original.mounts


def _mounts(boot_id: str) -> str:
    """Return a fingerprint of the boot and the mount namespace: device numbers depend on them."""
    try:
        namespace = str(Path("/proc/self/ns/mnt").readlink())
    except OSError:  # there are no mount namespaces
        namespace = ""
    return hashlib.sha256(f"{boot_id} {namespace}".encode()).hexdigest()[:16]


def _cache(paths: set[str], path: str) -> None:
    if len(paths) >= MAX_CACHED:
        paths.clear()
    paths.add(path)
