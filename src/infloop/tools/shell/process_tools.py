"""Tools for processes that keep running: start, poll, write, kill, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Generic

from msgspec import Meta

from infloop.model.capabilities import Need
from infloop.tools.base import A, Arguments, Tool
from infloop.tools.shell.command import checked_line

if TYPE_CHECKING:
    from infloop.tools.shell.children import Commands
    from infloop.tools.shell.processes import Process, Processes

MAX_WAIT_MS = 60_000

Number = Annotated[int, Meta(ge=1, description="The number that `process_start` returned.")]


class ProcessTool(Tool[A], Generic[A]):
    """A tool for the processes of one agent."""

    def __init__(self, commands: Commands, processes: Processes) -> None:
        self._commands = commands
        self._processes = processes


class StartArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, description="The command line, for bash.")]


class ProcessStart(ProcessTool[StartArguments]):
    name = "process_start"
    description = (
        "Start a command line with bash in the workspace and let it run, such as a server. You get "
        "its number. At most 5 run at a time."
    )
    arguments = StartArguments

    def needs(self, arguments: StartArguments) -> list[Need]:
        """Need to run every command of the line in the background."""
        return self._commands.needs(checked_line(arguments.command), "background")

    def summary(self, arguments: StartArguments) -> str:
        """Return the line itself."""
        return arguments.command

    async def run(self, arguments: StartArguments) -> str:
        """Start it."""
        process = await self._processes.start(arguments.command)
        return f"process {process.number}: {process.state}"


class PollArguments(Arguments, frozen=True):
    process: Number
    wait_ms: Annotated[
        int, Meta(ge=0, le=MAX_WAIT_MS, description="How long to wait for output if there is none.")
    ] = 0


class ProcessPoll(ProcessTool[PollArguments]):
    name = "process_poll"
    description = "Get the state of a process, and what it has printed since you last asked."
    arguments = PollArguments

    def needs(self, arguments: PollArguments) -> list[Need]:
        """Need the process."""
        return [_using(arguments.process)]

    async def run(self, arguments: PollArguments) -> str:
        """Return its state and its output."""
        process = self._processes.get(arguments.process)
        output = await process.read(arguments.wait_ms)
        return f"process {process.number}: {process.state}\n{output}".rstrip("\n")


class WriteArguments(Arguments, frozen=True):
    process: Number
    text: Annotated[str, Meta(description="What it reads on its standard input.")]
    newline: Annotated[bool, Meta(description="Whether a line feed follows the text.")] = True
    close: Annotated[bool, Meta(description="Whether this is the end of its input.")] = False


class ProcessWrite(ProcessTool[WriteArguments]):
    name = "process_write"
    description = "Write to the standard input of a process."
    arguments = WriteArguments

    def needs(self, arguments: WriteArguments) -> list[Need]:
        """Need what the text needs as a command line: the process may be a shell."""
        text = arguments.text.strip()
        return [_using(arguments.process), *(self._commands.needs(text) if text else ())]

    def summary(self, arguments: WriteArguments) -> str:
        """Return the text, and to which process."""
        return f"process {arguments.process}: {arguments.text}"

    async def run(self, arguments: WriteArguments) -> str:
        """Hand the text over; the process reads it when it wants."""
        process = self._processes.get(arguments.process)
        data = arguments.text + ("\n" if arguments.newline else "")
        process.write(data.encode(), close=arguments.close)
        return f"wrote {len(data.encode())} bytes to process {process.number}"


class KillArguments(Arguments, frozen=True):
    process: Number


class ProcessKill(ProcessTool[KillArguments]):
    name = "process_kill"
    description = "End a process with everything that it started. You get its last output."
    arguments = KillArguments

    def needs(self, arguments: KillArguments) -> list[Need]:
        """Need the process."""
        return [_using(arguments.process)]

    async def run(self, arguments: KillArguments) -> str:
        """End it, and wait until it is gone."""
        process = self._processes.get(arguments.process)
        await process.kill()
        return f"process {process.number}: {process.state}\n{await process.read(0)}".rstrip("\n")


class ProcessListArguments(Arguments, frozen=True):
    """None."""


class ProcessList(ProcessTool[ProcessListArguments]):
    name = "process_list"
    description = "List your processes with their states; those that have ended are kept a while."
    arguments = ProcessListArguments

    def needs(self, arguments: ProcessListArguments) -> list[Need]:
        """Need nothing but to look at the agent's own processes."""
        return [Need("execute", "processes")]

    async def run(self, arguments: ProcessListArguments) -> str:
        """Return one process a line."""
        return "\n".join(map(_described, self._processes.all)) or "[no processes]"


def _using(number: int) -> Need:
    return Need("execute", f"process {number}")


def _described(process: Process) -> str:
    return f"process {process.number}: {process.state}: {process.line[:200]!r}"
