"""Refs that keep objects of the private store alive.

- A ref is a small file named after its object. Its modification time is the last time of use.
- A snapshot without an owner is kept until it is dropped.
- A snapshot with an owner is kept until the owner is dropped.
- A pin keeps a named set of objects.
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
        """Keep a snapshot until it is dropped, or until its owner is dropped."""
        directory = self._owned / owner if owner else self._snapshots
        self._write(directory / object_id, object_id)

    def share(self, owner: str, other: str) -> None:
        """Keep the snapshots of one owner for another owner too."""
        directory = self._owned / other
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for ref in _files(self._owned / owner):
            with suppress(FileExistsError):
                (directory / ref.name).hardlink_to(ref)

    def owners(self) -> list[str]:
        return [directory.name for directory in _files(self._owned)]

    def drop_owner(self, owner: str) -> None:
        """Drop the refs of an owner."""
        for ref in _files(self._owned / owner):
            ref.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: a snapshot is being taken for this owner
            (self._owned / owner).rmdir()

    def drop(self, keep: Collection[str], grace_s: float) -> list[str]:
        """Drop snapshots not in `keep` and not used for `grace_s`; return the dropped ids."""
        oldest = time.time_ns() / 1e9 - grace_s
        found = [ref for ref in _files(self._snapshots) if ref.name not in keep]
        gone = [ref for ref in found if ref.stat().st_mtime < oldest]
        for ref in gone:
            ref.unlink(missing_ok=True)
        return [ref.name for ref in gone]

    def pin(self, name: str, *ids: str) -> None:
        """Make a pin keep exactly these objects; none removes the pin."""
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
        temporary = self._directory / f"ref.{secrets.token_hex(8)}"
        with temporary.open("xb") as file:
            file.write(object_id.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        return None


def _files(directory: Path) -> list[Path]:
    try:
        return [directory / entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []
