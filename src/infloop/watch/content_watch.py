"""Watches the files below one directory: by kernel events or by polling, compared by content."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from infloop.watch.contents import Contents
from infloop.watch.inotify import InotifyWatch
from infloop.watch.polling import PollWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infloop.model.clock import Clock
    from infloop.watch.contents import Change
    from infloop.watch.targets import Scope

Backend: TypeAlias = InotifyWatch | PollWatch

# The kernel's file times may be some milliseconds behind the clock.
_CLOCK_GRAIN_MS = 50


class ContentWatch:
    """Reports paths that may have changed, and tells which of them did.

    Paths are relative to the root. A path with a slash at its end stands for everything below a
    directory that is gone, and an empty path for all files.
    """

    def __init__(self, contents: Contents, backend: Backend, before_ns: int) -> None:
        self._contents = contents
        self._backend = backend
        loop = asyncio.get_running_loop()
        self._learned = loop.run_in_executor(None, contents.learn, before_ns)
        self._reading = asyncio.Lock()
        backend.start()

    def drain(self) -> None:
        """Report everything that has happened until now."""
        self._backend.drain()

    def close(self) -> None:
        self._backend.close()

    async def changed(self, paths: Iterable[str]) -> list[Change]:
        """Return the files among `paths` whose content differs from the last time, sorted."""
        await asyncio.shield(self._learned)
        async with self._reading:
            return await asyncio.to_thread(self._contents.changed, paths)


def open_backend(
    root: str,
    scope: Scope,
    on_changed: Callable[[set[str]], None],
    *,
    poll_ms: int,
    native: bool = True,
) -> tuple[Backend, str]:
    """Ask the kernel, or else list the files every `poll_ms`; return the reason for that too."""
    reason = ""
    if native:
        try:
            return InotifyWatch(root, scope, on_changed), ""
        except OSError as error:
            reason = (
                f"the kernel cannot watch {root}: {error.strerror}; polling every {poll_ms} ms "
                "instead (see fs.inotify.max_user_watches and max_user_instances)"
            )
    return PollWatch(root, scope, on_changed, poll_ms), reason


async def open_watch(
    root: str,
    scope: Scope,
    counts: Callable[[str], bool],
    on_noticed: Callable[[set[str]], None],
    warn: Callable[[str], None],
    clock: Clock,
    *,
    poll_ms: int,
    native: bool = True,
) -> ContentWatch:
    """Watch from now on; `on_noticed` gets paths in the running loop.

    `warn` is called if the kernel should watch and cannot. A name that is not text does not count:
    what is done with changes are texts.
    """
    before_ns = (clock.now_ms() - _CLOCK_GRAIN_MS) * 1_000_000

    def noticed(paths: set[str]) -> None:
        if counted := {path for path in paths if path[-1:] in ("", "/") or counts_as_text(path)}:
            on_noticed(counted)

    def counts_as_text(path: str) -> bool:
        return _is_text(path) and counts(path)

    opening = partial(open_backend, root, scope, noticed, poll_ms=poll_ms, native=native)
    backend, reason = await asyncio.to_thread(opening)
    if reason:
        warn(reason)
    return ContentWatch(Contents(root, scope, counts_as_text), backend, before_ns)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # bytes of a name that are not UTF-8
        return False
    return True
