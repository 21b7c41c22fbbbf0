"""The built console: `console/index.html` and its assets, compressed once and kept in memory.

`make console` builds these files from the sources in `console/`. Names of assets contain a hash of
their content, so a browser keeps them for good.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

import msgspec

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class ConsoleFile(msgspec.Struct, frozen=True):
    """A file as it is sent."""

    content: bytes
    compressed: bytes
    media_type: str


def _file(content: bytes, media_type: str) -> ConsoleFile:
    return ConsoleFile(content, gzip.compress(content, 9, mtime=0), media_type)


@cache
def index_page() -> ConsoleFile:
    """Return the page that every address of the console begins with."""
    return _file((_FOLDER / "index.html").read_bytes(), "text/html; charset=utf-8")


@cache
def _assets() -> dict[str, ConsoleFile | None]:
    return {asset.name: None for asset in (_FOLDER / "assets").iterdir()}


def asset(name: str) -> ConsoleFile | None:
    """Return an asset, or None if there is none of this name."""
    known = _assets()
    if name not in known:  # so that no name is ever a path
        return None
    found = known[name]
    if found is None:
        suffix = name[name.rfind(".") :]
        content = (_FOLDER / "assets" / name).read_bytes()
        found = known[name] = _file(content, _TYPES.get(suffix, "application/octet-stream"))
    return found


_FOLDER = files("infloop.web") / "console"
