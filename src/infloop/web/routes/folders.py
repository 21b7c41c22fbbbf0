"""Directories of the server's machine, for choosing one; files are not listed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from infloop.application.folders import FolderList
from infloop.web.routing import App, router

ROUTER = router("folders")


@ROUTER.get("/api/fs/list")
async def list_folder(
    app: App,
    path: Annotated[str | None, Query(max_length=4_096)] = None,
    show_hidden: Annotated[bool, Query(alias="showHidden")] = False,
) -> FolderList:
    """List the directories in a directory; without one, in the home directory."""
    return await app.folders.list(path, show_hidden=show_hidden)
