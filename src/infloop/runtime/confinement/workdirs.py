"""Where runs work: the directories that they worked in before, and not what a link put there.

Rules
  * A path that was a directory itself when a run worked there, and leads elsewhere by now, is
    refused: somebody who wants a run to work elsewhere can put a link in its place. A directory
    that was made anew is welcome, and so is a path that always was a link.
  * A run goes on in the very directory in which it began, or not at all.
  * A directory's file system may not answer: then nobody works there. That of the data directory
    is asked without further ado, because nothing works without it.
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
from infloop.runtime.blocking_calls import PATIENCE_S, aside

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import RunLog

MOST_REMEMBERED = 10_000
"""How many paths are known by heart; what the journal knows is more."""


class Workdir(NamedTuple):
    """Where a path leads, links followed, and which directory is there, if there is one."""

    path: str
    id: DirectoryId | None


class Workdirs:
    """The directories in which runs work, of all runs that the journal knows of."""

    def __init__(self, run_log: RunLog, own_device: int, boot_id: str) -> None:
        """`own_device` is that of the data directory; `boot_id` changes when the machine starts."""
        self._run_log = run_log
        self._own_device = own_device
        self._mounts = _mounts(boot_id)
        self._near: set[str] = set()
        self._noted: set[str] = set()
        self._asked: dict[str, asyncio.Future[Workdir]] = {}

    async def enter(self, named: str) -> Workdir:
        """Return what is at a path, for who is about to work there; GuardError if nobody may."""
        found = await self._look(named)
        plain = os.path.normpath(named)  # noqa: ASYNC240  (it looks at the text alone)
        if found.path != plain and await self._run_log.has_worked_in(plain):
            raise GuardError(
                f"{plain!r} leads to {found.path!r}, and was a directory itself when a run worked "
                "there: somebody may have put a link in its place. If it is to be there, "
                f"work in {found.path!r} by its own name; otherwise remove the link"
            )
        if found.id is not None and found.path not in self._noted:
            await self._run_log.note_worked_in(found.path)
            _remember(self._noted, found.path)
        return found

    async def lets_in(self, named: str) -> bool:
        """Say whether there is a directory at a path; GuardError if nobody may work there."""
        return (await self.enter(named)).id is not None

    async def enter_again(self, run_id: str, path: str, began: DirectoryId | None) -> Workdir:
        """Return what is at the path of a run that goes on; GuardError if it is not what it was."""
        found = await self._look(path)
        if began is None or (found.path == path and _is_same(began, found.id)):
            return found
        if found.path != path:
            now = f"leads to {found.path!r} by a link"
        else:
            now = "is another directory" if found.id else "is not there"
        raise GuardError(
            f"{path!r} {now}, and is not the directory in which run {run_id!r} began. Put that one "
            f"back, or begin anew there with `infloop rewind {run_id} --to STEP`"
        )

    async def identity(self, path: str) -> DirectoryId | None:
        """Return which directory is at a path; nothing if there is none or nobody answers."""
        with suppress(GuardError):
            return (await self._look(path)).id
        return None

    async def _look(self, path: str) -> Workdir:
        if path in self._near:
            found = self._there(path)
        else:
            found = await self._ask(path)
        if found.id is not None and found.id.device == self._own_device:
            _remember(self._near, path)
        else:
            self._near.discard(path)
        return found

    async def _ask(self, path: str) -> Workdir:
        """Look at a path with patience; it is asked once at a time, however many want to know."""
        answer = self._asked.get(path)
        if answer is None:
            answer = self._asked[path] = aside(partial(self._there, path))
            answer.add_done_callback(lambda _: self._asked.pop(path))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise GuardError(
                f"the file system of {path!r} does not answer; mount it again, or work in another "
                "directory"
            ) from None

    def _there(self, path: str) -> Workdir:
        try:
            real = os.path.realpath(path)
            found = os.stat(real)  # noqa: PTH116  (asked at every start of a run)
        except (OSError, ValueError):
            return Workdir(path, None)  # a step that works there says so
        if not stat.S_ISDIR(found.st_mode):
            return Workdir(real, None)
        return Workdir(real, DirectoryId(found.st_ino, found.st_dev, self._mounts))


def _is_same(began: DirectoryId, now: DirectoryId | None) -> bool:
    """Say whether it is one directory. With other mounts, the device may have another number."""
    if now is None or now.inode != began.inode:
        return False
    return now.device == began.device or now.mounts != began.mounts


def _mounts(boot_id: str) -> str:
    """Return what stands for the mounts that this process sees."""
    try:
        namespace = str(Path("/proc/self/ns/mnt").readlink())
    except OSError:  # where there is one table of mounts for all
        namespace = ""
    return hashlib.sha256(f"{boot_id} {namespace}".encode()).hexdigest()[:16]


def _remember(known: set[str], path: str) -> None:
    if len(known) >= MOST_REMEMBERED:
        known.clear()
    known.add(path)
