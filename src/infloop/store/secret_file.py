"""A random secret in a private file, made once and kept."""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from pathlib import Path

_RANDOM_BYTES = 32
_MAX_BYTES = 1024
_LOCK_SECONDS = 10.0


def keep_secret(file: Path) -> str:
    """Return the secret in `file`; make one if there is none.

    Raises StoreError if somebody else could have read or written it.
    """
    private_directory(file.parent)
    with lock_directory(file.parent, _LOCK_SECONDS, "making a secret"):
        found = read_secret(file)
        if found is None:
            found = secrets.token_urlsafe(_RANDOM_BYTES)
            write_private(file, f"{found}\n".encode())
        return found


def read_secret(file: Path) -> str | None:
    """Return the secret in `file`, or None if there is none. Raises StoreError as above."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _unusable(file, "it is not a regular file")
        if found.st_uid != os.geteuid():
            raise _unusable(file, "it belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _unusable(file, "others can read or write it")
        text = os.read(descriptor, _MAX_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _RANDOM_BYTES or not all(char.isalnum() or char in "-_" for char in text):
        raise _unusable(file, "it does not hold a secret that infloop made")
    return text


def _unusable(file: Path, why: str) -> StoreError:
    return StoreError(
        f"the secret in {str(file)!r} cannot be used: {why}. Remove the file, and a new one is made"
    )
