"""The directory of another installation: its files by kind, read without trusting it.

No link is followed, neither to a file nor to a folder. Only regular files are read, and only up to
a size. What cannot be read is reported, and the rest is not affected.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.errors import UsageError
from infloop.model.reading import MAX_FILE_BYTES
from infloop.workspace.beneath import OPEN_FILE, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind: TypeAlias = Literal["plugin", "provider", "connection", "workflow", "trigger", "run"]

# In the order in which they are imported: a trigger names a plugin and a workflow.
FOLDERS: tuple[tuple[Kind, str], ...] = (
    ("plugin", "webhook-plugins"),
    ("plugin", "plugins"),
    ("provider", "providers"),
    ("connection", "connections"),
    ("workflow", "workflows"),
    ("workflow", "workflows/library"),
    ("trigger", "triggers"),
)
RUNS = "runs"
"""A folder with one folder for each workflow."""

MAX_RECORD_BYTES = 256 << 20
MAX_FILES = 20_000
"""How many files of one folder are read."""


class SourceFile(msgspec.Struct, frozen=True):
    """A file of an installation; without `data` it cannot be read, and `problem` says why."""

    kind: Kind
    folder: str
    name: str
    data: bytes = b""
    problem: str = ""

    @property
    def path(self) -> str:
        """Where it is in the installation, as text."""
        return _text(f"{self.folder}/{self.name}" if self.name else self.folder)


def installation_files(directory: Path) -> Iterator[SourceFile]:
    """Yield the files of an installation, one after the other. Blocks.

    Raises UsageError if the directory cannot be read, or is no installation.
    """
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{str(directory)!r} cannot be read: {error.strerror}") from None
    try:
        known = [RUNS, *(folder for _, folder in FOLDERS if "/" not in folder)]
        if set(known).isdisjoint(_names(root)):
            raise UsageError(
                f"{str(directory)!r} is not an installation: it has none of the folders "
                f"{', '.join(sorted(known))}"
            )
        for kind, folder in FOLDERS:
            yield from _files(root, kind, folder)
        for folder in _run_folders(root):
            yield from _files(root, "run", folder)
    finally:
        os.close(root)


def _names(directory: int) -> list[str]:
    return sorted(os.listdir(directory))


def _run_folders(root: int) -> Iterator[str]:
    try:
        with open_directory(root, RUNS.encode()) as opened:
            names = _names(opened)
    except FileNotFoundError:
        return
    except OSError:
        yield RUNS  # `_files` says what is wrong with it
        return
    yield from (f"{RUNS}/{name}" for name in names if not name.startswith("."))


def _files(root: int, kind: Kind, folder: str) -> Iterator[SourceFile]:
    try:
        with open_directory(root, os.fsencode(folder)) as opened:
            names = [name for name in _names(opened) if _is_meant(folder, name)]
            for name in names[:MAX_FILES]:
                yield _file(opened, kind, folder, name)
            if len(names) > MAX_FILES:
                problem = f"has more than {MAX_FILES} files; the others were not read"
                yield SourceFile(kind, folder, "", problem=problem)
    except FileNotFoundError:
        return
    except OSError as error:
        yield SourceFile(kind, folder, "", problem=_reason(error))


def _is_meant(folder: str, name: str) -> bool:
    """Leave out hidden and temporary files, and the folders that are read by themselves."""
    nested = {other for _, other in FOLDERS}
    return (
        not name.startswith(".") and not name.endswith(".tmp") and f"{folder}/{name}" not in nested
    )


def _file(folder: int, kind: Kind, where: str, name: str) -> SourceFile:
    if not name.endswith(".json"):
        return SourceFile(kind, where, name, problem="is not a JSON file")
    limit = MAX_RECORD_BYTES if kind == "run" else MAX_FILE_BYTES
    try:
        descriptor = os.open(name, OPEN_FILE, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = file.read(limit + 1) if is_regular else b""
    except OSError as error:
        return SourceFile(kind, where, name, problem=_reason(error))
    if not is_regular:
        return SourceFile(kind, where, name, problem="is not a regular file")
    if len(data) > limit:
        return SourceFile(kind, where, name, problem=f"is larger than {limit >> 20} MiB")
    return SourceFile(kind, where, name, data)


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ELOOP:
            return "is a link, which is not followed; copy what it leads to"
        case errno.ENOTDIR:
            return "is a link or a file, not a folder"
        case errno.ENXIO | errno.EISDIR:
            return "is not a regular file"
        case _:
            return f"cannot be read: {error.strerror}"


def _text(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")
