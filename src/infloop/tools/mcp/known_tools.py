"""Remembers which definitions of tools were used with permission.

A file in the data directory, mode 0600: for each server and tool the digest of its definition. A
tool that is not in it, or has another digest, is new. A file that cannot be read makes all tools
new.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from infloop.errors import StoreError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from pathlib import Path

_LOCK_SECONDS = 10.0
_MAX_BYTES = 4 << 20

_Digests: TypeAlias = dict[str, dict[str, str]]


class KnownTools:
    """The digests of known tools, by server and tool."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._digests = self._read()

    def is_known(self, server: str, tool: str, digest: str) -> bool:
        """Tell whether this definition was used before."""
        return self._digests.get(server, {}).get(tool) == digest

    async def remember(self, server: str, tool: str, digest: str) -> None:
        """Store that a definition was used. Raises StoreError."""
        try:
            await asyncio.to_thread(self._write, server, tool, digest)
        except OSError as error:
            raise StoreError(f"{self._file} cannot be written: {error.strerror}") from None

    def _write(self, server: str, tool: str, digest: str) -> None:
        private_directory(self._file.parent)
        with lock_directory(self._file.parent, _LOCK_SECONDS, "remembering a tool"):
            digests = self._read()
            digests.setdefault(server, {})[tool] = digest
            write_private(self._file, msgspec.json.encode(digests, order="sorted"))
            self._digests = digests

    def _read(self) -> _Digests:
        try:
            with self._file.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_BYTES), type=_Digests)
        except (OSError, msgspec.MsgspecError):
            return {}
