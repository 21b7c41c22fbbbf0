"""Bytes in a row, compressed when that pays.

Compression is cheaper than the disk here: written pages cost more time than zlib's fastest level.
"""

from __future__ import annotations

import zlib

WORTH_COMPRESSING = 4096

_PLAIN = b"\0"
_ZLIB = b"z"


def pack(data: bytes) -> bytes:
    """Return the stored form of `data`: a byte that says how, and the bytes."""
    if len(data) > WORTH_COMPRESSING:
        small = zlib.compress(data, 1)
        if len(small) < len(data):
            return _ZLIB + small
    return _PLAIN + data


def unpack(stored: bytes) -> bytes:
    """Return what `pack` was given."""
    return zlib.decompress(stored[1:]) if stored[:1] == _ZLIB else stored[1:]
