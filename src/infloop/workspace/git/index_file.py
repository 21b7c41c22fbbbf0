"""Reads git's index: which blob each file was written from, and how the file looked then.

Only version 2 and 3 are read, which git writes unless it is told otherwise. Anything else yields
nothing: whoever asks then reads the files themselves.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import NamedTuple

_HEAD = struct.Struct(">4sLL")
_ENTRY = struct.Struct(">10L20sH")
_EXTENDED = 0x4000
_VERSIONS = (2, 3)
_LOW_BITS = 0xFFFFFFFF
_NS = 1_000_000_000
_KINDS = {stat.S_IFREG, stat.S_IFLNK}


class IndexedFile(NamedTuple):
    """A file or link as git saw it right after writing it, and the blob that holds its content."""

    ctime_ns: int
    mtime_ns: int
    inode: int
    mode: int
    size: int
    id: bytes

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Tell whether the file looks as it did; git keeps 32 bits of its inode and its size."""
        same_kind = stat.S_IFMT(status.st_mode) == stat.S_IFMT(self.mode)
        return (
            self.ctime_ns == status.st_ctime_ns
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino & _LOW_BITS
            and self.size == status.st_size & _LOW_BITS
            and same_kind
        )


def indexed_files(index: bytes) -> dict[bytes, IndexedFile]:
    """Return the files and links in an index by their paths; nothing if it cannot be read."""
    try:
        return dict(_entries(index))
    except (struct.error, ValueError):
        return {}


def _entries(index: bytes) -> list[tuple[bytes, IndexedFile]]:
    signature, version, count = _HEAD.unpack_from(index)
    if signature != b"DIRC" or version not in _VERSIONS:
        return []
    found: list[tuple[bytes, IndexedFile]] = []
    at = _HEAD.size
    for _ in range(count):
        ctime, ctime_ns, mtime, mtime_ns, _, inode, mode, _, _, size, blob, flags = (
            _ENTRY.unpack_from(index, at)
        )
        name_at = at + _ENTRY.size + (2 if flags & _EXTENDED else 0)
        end = index.index(b"\0", name_at)
        if stat.S_IFMT(mode) in _KINDS:
            seen = IndexedFile(
                ctime * _NS + ctime_ns, mtime * _NS + mtime_ns, inode, mode, size, blob
            )
            found.append((index[name_at:end], seen))
        at += (end - at + 8) & ~7  # an entry ends with one to eight NUL
    return found
