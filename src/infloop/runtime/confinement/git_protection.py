"""Keeps confined children from planting files that git executes.

- A private clone belongs to the child, with everything in it.
- In other directories the child may change files, but not the files that control git (see
  `infloop.workspace.planted_files`). git itself works there.
- The files that the user's own git settings name are protected too, such as a directory of hooks.
- At a level with mounts of its own (`sandbox`), every `.git` and every such file is mounted
  read-only.
- At every level, changes to those files are undone when the child has ended, and the run says so.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import GuardError, StepError
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.workspace.git.repository_paths import GitPaths, git_paths
from infloop.workspace.planted_files import (
    find_repositories,
    read_named,
    undo_changes,
    undo_named,
)
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from infloop.workspace.planted_files import NamedFiles, Repositories
    from infloop.workspace.threads import Stop

_NOWHERE = Path("/nonexistent")

MAX_ENTRIES = 1_000_000
"""How many files and directories are scanned before and after each child; more are refused."""
_MAX_ENTRIES_AFTER = 10 * MAX_ENTRIES
"""The limit after a child, so that it cannot hide a change among files that it makes."""


async def _no_settings(_top: Path) -> Mapping[Path, str]:
    return {}


class KnownRepositories:
    """Where the repositories are in the directories in which children run.

    A child can move a directory with a repository in it just before another child starts, so that
    the other one could write to the repository. It is then not where it was, and the other child is
    refused.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}
        self._roots: Counter[Path] = Counter()

    def enter(self, roots: Sequence[Path], found: Mapping[str, tuple[int, int]]) -> None:
        """Note that a child runs in `roots`; GuardError if a repository was moved meanwhile."""
        for root in roots:
            known = {path for path in self._found if Path(path).is_relative_to(root)}
            if any(_overlap(root, other) for other in self._roots):
                moved = [path for path in known if self._found[path] != found.get(path)]
                if moved:
                    raise GuardError(
                        f"{min(moved)!r} was moved or replaced while another step works there; run "
                        "the steps one after the other, or let agents work in worktrees"
                    )
            else:
                for path in known:
                    del self._found[path]
                self._found |= {
                    path: found[path] for path in found if Path(path).is_relative_to(root)
                }
        self._roots.update(roots)

    def leave(self, roots: Sequence[Path]) -> None:
        """Note that a child has ended."""
        self._roots -= Counter(roots)
        if not self._roots:
            self._found.clear()


class GitProtection:
    """Protects the repositories in which the children of one run work.

    `find_paths` returns the paths of the repository around a directory. `named_files` returns the
    files that the user's git settings name, for a work tree. `ignored` is not scanned. All runs of
    a process share the `known` repositories.
    """

    def __init__(
        self,
        find_paths: Callable[[str], GitPaths] = git_paths,
        ignored: Path = _NOWHERE,
        *,
        own_mounts: bool,
        named_files: Callable[[Path], Awaitable[Mapping[Path, str]]] = _no_settings,
        known: KnownRepositories | None = None,
    ) -> None:
        self._known = known or KnownRepositories()
        self._find_paths = find_paths
        self._named_files = named_files
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
        named = await self._read_named(cwd, before)
        found = _git_directories(before)
        self._known.enter(tuple(before), found)
        try:
            pinned = tuple((path, *identity) for path, identity in found.items())
            read_only = (*found, *map(os.fsdecode, _existing(named)))
            yield paths._replace(read=(*paths.read, *read_only), pinned=pinned)
        finally:
            try:
                await run_uncancelled(self._undo_all(before, named, warn))
            finally:
                self._known.leave(tuple(before))

    async def _scan(self, root: Path) -> Repositories:
        """Return the repositories below a directory; GuardError if it is too large."""
        try:
            return await in_thread(partial(self._scan_now, root, MAX_ENTRIES))
        except (OSError, StepError) as error:
            raise GuardError(
                f"the repositories below {str(root)!r} cannot be protected: {error}. Let the "
                "agent work in a worktree (useWorktree) or in a smaller directory"
            ) from None

    async def _read_named(
        self, cwd: str, found: dict[Path, Repositories]
    ) -> dict[Path, NamedFiles]:
        """Return the files beneath each directory that the user's git settings name."""
        try:
            named = {
                path for top in _work_trees(cwd, found) for path in await self._named_files(top)
            }
            return await in_thread(
                lambda _: {root: read_named(root, _beneath(root, named)) for root in found}
            )
        except (OSError, StepError) as error:
            raise GuardError(
                f"the files that your git settings name cannot be protected: {error}"
            ) from None

    async def _undo_all(
        self,
        before: dict[Path, Repositories],
        named: dict[Path, NamedFiles],
        warn: Callable[[str], None],
    ) -> None:
        for root, repositories in before.items():
            await self._undo(root, repositories, named[root], warn)

    async def _undo(
        self, root: Path, before: Repositories, named: NamedFiles, warn: Callable[[str], None]
    ) -> None:
        try:
            async with self._lock:  # concurrent steps may work in one directory
                messages = await in_thread(partial(self._undo_now, root, before, named))
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

    def _undo_now(
        self, root: Path, before: Repositories, named: NamedFiles, stop: Stop
    ) -> list[str]:
        if not root.is_dir():
            return []
        after = self._scan_now(root, _MAX_ENTRIES_AFTER, stop)
        messages = undo_changes(root, before, after) if after != before else []
        return messages + undo_named(root, named) if named else messages


def _git_directories(found: dict[Path, Repositories]) -> dict[str, tuple[int, int]]:
    """Return every `.git` that can be mounted read-only, with its identity; a link is left out."""
    paths = {
        os.path.join(os.fsencode(root), path): entry.identity  # noqa: PTH118  (bytes)
        for root, repositories in found.items()
        for path, entry in repositories.items()
    }
    return {os.fsdecode(path): paths[path] for path in paths if not os.path.islink(path)}  # noqa: PTH114


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _existing(named: dict[Path, NamedFiles]) -> Iterable[bytes]:
    """Yield the files and directories that can be mounted read-only; a link is left out."""
    for root, files in named.items():
        for path in files:
            full_path = os.path.join(os.fsencode(root), path)  # noqa: PTH118  (bytes)
            if os.path.exists(full_path) and not os.path.islink(full_path):  # noqa: PTH110, PTH114
                yield full_path


def _work_trees(cwd: str, found: dict[Path, Repositories]) -> set[Path]:
    """Return the top directories of the work trees in which a child can write."""
    start = Path(cwd).resolve()
    around = next((top for top in (start, *start.parents) if (top / ".git").exists()), start)
    inside = (root / os.fsdecode(path) for root, paths in found.items() for path in paths)
    return {around, *(path.parent for path in inside)} if found else set()


def _beneath(root: Path, paths: Iterable[Path]) -> list[bytes]:
    """Return those of the paths that are beneath a directory, relative to it."""
    inside = (path for path in paths if path != root and path.is_relative_to(root))
    return sorted(os.fsencode(path.relative_to(root)) for path in inside)


def _outermost(directories: Iterable[str]) -> list[Path]:
    """Return the directories that exist, without those inside another of them."""
    found = {path for each in directories if (path := Path(os.path.normpath(each))).is_dir()}
    return sorted(path for path in found if not any(above in found for above in path.parents))
