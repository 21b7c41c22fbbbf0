"""Tool `shell`: runs a command line and waits for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.policy.command_time import time_limit
from infloop.tools.base import Arguments, Tool, ToolError
from infloop.tools.shell.children import ending, printed

if TYPE_CHECKING:
    from infloop.model.capabilities import Need
    from infloop.tools.shell.children import Commands


class ShellArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, description="The command line, for bash.")]
    timeout_ms: Annotated[int, Meta(ge=1, description="When it is ended, in milliseconds.")] = (
        60_000
    )


class Shell(Tool[ShellArguments]):
    name = "shell"
    aliases = ("shell_exec",)
    description = (
        "Run a command line with bash in the workspace and wait for it. You get its exit code and "
        "what it printed. Its input is empty. Everything that it started is ended with it."
    )
    arguments = ShellArguments

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def needs(self, arguments: ShellArguments) -> list[Need]:
        """Need to run every command of the line."""
        return self._commands.needs(checked_line(arguments.command))

    def summary(self, arguments: ShellArguments) -> str:
        """Return the line itself."""
        return arguments.command

    async def run(self, arguments: ShellArguments) -> str:
        """Run it; a failing command is a result, one that takes too long is an error."""
        limit = time_limit(arguments.timeout_ms, self._commands.max_command_ms)
        request = self._commands.request(arguments.command, limit.ms)
        result = await self._commands.sandbox.run(request)
        if result.error:
            raise ToolError("not-started", "the command could not be run", result.error)
        if result.timed_out:
            raise ToolError(
                "timed-out",
                f"the command was ended after {limit.ms} ms{limit.note}\n{printed(result)}",
            )
        return f"{ending(result)}\n{printed(result)}".rstrip("\n")


def checked_line(line: str) -> str:
    """Return a command line; raise ToolError for one that no shell takes."""
    if not line.strip():
        raise ToolError("command-is-empty", "the command is empty")
    if "\0" in line:
        raise ToolError("command-invalid", "the command has a NUL character")
    return line
