"""Tools for the files of a workspace.

paths        which paths are accepted, by how they are written
files        the files, opened beneath the descriptor of the workspace
tool         what the tools have in common
read         `fs_read`
write        `fs_write`
list         `fs_list`
search       `fs_search`
edit         `fs_edit`
apply_patch  `apply_patch`
patch        the format of a patch, and what it makes of a text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infloop.tools.base import ToolFamily
from infloop.tools.workspace.apply_patch import ApplyPatch
from infloop.tools.workspace.edit import Edit
from infloop.tools.workspace.files import Workspace, open_workspace
from infloop.tools.workspace.list import List
from infloop.tools.workspace.read import Read
from infloop.tools.workspace.search import Search
from infloop.tools.workspace.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.tools.base import Tool
    from infloop.tools.workspace.tool import FileTool

__all__ = ["TOOLS", "Workspace", "WorkspaceTools", "open_workspace"]

TOOLS: tuple[type[FileTool[Any]], ...] = (Read, Write, List, Search, Edit, ApplyPatch)


class WorkspaceTools(ToolFamily):
    """The tools for one workspace, which belongs to the caller.

    A search leaves out the files for which `may_read` is false: it names no files, so no rule about
    a file decides about it.
    """

    def __init__(
        self, workspace: Workspace, may_read: Callable[[str], bool] = lambda path: True
    ) -> None:
        self._tools = tuple(tool(workspace, may_read) for tool in TOOLS)

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools."""
        return self._tools
