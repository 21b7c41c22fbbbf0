"""Reads the body of a response: bounded, decompressed and decoded.

We ask for uncompressed bodies. A server that compresses anyway is read if it uses gzip or deflate
once. Both sides of the decompression are bounded, so that a small body cannot fill the memory.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from infloop.egress.client import Response

RECEIVED_SLACK = 1 << 20
"""How much more than the wanted bytes may arrive, because it comes in chunks."""

_GZIP = 16 + zlib.MAX_WBITS
_ENCODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}

# A server names the charset. Some of Python's codecs are slow or do something else than decode.
_CHARSETS = frozenset(
    (
        *("utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be"),
        *(f"iso-8859-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
        *(f"windows-{number}" for number in range(1250, 1259)),
        *("shift_jis", "euc-jp", "euc-kr", "gbk", "gb2312", "gb18030", "big5", "koi8-r", "koi8-u"),
    )
)


class Body(NamedTuple):
    """A body, at most as many bytes as were wanted."""

    data: bytes
    truncated: bool

    def text(self, content_type: str) -> str:
        """Return the decoded text; of something that is not text, only a note."""
        if b"\0" in self.data[:1024] and "utf-16" not in content_type.lower():
            return f"[{len(self.data)} bytes that are not text]"
        return self.data.decode(_charset(content_type), "replace")


class _Decoder(Protocol):
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Plain:
    def decompress(self, data: bytes, max_length: int) -> bytes:
        return data[:max_length]


async def read_body(response: Response, max_bytes: int) -> Body:
    """Read a body until it ends or has `max_bytes`; raise ToolError if it cannot be decoded."""
    decoder = _decoder(response.headers.get("content-encoding", ""))
    parts: list[bytes] = []
    left = max_bytes
    async for chunk in response.chunks:
        try:
            part = decoder.decompress(chunk, left + 1)
        except zlib.error:
            raise ToolError("bad-encoding", "the compressed response is damaged") from None
        parts.append(part[:left])
        if len(part) > left:
            return Body(b"".join(parts), truncated=True)
        left -= len(part)
    return Body(b"".join(parts), truncated=False)


def _decoder(encoding: str) -> _Decoder:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name not in _ENCODINGS:
        raise ToolError(
            "unsupported-encoding", f"the server compresses the response: {name[:80]!r}"
        )
    return zlib.decompressobj(_ENCODINGS[name])


def _charset(content_type: str) -> str:
    _, found, rest = content_type.lower().partition("charset=")
    name = rest.partition(";")[0].strip().strip("\"'")
    return name if found and name in _CHARSETS else "utf-8"
