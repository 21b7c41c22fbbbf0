"""Confined children in directories that are not their own: git works there, and nothing is planted.

A private clone belongs to the child, with all that is in it. Elsewhere the child may change files,
and not what git acts upon (see `infloop.workspace.planted_files`). Where the level can leave
something out of a writable directory (`sandbox`), every `.git` is read only. Everywhere,
what a child did to it is put right when the child has ended, and the run says so.
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

MOST_ENTRIES = 1_000_000
"""How many files and directories are looked through, twice for each child; more are refused."""
_MOST_AFTERWARDS = 10 * MOST_ENTRIES
"""… after a child, which cannot hide something among as many as it can make."""


class InPlace:
    """Looks after the directories that children of one run work in.

    `places` says what belongs to the repository around a directory. `ours` is never looked into.
    """

    def __init__(
        self,
        places: Callable[[str], GitPaths] = git_paths,
        ours: Path = _NOWHERE,
        *,
        own_mounts: bool,
    ) -> None:
        self._places = places
        self._ours = ours
        self._carves = own_mounts
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def at_work(
        self, cwd: str, more: Sequence[str], say: Callable[[str], None]
    ) -> AsyncIterator[GitPaths]:
        """Give what a child may reach of the repositories where it works; see to it afterwards.

        `more` are other directories that it may write to.
        """
        places = self._places(cwd)
        own = (cwd, *places.write) if not places.is_private else ()
        before = {root: await self._look(root) for root in _outermost((*own, *more))}
        marks = [os.fsdecode(path) for path in _marks(before)]
        try:
            yield places._replace(read=(*places.read, *marks))
        finally:
            await run_uncancelled(self._put_all_right(before, say))

    async def _look(self, root: Path) -> Repositories:
        """Return the repositories beneath a directory; one too large to look after is refused."""
        try:
            return await in_thread(partial(self._look_now, root, MOST_ENTRIES))
        except StepError as error:
            raise GuardError(
                f"the repositories beneath {str(root)!r} cannot be looked after: {error}. Let the "
                "agent work in a worktree (useWorktree) or in a smaller directory"
            ) from None

    async def _put_all_right(
        self, before: dict[Path, Repositories], say: Callable[[str], None]
    ) -> None:
        for root, known in before.items():
            await self._undo_changes(root, known, say)

    async def _undo_changes(
        self, root: Path, before: Repositories, say: Callable[[str], None]
    ) -> None:
        try:
            async with self._turn:  # steps that run side by side may work in one directory
                done = await in_thread(partial(self._put_right_now, root, before))
        except (OSError, StepError) as error:
            raise GuardError(
                f"a child may have changed what git acts upon beneath {str(root)!r}, which could "
                f"not be put right: {error}. Look at it before you use git there"
            ) from None
        for sentence in done:
            say(f"in {str(root)!r}, {sentence}")

    def _look_now(self, root: Path, most: int, stop: Stop) -> Repositories:
        return find_repositories(root, self._ours, stop, inside=not self._carves, max_entries=most)

    def _put_right_now(self, root: Path, before: Repositories, stop: Stop) -> list[str]:
        after = self._look_now(root, _MOST_AFTERWARDS, stop) if root.is_dir() else before
        return undo_changes(root, before, after) if after != before else []


def _marks(found: dict[Path, Repositories]) -> Iterable[bytes]:
    """Give every `.git` that can be made read only; a link may lead anywhere."""
    for root, repositories in found.items():
        for path in repositories:
            whole = os.path.join(os.fsencode(root), path)  # noqa: PTH118  (bytes)
            if not os.path.islink(whole):  # noqa: PTH114
                yield whole


def _outermost(directories: Iterable[str]) -> list[Path]:
    """Return the real directories, without those that lie in another of them."""
    real = {path for each in directories if (path := Path(each).resolve()).is_dir()}
    return sorted(path for path in real if not any(above in real for above in path.parents))
