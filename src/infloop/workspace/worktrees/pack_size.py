"""Limits the unpacked size of a git pack, without unpacking more than is allowed.

A few kilobytes can expand to gigabytes, in one object or through deltas. git allocates all the
memory that an object needs, so a pack from an agent is measured before git reads it. This module
checks only sizes; git checks afterwards whether the objects are valid.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from infloop.errors import StepError

if TYPE_CHECKING:
    from infloop.workspace.snapshots.walk import TreeLimits

MAX_OBJECTS = 1_000_000
_HEAD = 12
_OFFSET_DELTA, _NAMED_DELTA = 6, 7
_ID_BYTES = 20
_BLOCK = 16 << 10
_DELTA_SIZES_BYTES = 20
"""The two sizes at the start of a delta fit into this many bytes."""


def check_pack_size(pack: bytes, limits: TreeLimits) -> None:
    """Raise StepError if an object of a pack, or all together, would exceed the limits.

    This takes as long as inflating the allowed size.
    """
    count = int.from_bytes(pack[8:_HEAD], "big")
    if count > MAX_OBJECTS:
        raise StepError(f"there are {count} objects, and at most {MAX_OBJECTS} are allowed")
    at, total = _HEAD, 0
    try:
        for _ in range(count):
            kind, size, at = _entry(pack, at)
            _check(size, total + size, limits)
            begin, at = _inflate(pack, at, size)
            if kind in (_OFFSET_DELTA, _NAMED_DELTA):
                _, after = _number(begin, 0)
                size, _ = _number(begin, after)
            total += size
            _check(size, total, limits)
    except (IndexError, zlib.error):
        raise StepError("the pack is damaged") from None


def _check(size: int, total: int, limits: TreeLimits) -> None:
    if size > limits.file_bytes:
        raise StepError(
            f"one of the objects has {size} bytes, and at most {limits.file_bytes} are allowed"
        )
    if total > limits.tree_bytes:
        raise StepError(f"the objects have more than {limits.tree_bytes} bytes in total")


def _entry(pack: bytes, at: int) -> tuple[int, int, int]:
    """Return the type and size of an object, and the offset of its compressed bytes."""
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


def _inflate(pack: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Inflate an object of the stated size; return its first bytes and the offset of its end."""
    stream = zlib.decompressobj()
    begin, length = b"", 0
    while not stream.eof:
        given = stream.unconsumed_tail or pack[at : at + _BLOCK]
        if not given:
            raise zlib.error
        if not stream.unconsumed_tail:
            at += len(given)
        found = stream.decompress(given, 1 << 20)
        begin += found[: _DELTA_SIZES_BYTES - len(begin)]
        length += len(found)
        if length > size:
            raise zlib.error
    return begin, at - len(stream.unused_data)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number from the start of a delta, and the offset of its end."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, at
