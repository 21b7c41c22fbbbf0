"""Tools for commands and processes, which run in a sandbox.

children       how commands are started, and what starting them needs
command        `shell`
processes      processes that keep running between calls
process_tools  `process_start`, `process_poll`, `process_write`, `process_kill`, `process_list`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infloop.tools.base import ToolFamily
from infloop.tools.shell.children import Commands
from infloop.tools.shell.command import Shell
from infloop.tools.shell.process_tools import (
    ProcessKill,
    ProcessList,
    ProcessPoll,
    ProcessStart,
    ProcessTool,
    ProcessWrite,
)
from infloop.tools.shell.processes import Processes

if TYPE_CHECKING:
    from infloop.tools.base import Tool

__all__ = ["PROCESS_TOOLS", "TOOLS", "Commands", "ShellTools"]

PROCESS_TOOLS: tuple[type[ProcessTool[Any]], ...] = (
    ProcessStart,
    ProcessPoll,
    ProcessWrite,
    ProcessKill,
    ProcessList,
)
TOOLS: tuple[type[Tool[Any]], ...] = (Shell, *PROCESS_TOOLS)


class ShellTools(ToolFamily):
    """The tools for commands in one workspace."""

    def __init__(self, commands: Commands) -> None:
        self._processes = Processes(commands)
        others = (tool(commands, self._processes) for tool in PROCESS_TOOLS)
        self._tools = (Shell(commands), *others)

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools."""
        return self._tools

    async def close(self) -> None:
        """End the processes."""
        await self._processes.close()
