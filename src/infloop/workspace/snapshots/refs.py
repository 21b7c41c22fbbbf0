"""What keeps objects in the private store: a ref for each snapshot, and sets under a name.

A ref is a small file named after the object it keeps. Its time says when it was last wanted.
A snapshot that was taken for an owner is kept as long as the owner is.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class Refs:
    """The refs of the repository at `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._snapshots = directory / "refs" / "snapshots"
        self._owned = directory / "refs" / "owned"

    def keep(self, object_id: str, owner: str = "") -> None:
        """Keep a snapshot until it is dropped, or its owner is."""
        place = self._owned / owner if owner else self._snapshots
        self._write(place / object_id, object_id)

    def share(self, owner: str, other: str) -> None:
        """Keep what is kept for one owner for another one too."""
        place = self._owned / other
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for ref in _files(self._owned / owner):
            with suppress(FileExistsError):
                (place / ref.name).hardlink_to(ref)

    def owners(self) -> list[str]:
        """Return for whom snapshots are kept."""
        return [place.name for place in _files(self._owned)]

    def drop_owner(self, owner: str) -> None:
        """Keep nothing any more for an owner alone."""
        for ref in _files(self._owned / owner):
            ref.unlink(missing_ok=True)
        with suppress(OSError):  # a snapshot is being taken for it
            (self._owned / owner).rmdir()

    def drop(self, keep: Collection[str], grace_s: float) -> list[str]:
        """Keep no snapshots any more but some, and those wanted lately; return which went."""
        oldest = time.time_ns() / 1e9 - grace_s
        found = [ref for ref in _files(self._snapshots) if ref.name not in keep]
        gone = [ref for ref in found if ref.stat().st_mtime < oldest]
        for ref in gone:
            ref.unlink(missing_ok=True)
        return [ref.name for ref in gone]

    def pin(self, name: str, *ids: str) -> None:
        """Keep these objects, and no others, under a name."""
        for object_id in ids:
            self._write(self._pins(name) / object_id, object_id)
        for ref in _files(self._pins(name)):
            if ref.name not in ids:
                ref.unlink(missing_ok=True)

    def _pins(self, name: str) -> Path:
        return self._directory / "refs" / "pinned" / name

    def _write(self, path: Path, object_id: str) -> None:
        if path.exists():
            return os.utime(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unseen = self._directory / f"ref.{secrets.token_hex(8)}"
        with unseen.open("xb") as file:
            file.write(object_id.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        unseen.replace(path)
        return None


def _files(directory: Path) -> list[Path]:
    try:
        return [directory / entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []
