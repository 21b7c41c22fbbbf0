"""How large what is in a pack becomes, found out without unfolding more than may be.

A few kilobytes can stand for gigabytes, in one object or by deltas that copy and copy. git takes
all the memory that an object needs, so a pack of somebody else's is measured before git sees it.
Only sizes are believed here: whether the objects are sound, git says afterwards.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from infloop.errors import StepError

if TYPE_CHECKING:
    from infloop.workspace.snapshots.walk import Limits

MOST_OBJECTS = 1_000_000
_HEAD = 12
_OFFSET_DELTA, _NAMED_DELTA = 6, 7
_ID_BYTES = 20
_STEP = 16 << 10
_SIZES = 20
"""Bytes at the beginning of a delta that hold both of its sizes."""


def measure(pack: bytes, limits: Limits) -> None:
    """Raise StepError if an object in a pack, or all of them, would become too large.

    Takes as long as inflating what is allowed.
    """
    count = int.from_bytes(pack[8:_HEAD], "big")
    if count > MOST_OBJECTS:
        raise StepError(f"they are {count} objects, and no more than {MOST_OBJECTS} are taken")
    at, total = _HEAD, 0
    try:
        for _ in range(count):
            kind, size, at = _entry(pack, at)
            _refuse(size, total + size, limits)
            begin, at = _inflated(pack, at, size)
            if kind in (_OFFSET_DELTA, _NAMED_DELTA):
                _, after = _number(begin, 0)
                size, _ = _number(begin, after)
            total += size
            _refuse(size, total, limits)
    except (IndexError, zlib.error):
        raise StepError("their pack is broken") from None


def _refuse(size: int, total: int, limits: Limits) -> None:
    if size > limits.file_bytes:
        raise StepError(
            f"one of their objects is {size} bytes long, and {limits.file_bytes} is the most that "
            "is taken"
        )
    if total > limits.tree_bytes:
        raise StepError(f"their objects are more than {limits.tree_bytes} bytes together")


def _entry(pack: bytes, at: int) -> tuple[int, int, int]:
    """Return the kind of an object, its size, and where its compressed bytes begin."""
    byte = pack[at]
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        at += 1
        byte = pack[at]
        size |= (byte & 0x7F) << shift
        shift += 7
        if shift > 64:
            raise zlib.error
    at += 1
    if kind == _OFFSET_DELTA:
        while pack[at] & 0x80:
            at += 1
        at += 1
    return kind, size, at + _ID_BYTES if kind == _NAMED_DELTA else at


def _inflated(pack: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Return the first bytes of what is inflated, and where it ends; it is as long as it says."""
    stream = zlib.decompressobj()
    begin, length = b"", 0
    while not stream.eof:
        given = stream.unconsumed_tail or pack[at : at + _STEP]
        if not given:
            raise zlib.error
        if not stream.unconsumed_tail:
            at += len(given)
        found = stream.decompress(given, 1 << 20)
        begin += found[: _SIZES - len(begin)]
        length += len(found)
        if length > size:
            raise zlib.error
    return begin, at - len(stream.unused_data)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of a delta's beginning, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, at
