"""Tool `fs_read`: reads a text file, or some of its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.tools.base import Arguments
from infloop.tools.workspace.paths import file_path
from infloop.tools.workspace.tool import FileTool, as_text, reading

if TYPE_CHECKING:
    from infloop.model.capabilities import Need
    from infloop.workspace.threads import Stop

MAX_CHARS = 14_000
"""How much is returned: a little less than what a model gets, so that nothing is cut out of it."""


class ReadArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    offset: Annotated[int, Meta(ge=1, description="The first line; the file begins with 1.")] = 1
    limit: Annotated[int, Meta(ge=1, description="How many lines at most.")] = 100_000


class Read(FileTool[ReadArguments]):
    name = "fs_read"
    aliases = ("file_read",)
    description = (
        "Read a text file of the workspace. Of a long file you get the first lines, and the offset "
        "at which to go on."
    )
    arguments = ReadArguments

    def needs(self, arguments: ReadArguments) -> list[Need]:
        """Need to read the file."""
        return [reading(file_path(arguments.path))]

    def perform(self, arguments: ReadArguments, stop: Stop) -> str:
        """Return whole lines, as many as a model gets."""
        path = file_path(arguments.path)
        text = as_text(self.workspace.read(path).data, path)
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        first = arguments.offset - 1
        shown = _fitting(lines[first : first + arguments.limit])
        last = first + len(shown)
        if first == 0 and last == len(lines) and len(text) <= MAX_CHARS:
            return text
        if not shown:
            return f"[{path} has {len(lines)} lines]"
        cut = "\n".join(shown)[:MAX_CHARS]
        more = f"; go on with offset {last + 1}" if last < len(lines) else ""
        return f"{cut}\n[lines {first + 1} to {last} of {len(lines)}{more}]"


def _fitting(lines: list[str]) -> list[str]:
    """Return the first lines that a model gets together, and at least one."""
    room = MAX_CHARS
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return lines[: max(1, number)]
    return lines
