"""Directories of the server's machine, for who chooses one; files are not listed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from fastapi import Query

from infloop.errors import UsageError
from infloop.model.problems import short_repr
from infloop.web.routing import Parts, Shape, router

ROUTER = router("folders")

MOST = 5_000


class FolderEntry(Shape):
    """A directory in a directory."""

    name: str
    is_dir: bool = True


class FolderList(Shape):
    """A directory, the one it is in, and those in it; the first of them if there are too many."""

    path: str
    parent: str | None
    entries: list[FolderEntry]
    truncated: bool = False


@ROUTER.get("/api/fs/list")
async def list_folder(
    parts: Parts,
    path: Annotated[str | None, Query(max_length=4_096)] = None,
    show_hidden: Annotated[bool, Query(alias="showHidden")] = False,
) -> FolderList:
    """List the directories in a directory; without one, in the home directory."""
    chosen = parts.places.home if path is None else Path(path)
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
        entries=[FolderEntry(name=_text(name)) for name in named[:MOST]],
        truncated=len(named) > MOST,
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _text(name: str) -> str:
    """Return a name as text; bytes that are no text are shown as such."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
