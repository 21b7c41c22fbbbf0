"""Reads files within limits, and folders of such files."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

from infloop.errors import Problem, UsageError
from infloop.model.reading import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Made = TypeVar("Made")
FolderState: TypeAlias = frozenset[tuple[str, int, int, int]]


def read_bounded(path: Path) -> bytes:
    """Return the content of a regular file, at most one byte more than the size limit.

    A device or a pipe is refused before it is read, so that it cannot block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{str(path)!r} is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or error}") from error


def find_in_folder(folder: Path, name: str) -> Path | None:
    """Return the file `name` of a folder, or None.

    A link that leads out of the folder is refused: an id must reach only files in the folder.
    """
    path = folder / name
    if not os.path.lexists(path):
        return None
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise UsageError(f"{str(path)!r} is a dangling link; remove it") from error
    if not real.is_relative_to(folder.resolve()):
        raise UsageError(f"{str(path)!r} leads out of its folder; copy the file instead")
    return path


def json_files(folder: Path, suffixes: tuple[str, ...] = (".json",)) -> list[Path]:
    """Return the JSON files of a folder by name; a missing folder has none.

    With other `suffixes`, the files that end in one of them.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(suffixes))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UsageError(f"cannot list {str(folder)!r}: {error}") from error


def folder_state(folder: Path, suffixes: tuple[str, ...] = (".json",)) -> FolderState | None:
    """Return a value that changes when the folder's JSON files change, without opening them.

    With other `suffixes`, when files that end in one of them change. None means that the folder
    cannot be listed; it equals no other state.
    """
    try:
        with os.scandir(folder) as entries:
            return frozenset(_file_state(one) for one in entries if one.name.endswith(suffixes))
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def file_stats(path: str) -> tuple[int, ...] | None:
    """Return a value that changes when a file changes, without opening it; None without a file."""
    try:
        found = os.stat(path)  # noqa: PTH116  (called several times for every webhook request)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _file_state(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    try:
        found = entry.stat()
    except OSError:  # a dangling link
        return entry.name, 0, 0, 0
    # st_ctime_ns shows that a file has become readable.
    return entry.name, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_folder(
    folder: Path, parse: Callable[[bytes], tuple[Made | None, list[Problem]]]
) -> tuple[list[Made], list[Problem]]:
    """Return what the files of a folder define, and all their problems.

    An invalid file is left out and reported; the others are not affected.
    """
    made: list[Made] = []
    problems: list[Problem] = []
    for path in json_files(folder):
        try:
            one, found = parse(read_bounded(path))
        except UsageError as error:
            one, found = None, [Problem("file", str(error))]
        problems.extend(in_file(path.name, found))
        if one is not None:
            made.append(one)
    return made, problems


def in_file(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with the file name added to their place.

    What they are about is not in the file that is looked at, so it is left out.
    """
    return [
        replace(problem, place=f"{name}: {problem.place}", node_id=None, edge=None, field="")
        for problem in problems
    ]
