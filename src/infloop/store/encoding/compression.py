"""Compresses the bytes of a row when that makes them smaller.

Writing pages to disk takes longer than zlib's fastest level.
"""

from __future__ import annotations

import zlib

MIN_COMPRESSED = 4096
"""Shorter data is stored as it is."""

_PLAIN = b"\0"
_ZLIB = b"z"


def pack(data: bytes) -> bytes:
    """Return the stored form of `data`: a byte for the format, and the bytes."""
    if len(data) > MIN_COMPRESSED:
        compressed = zlib.compress(data, 1)
        if len(compressed) < len(data):
            return _ZLIB + compressed
    return _PLAIN + data


def unpack(stored: bytes) -> bytes:
    """Return what `pack` was given."""
    return zlib.decompress(stored[1:]) if stored[:1] == _ZLIB else stored[1:]
