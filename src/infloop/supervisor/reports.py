"""What the engine says to the surface that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from infloop.model.dev.config import BodyStyle, Hook, Process
    from infloop.model.dev.line_levels import LineLevel
    from infloop.sandbox.base import Stream

Level: TypeAlias = Literal["INFO", "WARN", "ERROR"]


class Source(NamedTuple):
    """Where a line of output comes from; lines below `level` are not shown."""

    program: str
    name: str
    body_style: BodyStyle = "plain"
    shown: bool = True
    level: LineLevel = "debug"


def source_of(name: str, spec: Process | Hook) -> Source:
    """Return the source of a process's or hook's lines."""
    output = spec.output
    program = spec.command[0].rpartition("/")[2]
    return Source(program, name, output.body_style, output.inherit, output.level)


class Surface(Protocol):
    """Shows output and messages. Texts are as children and clients sent them: not safe to print."""

    def line(self, source: Source, stream: Stream, text: str, *, complete: bool) -> None:
        """Show a line of a child; one that is not complete is the last of its stream."""

    def log(self, level: Level, message: str) -> None:
        """Show a message of the engine."""

    def box(self, message: str) -> None:
        """Show a message of a workflow in a box."""

    def status_changed(self) -> None:
        """Show the states of the processes again."""
