"""Bare mirrors of the repositories that runs name, one for each address, fetched incrementally.

- An address is fetched only if the operator allows it by one of the prefixes in `allowed`.
- A mirror is ours: its settings are written here, it has no hooks and no remotes, and one process
  at a time fetches into it.
- Every object is checked when it arrives. The size on disk is limited while it arrives, and the
  size of a checkout before anything is checked out.
- Only the ref that is asked for is fetched, with its history and without tags.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.errors import GuardError, InfloopError, StepError
from infloop.lowlevel.directory_lock import hold_directory, try_lock_directory
from infloop.lowlevel.remove_tree import remove_tree
from infloop.model.repository_address import HEAD, check_ref, is_inside, parse_repository
from infloop.workspace.durable_files import write_durably
from infloop.workspace.git.commands import is_id
from infloop.workspace.git.remote import Credentials, Remote
from infloop.workspace.repositories.local_source import check_local
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees.repository import Repository
from infloop.workspace.worktrees.tree_size import check_tree_size

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from infloop.model.repository_address import RepositoryAddress
    from infloop.workspace.git.commands import Git

FETCH_DEADLINE_S = 900.0
_ASK_DEADLINE_S = 60.0
_WATCH_S = 0.5
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
"""
_GROUP_CONFIG = f"{_CONFIG}[core]\n\tsharedRepository = 0640\n"


class Limits(msgspec.Struct, frozen=True):
    """How large a mirror may be on disk, and one of its commits when it is checked out."""

    mirror_bytes: int = 8 << 30
    tree: TreeLimits = TreeLimits()
    deadline_s: float = FETCH_DEADLINE_S


class Fetched(NamedTuple):
    """A mirror, and the commit in it that was asked for."""

    mirror: Repository
    commit: str


