"""Home directories of confined agents: one for each agent node, for as long as the run lives.

An agent finds its own session there in the next round, and nothing of other runs. The files of the
real home that its manifest lists are mounted in it if the level has mounts. At other levels, and
for files that are links themselves, they are symlinks.

Rules
  * Agents write to their homes. So every path below a home is opened without following links, and
    nothing that exists there is replaced.
  * A program can replace a listed file, as some do when they renew a login, and so replaces the
    symlink. Afterwards its content is copied to the real file, if both belong to the children.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from infloop.lowlevel.remove_tree import remove_tree
from infloop.providers.base import NO_USAGE, ProviderNotice, is_remote
from infloop.workspace import beneath

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterator,
        Sequence,
    )

    from infloop.providers.base import AnswerPart, Provider, Request

_MAX_COPIED_BYTES = 1 << 20


class Homes:
    """The homes below one directory; they belong to `user` if it is set."""

    def __init__(self, directory: Path, user: tuple[int, int] | None = None) -> None:
        self._directory = directory
        self._user = user

    def exists(self, run_id: str, node: str) -> bool:
        """Say whether a node of a run has a home already."""
        return self._path(run_id, node).is_dir()

    def make(self, run_id: str, node: str) -> str:
        """Return the home of a node of a run; create it if it does not exist."""
        home = self._path(run_id, node)
        for above in (self._directory, home.parent):
            above.mkdir(parents=True, exist_ok=True, mode=0o711)
        with suppress(FileExistsError):
            home.mkdir(mode=0o700)
            if self._user:
                os.chown(home, *self._user)
        return str(home)

    async def remove(self, run_id: str) -> None:
        """Remove the homes of a run."""
        path = f"{self._directory}/{run_id}"
        if os.path.isdir(path):  # noqa: ASYNC240, PTH112  (fast, at every run's end)
            await asyncio.to_thread(remove_tree, path)

    async def recover(self, is_over: Callable[[str], Awaitable[bool]]) -> None:
        """Remove the homes of runs that are over."""
        with suppress(FileNotFoundError):
            for run_id in [each.name for each in self._directory.iterdir()]:
                if await is_over(run_id):
                    await self.remove(run_id)

    def _path(self, run_id: str, node: str) -> Path:
        return self._directory / run_id / hashlib.sha256(node.encode()).hexdigest()[:16]


@contextmanager
def linked_home(
    home: str, real: str, read: Sequence[str], write: Sequence[str], *, mounted: bool
) -> Iterator[None]:
    """Link the listed paths of the `real` home into `home`, unless the level mounts them.

    Afterwards, copy files back that replaced a link to a writable path.
    """
    listed = [path for path in (*read, *write) if not mounted or os.path.realpath(path) != path]
    with beneath.open_root(Path(home)) as root:
        owner = os.fstat(root)
        names = {path: os.fsencode(os.path.relpath(path, real)) for path in listed}
        linked = [path for path in listed if _link(root, names[path], path, owner)]
        try:
            yield
        finally:
            for path in set(linked) & set(write):
                with suppress(OSError):
                    _copy_back(root, names[path], path, owner.st_uid)


def _link(root: int, name: bytes, path: str, owner: os.stat_result) -> bool:
    """Link to a path if it exists; say whether there is such a link now."""
    if not os.path.exists(path):  # noqa: PTH110  (the paths are strings)
        return False
    target = os.fsencode(os.path.realpath(path))
    try:
        beneath.make_directories(root, name.rpartition(b"/")[0], owner)
        with beneath.open_parent(root, name) as (above, last):
            with suppress(FileExistsError):
                os.symlink(target, last, dir_fd=above)
            return os.readlink(last, dir_fd=above) == target
    except OSError:  # the agent made something else at this path
        return False


def _copy_back(root: int, name: bytes, real: str, owner: int) -> None:
    with beneath.open_parent(root, name) as (above, last):
        written = os.open(last, beneath.OPEN_FILE, dir_fd=above)
    try:
        data = os.read(written, _MAX_COPIED_BYTES)
        if not data or not _is_own(written, owner) or os.fstat(written).st_size > len(data):
            return
        target = os.open(os.path.realpath(real), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_own(target, owner):
                os.ftruncate(target, 0)
                beneath.write_all(target, data)
        finally:
            os.close(target)
    finally:
        os.close(written)


def _is_own(descriptor: int, owner: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == owner


class SessionHomeProvider:
    """Asks a provider to continue a session only if the home that holds the session exists."""

    def __init__(self, inner: Provider, home_exists: Callable[[], bool]) -> None:
        self._inner = inner
        self._home_exists = home_exists

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def is_remote(self) -> bool:
        return is_remote(self._inner)

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        if request.session_id and not self._home_exists():
            yield ProviderNotice("[session] the home that held it is gone: a new session begins")
            request = msgspec.structs.replace(
                request, session_id="", session_usage=NO_USAGE, session_cost_usd=0.0
            )
        async with aclosing(cast("AsyncGenerator[AnswerPart]", self._inner.ask(request))) as parts:
            async for part in parts:
                yield part
