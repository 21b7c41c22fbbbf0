"""Lists the files that a scope may want. Links to directories are not followed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.watch.targets import Scope

Version: TypeAlias = tuple[int, int, int]
"""Time of the last change in ns, size, inode: tells one version of a file from another."""


def scan(root: str, scope: Scope, below: str = "") -> Iterator[tuple[str, os.DirEntry[str] | None]]:
    """Yield the wanted directories (with None) and all files in them, as relative paths."""
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
                            yield path, entry
                    except OSError:
                        continue  # removed meanwhile
        except OSError:
            continue


def versions(root: str, scope: Scope) -> Iterator[tuple[str, Version]]:
    """Yield all files that a scope may want, each with its version."""
    for path, entry in scan(root, scope):
        if entry is not None:
            try:
                found = entry.stat()
            except OSError:
                continue  # removed meanwhile
            yield path, (found.st_mtime_ns, found.st_size, found.st_ino)
