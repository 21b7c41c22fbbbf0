"""Directories of this machine, for choosing one; files are not listed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.errors import UsageError
from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from infloop.application.resources import FileResources

MAX_ENTRIES = 5_000


class FolderEntry(Model, kw_only=True):
    """A directory in a directory."""

    name: str
    is_dir: bool


class FolderList(Model, kw_only=True):
    """A directory, its parent, and the directories in it; `truncated` if there are too many."""

    path: str
    parent: str | None
    entries: list[FolderEntry]
    truncated: bool


class Folders:
    """Lists directories."""

    def __init__(self, resources: FileResources) -> None:
        self._home = resources.folders.home

    async def list(self, path: str | None, *, show_hidden: bool = False) -> FolderList:
        """List the directories in a directory; without one, in the home directory."""
        chosen = self._home if path is None else Path(path)
        if not chosen.is_absolute() or "\0" in str(chosen):
            raise UsageError(f"{short_repr(path)} is not the full path of a directory")
        return await asyncio.to_thread(_listed, chosen, show_hidden=show_hidden)


def _listed(folder: Path, *, show_hidden: bool) -> FolderList:
    full = Path(os.path.normpath(folder))
    try:
        with os.scandir(full) as found:
            names = sorted(entry.name for entry in found if _is_folder(entry))
    except OSError as error:
        raise UsageError(f"cannot list {short_repr(str(full))}: {error.strerror}") from None
    named = [name for name in names if show_hidden or not name.startswith(".")]
    return FolderList(
        path=_text(str(full)),
        parent=None if full.parent == full else _text(str(full.parent)),
        entries=[FolderEntry(name=_text(name), is_dir=True) for name in named[:MAX_ENTRIES]],
        truncated=len(named) > MAX_ENTRIES,
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _text(name: str) -> str:
    """Return a name as text; bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
