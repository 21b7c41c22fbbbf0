"""What a snapshot keeps beside the files: permissions, and what was not read.

A git tree knows one permission, whether the owner may execute. The rest is kept as a umask that
explains most of the tree, and the paths that it does not explain.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.workspace.snapshots.objects import FILE, LINK
from infloop.workspace.snapshots.walk import Skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.workspace.snapshots.index import Folder
    from infloop.workspace.snapshots.walk import Seen

_UMASKS = (0o022, 0o002, 0o077, 0o027, 0o007)
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Notes:
    """Beside the files; paths as `os.fsdecode` gives them, the root's own being empty."""

    umask: int = 0o022
    modes: dict[str, int] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    repositories: tuple[str, ...] = ()
    files: int = 0

    def permissions(self, path: bytes, git_mode: bytes) -> int | None:
        """Return the permission bits of a path; a link has none."""
        if git_mode == LINK:
            return None
        given = self.modes.get(os.fsdecode(path))
        whole = 0o666 if git_mode == FILE else 0o777
        return whole & ~self.umask if given is None else given

    def encoded(self) -> bytes:
        """Return the notes as they are stored: the same notes, the same bytes."""
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


def decode(data: bytes) -> Notes:
    """Read stored notes."""
    stored = json.loads(data)
    if stored["version"] != _VERSION:
        raise StoreError(f"a snapshot was taken by a newer infloop (notes {stored['version']!r})")
    return Notes(
        stored["umask"],
        stored["modes"],
        tuple(Skipped(*each) for each in stored["skipped"]),
        tuple(stored["repositories"]),
        stored["files"],
    )


def note(root: Folder, seen: Seen) -> Notes:
    """Return the notes of a tree that was just walked."""
    umask = max(_UMASKS, key=lambda each: _explained(root.counts, each))
    modes: dict[str, int] = {}
    if any(not _explains(umask, mode) for mode in root.counts):
        modes = {
            os.fsdecode(path): stat.S_IMODE(mode)
            for path, mode in root.modes()
            if not _explains(umask, mode)
        }
    return Notes(umask, modes, tuple(seen.skipped), tuple(seen.repositories), seen.files)


def _explained(modes: Mapping[int, int], umask: int) -> int:
    return sum(count for mode, count in modes.items() if _explains(umask, mode))


def _explains(umask: int, mode: int) -> bool:
    if stat.S_ISLNK(mode):
        return True
    plain = stat.S_ISREG(mode) and not mode & stat.S_IXUSR
    return stat.S_IMODE(mode) == (0o666 if plain else 0o777) & ~umask
