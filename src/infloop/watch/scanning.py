"""Lists the files that a scope may want, with what tells one version of a file from another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.watch.targets import Scope

Version: TypeAlias = tuple[int, int, int]
"""Time of the last change in ns, size, inode."""


def scan(root: str, scope: Scope, below: str = "") -> Iterator[tuple[str, Version | None]]:
    """Yield the wanted directories (version None) and all files in them, as relative paths."""
    pending = [below]
    while pending:
        directory = pending.pop()
        if not scope.wants_directory(directory):
            continue
        yield directory, None
        prefix = f"{directory}/" if directory else ""
        try:
            with os.scandir(f"{root}/{directory}") as entries:
                for entry in entries:
                    path = prefix + entry.name
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(path)
                        elif entry.is_file():
                            found = entry.stat()
                            yield path, (found.st_mtime_ns, found.st_size, found.st_ino)
                    except OSError:
                        continue  # removed meanwhile
        except OSError:
            continue