class Mirrors:
    """The mirrors in a directory."""

    def __init__(
        self,
        directory: Path,
        git: Git,
        *,
        allowed: tuple[str, ...] = (),
        credentials: Credentials | None = None,
        limits: Limits | None = None,
        group: int | None = None,
    ) -> None:
        """Fetch with `git`, from addresses below one of the prefixes in `allowed`.

        `group` is that of children who run as another user and read the objects.
        """
        self._group = group
        self._directory = directory
        self._git = git
        self._allowed = allowed
        self._credentials = credentials or Credentials()
        self._limits = limits or Limits()

    def check(self, url: str, ref: str = HEAD) -> RepositoryAddress:
        """Return the address; raise GuardError unless the operator allows it."""
        try:
            address = parse_repository(url)
            check_ref(ref)
        except ValueError as error:
            raise GuardError(str(error)) from None
        if not any(is_inside(address, prefix) for prefix in self._allowed):
            raise GuardError(
                f"the operator does not allow the repository {address.url!r} on this machine: "
                "INFLOOP_REPOSITORIES lists the beginnings of addresses that workflows may name"
            )
        return address

    async def fetch(self, url: str, ref: str) -> Fetched:
        """Fetch a branch, a tag or a commit; raise GuardError if that is not possible."""
        address = self.check(url, ref)
        try:
            return await self._fetch(address, ref)
        except GuardError:
            raise
        except InfloopError as error:
            raise GuardError(f"{address.url!r} could not be fetched at {ref!r}: {error}") from None

    async def remove_unused(self, in_use: Collection[str], older_than_s: float) -> int:
        """Remove mirrors that were not used for a time; return how many."""
        oldest, removed = time.time_ns() / 1e9 - older_than_s, 0
        found = await in_thread(lambda _: list(self._directory.glob("*.git")))
        for path in found:
            head = path / "HEAD"
            if str(path) in in_use or (head.exists() and head.stat().st_mtime > oldest):
                continue
            with try_lock_directory(path) as locked:
                if locked:
                    await in_thread(lambda _, path=path: remove_tree(path))  # type: ignore[misc]
                    removed += 1
        return removed

    async def _fetch(self, address: RepositoryAddress, ref: str) -> Fetched:
        source = address.url
        if address.protocol == "file":
            roots = [each for each in self._allowed if each.startswith("/")]
            source = await check_local(self._git, source, roots)
        mirror = self._open(address)
        remote = Remote(address.protocol, self._credentials)
        async with hold_directory(mirror.common, timeout_s=self._limits.deadline_s):
            commit = await mirror.ref(ref) if is_id(ref) else None
            if commit is None:
                name, tip = await self._find(mirror, remote, source, ref)
                own = _own_ref(name)
                commit = await mirror.ref(own)
                if commit is None or commit != await mirror.ref(tip):
                    await self._fetch_into(mirror, remote, source, f"+{name}:{own}")
                    commit = await mirror.ref(own)
            if commit is None:
                raise GuardError(f"{ref!r} of {address.url!r} is not a commit")
            await self._check_tree(mirror, commit, address)
            os.utime(mirror.common / "HEAD")
        return Fetched(mirror, commit)

    def _open(self, address: RepositoryAddress) -> Repository:
        """Return the mirror of an address; create it if there is none."""
        name = hashlib.sha256(address.url.encode()).hexdigest()[:40]
        path = self._directory / f"{name}.git"
        if not (path / "HEAD").exists():
            for below in ("objects/pack", "objects/info", "refs/heads", "info"):
                (path / below).mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(path / "config", _CONFIG if self._group is None else _GROUP_CONFIG)
            self._allow_group(path)
            write_durably(path / "description", f"{address.url}\n")
            # Last, because its existence means that the repository is complete.
            write_durably(path / "HEAD", "ref: refs/heads/none\n")
        return Repository(self._git, path.resolve(), path.resolve())

    def _allow_group(self, path: Path) -> None:
        """Let the children's group read the objects of a mirror, and list no directory above."""
        if self._group is None:
            return
        for each in (path.parent, path):
            os.chown(each, -1, self._group)
            each.chmod(0o710)
        for each in (path / "objects", path / "objects/pack", path / "objects/info"):
            os.chown(each, -1, self._group)
            each.chmod(0o2750)

    async def _find(
        self, mirror: Repository, remote: Remote, source: str, ref: str
    ) -> tuple[str, str]:
        """Return the full name of a ref in the source, or a commit, and the object it names."""
        if is_id(ref):
            return ref, ref
        wanted = [ref] if ref == HEAD or ref.startswith("refs/") else _names(ref)
        args = ("ls-remote", "--quiet", "--", source, *wanted)
        answer = await self._git.call(
            mirror.shared, *args, remote=remote, deadline_s=_ASK_DEADLINE_S
        )
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        found = {name: at for at, _, name in (line.partition("\t") for line in lines)}
        for name in wanted:
            if is_id(found.get(name, "")):
                return name, found[name]
        raise GuardError(f"the repository has no branch and no tag {ref!r}")

    async def _fetch_into(
        self, mirror: Repository, remote: Remote, source: str, refspec: str
    ) -> None:
        """Fetch one ref; end it when the mirror grows over its limit."""
        options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        args = ("fetch", *options, "--no-auto-maintenance", "--refmap=", "--", source, refspec)
        deadline_s = self._limits.deadline_s
        fetching = asyncio.create_task(
            self._git.call(mirror.shared, *args, remote=remote, deadline_s=deadline_s)
        )
        try:
            while not fetching.done():
                await asyncio.wait([fetching], timeout=_WATCH_S)
                await in_thread(lambda _: _check_size(mirror.common, self._limits.mirror_bytes))
            await fetching
        except BaseException:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            await in_thread(lambda _: _remove_partial(mirror.common))
            raise

    async def _check_tree(
        self, mirror: Repository, commit: str, address: RepositoryAddress
    ) -> None:
        try:
            await check_tree_size(
                self._git, mirror.shared, [commit], _EMPTY_TREE, self._limits.tree
            )
        except StepError as error:
            raise GuardError(f"{address.url!r} is too large to be checked out: {error}") from None


def _names(ref: str) -> list[str]:
    return [f"refs/heads/{ref}", f"refs/tags/{ref}"]


def _own_ref(name: str) -> str:
    """Return the name in the mirror of a ref in its source: as a clone would have it."""
    if is_id(name):
        return f"refs/infloop/commits/{name}"
    if name.startswith("refs/tags/"):
        return name
    return f"refs/remotes/origin/{name.removeprefix('refs/heads/')}"


def _check_size(path: Path, limit: int) -> None:
    """Raise StepError if the objects of a mirror need more than `limit` bytes."""
    total = 0
    for folder, _, names in os.walk(path / "objects"):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except FileNotFoundError:
                continue
    if total > limit:
        raise StepError(f"it needs more than {limit} bytes")


def _remove_partial(path: Path) -> None:
    """Remove what a fetch that was ended left behind; the caller holds the lock."""
    for left in (path / "objects").glob("**/tmp_*"):
        left.unlink(missing_ok=True)
