"""Homes of confined agents: each step of a run has one, from its first round until the run is over.

An agent finds its own session there in the next round, and nothing of another run. What its
manifest lists of the real home is shown in it: by a mount where the level has mounts, and by a link
elsewhere and where the real thing is a link itself.

Rules
  * A home has been in the hands of an agent: every step down in it refuses links, and whatever
    stands in the way stays.
  * A program that replaces a file it may write, as some do when they renew a login, has replaced
    the link to it. Afterwards what it wrote is brought into the file itself, if both are the
    children's own.
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
from infloop.providers.base import NO_USAGE, ProviderNotice
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

_MOST_BROUGHT_BACK = 1 << 20


class Homes:
    """The homes below one directory; `user` is as whom children run, when that is another one."""

    def __init__(self, directory: Path, user: tuple[int, int] | None = None) -> None:
        self._directory = directory
        self._user = user

    def is_there(self, run_id: str, node: str) -> bool:
        """Say whether a step has had a home before."""
        return self._place(run_id, node).is_dir()

    def make(self, run_id: str, node: str) -> str:
        """Return the home of a step; it is made if it is not there."""
        home = self._place(run_id, node)
        for above in (self._directory, home.parent):
            above.mkdir(parents=True, exist_ok=True, mode=0o711)
        with suppress(FileExistsError):
            home.mkdir(mode=0o700)
            if self._user:
                os.chown(home, *self._user)
        return str(home)

    async def forget(self, run_id: str) -> None:
        """Remove the homes of a run."""
        place = f"{self._directory}/{run_id}"
        if os.path.isdir(place):  # noqa: ASYNC240, PTH112  (asked at every run's end)
            await asyncio.to_thread(remove_tree, place)

    async def recover(self, is_over: Callable[[str], Awaitable[bool]]) -> None:
        """Remove the homes of runs that are over."""
        with suppress(FileNotFoundError):
            for run_id in [each.name for each in self._directory.iterdir()]:
                if await is_over(run_id):
                    await self.forget(run_id)

    def _place(self, run_id: str, node: str) -> Path:
        return self._directory / run_id / hashlib.sha256(node.encode()).hexdigest()[:16]


@contextmanager
def furnished(
    home: str, real: str, read: Sequence[str], write: Sequence[str], *, mounted: bool
) -> Iterator[None]:
    """Show in `home` what is listed of the `real` one; `mounted` if the level mounts it there."""
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
                    _bring_back(root, names[path], path, owner.st_uid)


def _link(root: int, name: bytes, path: str, owner: os.stat_result) -> bool:
    """Link to a path that is there; say whether there is such a link now."""
    if not os.path.exists(path):  # noqa: PTH110  (the paths are texts)
        return False
    target = os.fsencode(os.path.realpath(path))
    try:
        beneath.make_directories(root, name.rpartition(b"/")[0], owner)
        with beneath.open_parent(root, name) as (above, last):
            with suppress(FileExistsError):
                os.symlink(target, last, dir_fd=above)
            return os.readlink(last, dir_fd=above) == target
    except OSError:  # something of the agent's own stands in the way
        return False


def _bring_back(root: int, name: bytes, real: str, owner: int) -> None:
    with beneath.open_parent(root, name) as (above, last):
        written = os.open(last, beneath.OPEN_FILE, dir_fd=above)
    try:
        data = os.read(written, _MOST_BROUGHT_BACK)
        if not data or not _is_own(written, owner) or os.fstat(written).st_size > len(data):
            return
        place = os.open(os.path.realpath(real), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_own(place, owner):
                os.ftruncate(place, 0)
                beneath.write_all(place, data)
        finally:
            os.close(place)
    finally:
        os.close(written)


def _is_own(descriptor: int, owner: int) -> bool:
    facts = os.fstat(descriptor)
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == owner


class InItsHome:
    """Asks a provider to continue a session only where the home that holds it is there."""

    def __init__(self, inner: Provider, is_there: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_there = is_there

    @property
    def id(self) -> str:
        """The name that workflows use."""
        return self._inner.id

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Yield the parts of the answer."""
        if request.session_id and not self._is_there():
            yield ProviderNotice("[session] the home that held it is gone: a new session begins")
            request = msgspec.structs.replace(
                request, session_id="", session_usage=NO_USAGE, session_cost_usd=0.0
            )
        async with aclosing(cast("AsyncGenerator[AnswerPart]", self._inner.ask(request))) as parts:
            async for part in parts:
                yield part
