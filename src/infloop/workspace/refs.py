"""What keeps objects in the private store: a ref for each snapshot, and sets under a name.

A ref is a small file named after the object it keeps. Its time says when it was last wanted.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class Refs:
    """The refs of the repository at `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._snapshots = directory / "refs" / "snapshots"

    def keep(self, object_id: str) -> None:
        """Keep a snapshot until it is dropped."""
        self._write(self._snapshots / object_id, object_id)

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
