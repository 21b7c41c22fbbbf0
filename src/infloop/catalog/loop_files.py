"""Reads loop files (`NAME.loop.yaml`), and the texts in other files that they name.

A named file is beneath the folder of the loop file. Its path is opened without following links, so
a loop file cannot bring a file from elsewhere into a prompt.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from infloop.catalog.files import read_bounded
from infloop.errors import StepError
from infloop.model.reading import MAX_FILE_BYTES
from infloop.workspace.beneath import OPEN_FILE, open_parent, open_root

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.model.parsing import Parsed

LOOP_SUFFIXES = (".loop.yaml", ".loop.yml")


def is_loop_file(name: str) -> bool:
    """Say whether a file name is that of a loop file."""
    return name.endswith(LOOP_SUFFIXES)


def loop_file_id(name: str) -> str:
    """Return the id of the workflow in a loop file: the file's name without its suffix."""
    return next((name.removesuffix(one) for one in LOOP_SUFFIXES if name.endswith(one)), name)


def read_loop_file(path: Path, *, expected_id: str | None = None) -> Parsed:
    """Read a loop file and the files that it names. Raises UsageError if it cannot be read."""
    from infloop.model.loop_file.reading import parse_loop_file

    data = read_bounded(path)
    texts = FolderTexts(path.parent)
    return parse_loop_file(data, loop_file_id(path.name), texts.read, expected_id=expected_id)


class FolderTexts:
    """The files beneath a folder; all that are read together are bounded in size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = MAX_FILE_BYTES

    def read(self, name: str) -> str:
        """Return the text of a file; raise UnusableFile with the reason."""
        from infloop.model.loop_file.values import UnusableFile

        if not _is_beneath(name):
            raise UnusableFile("is not beneath the folder of the loop file; use a path such as "
                               "'prompts/fix.md'")  # fmt: skip
        try:
            data = self._bytes(os.fsencode(name))
        except OSError as error:
            raise UnusableFile(_reason(error)) from None
        except StepError as error:
            raise UnusableFile(f"cannot be read: {error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise UnusableFile(
                f"is too large: all files together hold at most {MAX_FILE_BYTES >> 20} MiB"
            )
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise UnusableFile("is not UTF-8 text; save it as UTF-8") from None
        if "\0" in text or text.startswith("\ufeff"):
            raise UnusableFile("holds a NUL character or a byte order mark; remove it")
        return text

    def _bytes(self, name: bytes) -> bytes:
        with open_root(self._folder) as root, open_parent(root, name) as (parent, last):
            descriptor = os.open(last, OPEN_FILE, dir_fd=parent)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EISDIR, "")
                return file.read(self._left + 1)


def _is_beneath(name: str) -> bool:
    try:
        parts = os.fsencode(name).split(b"/")
    except UnicodeEncodeError:
        return False
    return b"\0" not in name.encode() and not {b"", b".", b".."} & set(parts)


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist"
        case errno.ELOOP:
            return "is a link; put a copy there"
        case errno.ENOTDIR:
            return "is behind a link, or behind what is no directory"
        case errno.EISDIR | errno.ENXIO:
            return "is not a regular file"
        case _:
            return f"cannot be read: {error.strerror}"
