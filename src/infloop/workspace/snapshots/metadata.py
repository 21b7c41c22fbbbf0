"""Snapshot metadata: permissions, and the paths that were not read.

A git tree stores only one permission, the owner's execute bit. The others are stored as the umask
that fits most of the tree, plus a list of paths it does not fit.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StoreError
from infloop.workspace.snapshots.objects import FILE, LINK
from infloop.workspace.snapshots.walk import Skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.workspace.snapshots.stat_cache import Folder
    from infloop.workspace.snapshots.walk import WalkReport

_UMASKS = (0o022, 0o002, 0o077, 0o027, 0o007)
_VERSION = 1


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of a snapshot; paths are decoded with `os.fsdecode`, the root is empty."""

    umask: int = 0o022
    modes: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    repositories: tuple[str, ...] = ()
    files: int = 0

    def permissions(self, path: bytes, git_mode: bytes) -> int | None:
        """Return the permission bits of a path; None for a link."""
        if git_mode == LINK:
            return None
        given = self.modes.get(os.fsdecode(path))
        whole = 0o666 if git_mode == FILE else 0o777
        return whole & ~self.umask if given is None else given

    def encode(self) -> bytes:
        """Return the stored form; equal metadata gives equal bytes."""
        return json.dumps(
            {
                "version": _VERSION,
                "umask": self.umask,
                "modes": self.modes,
                "skipped": self.skipped,
                "repositories": self.repositories,
                "files": self.files,
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode("ascii")


def decode(data: bytes) -> Metadata:
    """Decode stored metadata; raise StoreError for a newer format."""
    stored = json.loads(data)
    if stored["version"] != _VERSION:
        raise StoreError(
            f"the snapshot has metadata version {stored['version']!r}, which this infloop cannot "
            "read: upgrade infloop"
        )
    return Metadata(
        stored["umask"],
        stored["modes"],
        tuple(Skipped(*each) for each in stored["skipped"]),
        tuple(stored["repositories"]),
        stored["files"],
    )


def collect(root: Folder, report: WalkReport) -> Metadata:
    """Return the metadata of a tree that was just scanned."""
    umask = max(_UMASKS, key=lambda each: _explained(root.counts, each))
    modes: dict[str, int] = {}
    if any(not _explains(umask, mode) for mode in root.counts):
        modes = {
            os.fsdecode(path): stat.S_IMODE(mode)
            for path, mode in root.modes()
            if not _explains(umask, mode)
        }
    return Metadata(umask, modes, tuple(report.skipped), tuple(report.repositories), report.files)


def _explained(modes: Mapping[int, int], umask: int) -> int:
    return sum(count for mode, count in modes.items() if _explains(umask, mode))


def _explains(umask: int, mode: int) -> bool:
    if stat.S_ISLNK(mode):
        return True
    plain = stat.S_ISREG(mode) and not mode & stat.S_IXUSR
    return stat.S_IMODE(mode) == (0o666 if plain else 0o777) & ~umask
