"""Private files, written atomically.

A file with a secret or a run's data has mode 0600, in a directory with mode 0700, whatever the
umask.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def private_directory(path: Path) -> None:
    """Create the directory `path` and its missing parents with mode 0700.

    An existing directory keeps its mode: it may be the user's own.
    """
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        directory.chmod(DIRECTORY_MODE)


def private_file(path: Path) -> None:
    """Create the file `path` with mode 0600; an existing one keeps its content."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by a file with `data` and mode 0600.

    A reader sees either the old content or the new, also after a crash of this process, and unless
    `durable` is false after a crash of the machine. A symbolic link at `path` is replaced and not
    followed.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
