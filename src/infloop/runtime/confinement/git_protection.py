"""Keeps confined children from planting files that git executes.

- A private clone belongs to the child, with everything in it.
- In other directories the child may change files, but not the files that control git (see
  `infloop.workspace.planted_files`). git itself works there.
- At a level with mounts of its own (`sandbox`), every `.git` is mounted read-only.
- At every level, changes to those files are undone when the child has ended, and the run says so.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import GuardError, StepError
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.workspace.git.repository_paths import GitPaths, git_paths
from infloop.workspace.planted_files import find_repositories, undo_changes
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from infloop.workspace.planted_files import Repositories
    from infloop.workspace.threads import Stop

_NOWHERE = Path("/nonexistent")

MAX_ENTRIES = 1_000_000
"""How many files and directories are scanned before and after each child; more are refused."""
_MAX_ENTRIES_AFTER = 10 * MAX_ENTRIES
"""The limit after a child, so that it cannot hide a change among files that it makes."""


class GitProtection:
    """Protects the repositories in which the children of one run work.

    `find_paths` returns the paths of the repository around a directory. `ignored` is not scanned.
    """

    def __init__(
        self,
        find_paths: Callable[[str], GitPaths] = git_paths,
        ignored: Path = _NOWHERE,
        *,
        own_mounts: bool,
    ) -> None:
        self._find_paths = find_paths
        self._ignored = ignored
        self._own_mounts = own_mounts
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def protect(
        self, cwd: str, write_paths: Sequence[str], warn: Callable[[str], None]
    ) -> AsyncIterator[GitPaths]:
        """Give the paths that git needs where a child works; undo what it planted afterwards.

        `write_paths` are other directories that the child may write to.
        """
        paths = self._find_paths(cwd)
        own = (cwd, *paths.write) if not paths.is_private else ()
        before = {root: await self._scan(root) for root in _outermost((*own, *write_paths))}
        read_only = [os.fsdecode(path) for path in _git_directories(before)]
        try:
            yield paths._replace(read=(*paths.read, *read_only))
        finally:
            await run_uncancelled(self._undo_all(before, warn))

    async def _scan(self, root: Path) -> Repositories:
        """Return the repositories below a directory; GuardError if it is too large."""
        try:
            return await in_thread(partial(self._scan_now, root, MAX_ENTRIES))
        except StepError as error:
            raise GuardError(
                f"the repositories below {str(root)!r} cannot be protected: {error}. Let the "
                "agent work in a worktree (useWorktree) or in a smaller directory"
            ) from None

    async def _undo_all(
        self, before: dict[Path, Repositories], warn: Callable[[str], None]
    ) -> None:
        for root, repositories in before.items():
            await self._undo(root, repositories, warn)

    async def _undo(self, root: Path, before: Repositories, warn: Callable[[str], None]) -> None:
        try:
            async with self._lock:  # concurrent steps may work in one directory
                messages = await in_thread(partial(self._undo_now, root, before))
        except (OSError, StepError) as error:
            raise GuardError(
                f"a child may have changed files that control git below {str(root)!r}, and that "
                f"could not be undone: {error}. Check them before you use git there"
            ) from None
        for message in messages:
            warn(f"in {str(root)!r}, {message}")

    def _scan_now(self, root: Path, limit: int, stop: Stop) -> Repositories:
        return find_repositories(
            root, self._ignored, stop, inside=not self._own_mounts, max_entries=limit
        )

    def _undo_now(self, root: Path, before: Repositories, stop: Stop) -> list[str]:
        after = self._scan_now(root, _MAX_ENTRIES_AFTER, stop) if root.is_dir() else before
        return undo_changes(root, before, after) if after != before else []


def _git_directories(found: dict[Path, Repositories]) -> Iterable[bytes]:
    """Yield every `.git` that can be mounted read-only; a link is left out."""
    for root, repositories in found.items():
        for path in repositories:
            full_path = os.path.join(os.fsencode(root), path)  # noqa: PTH118  (bytes)
            if not os.path.islink(full_path):  # noqa: PTH114
                yield full_path


def _outermost(directories: Iterable[str]) -> list[Path]:
    """Return the resolved directories, without those inside another of them."""
    real = {path for each in directories if (path := Path(each).resolve()).is_dir()}
    return sorted(path for path in real if not any(above in real for above in path.parents))
