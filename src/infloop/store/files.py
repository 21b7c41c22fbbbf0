"""Private files, written whole or not at all.

A file that holds a secret or a run's data is 0600 in a 0700 directory, whatever the umask.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def private_directory(path: Path) -> None:
    """Make sure `path` is a directory; those made on the way are 0700.

    A directory that exists keeps its mode: it may be the user's own.
    """
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        place.chmod(DIRECTORY_MODE)


def private_file(path: Path) -> None:
    """Make sure `path` is a regular file with mode 0600; an existing one keeps its content."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by a 0600 file with `data`.

    A reader sees the old content or the new, never a part, also after a crash; a file with a
    looser mode is thereby tightened, and a link at `path` is replaced, not followed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
