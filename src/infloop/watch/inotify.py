"""Watches directories by kernel events, without a thread and without waking up while idle.

- A directory that appears is watched with everything in it, and the files that it holds already are
  reported: they may be older than the watch.
- A directory that disappears is reported with a slash at its end.
- When the kernel's queue overflows, the root is reported (its path is ""), so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING

from infloop.watch.scanning import scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.watch.targets import Scope

_MODIFY, _CLOSE_WRITE = 0x2, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ONLYDIR, _ISDIR = 0x4000, 0x8000, 0x1000000, 0x40000000
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLYDIR
_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class InotifyWatch:
    """Reports changed paths relative to the root."""

    def __init__(self, root: str, scope: Scope, on_changed: Callable[[set[str]], None]) -> None:
        """Ask the kernel; may be called in a thread. Raises OSError where the kernel cannot."""
        self._root = root
        self._scope = scope
        self._on_changed = on_changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        try:
            self._add("")
        except OSError:
            os.close(self._fd)
            raise
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Report from now on what has happened since the kernel was asked, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.drain)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def drain(self) -> None:
        """Report everything that has happened until now."""
        changed: set[str] = set()
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            self._parse(data, changed)
        if changed:
            self._on_changed(changed)

    def _parse(self, data: bytes, changed: set[str]) -> None:
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            if mask & _OVERFLOW:
                changed.add("")
                self._add_new("", changed)
            elif mask & _IGNORED:
                self._forget(watch)
            elif watch in self._paths:
                directory = self._paths[watch]
                self._note(f"{directory}/{name}" if directory else name, mask, changed)

    def _note(self, path: str, mask: int, changed: set[str]) -> None:
        if not mask & _ISDIR:
            changed.add(path)
        elif mask & (_CREATE | _MOVED_TO):
            self._add_new(path, changed)
        elif mask & (_DELETE | _MOVED_FROM):
            for known in [each for each in self._watches if f"{each}/".startswith(f"{path}/")]:
                self._libc.inotify_rm_watch(self._fd, self._watches[known])
                self._forget(self._watches[known])
            changed.add(f"{path}/")

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]

    def _add_new(self, path: str, changed: set[str]) -> None:
        """Watch a directory that appeared; a limit that is reached shows as an overflow."""
        try:
            changed.update(self._add(path))
        except OSError:
            changed.add("")

    def _add(self, path: str) -> set[str]:
        """Watch a directory and those below it; return the files in them."""
        files: set[str] = set()
        for found, entry in scan(self._root, self._scope, path):
            if entry is not None:
                files.add(found)
                continue
            encoded = os.fsencode(f"{self._root}/{found}")
            watch = self._libc.inotify_add_watch(self._fd, encoded, _MASK)
            if watch >= 0:
                self._paths[watch] = found
                self._watches[found] = watch
            elif (number := ctypes.get_errno()) not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise OSError(number, os.strerror(number))
        return files
