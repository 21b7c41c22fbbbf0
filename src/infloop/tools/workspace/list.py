"""Tool `fs_list`: lists a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.tools.base import Arguments
from infloop.tools.workspace.paths import TOP, directory_path
from infloop.tools.workspace.tool import FileTool, reading

if TYPE_CHECKING:
    from infloop.model.capabilities import Need
    from infloop.tools.workspace.files import Entry
    from infloop.workspace.threads import Stop

MAX_ENTRIES = 1_000


class ListArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The directory; `.` is the workspace itself.")] = TOP


class List(FileTool[ListArguments]):
    name = "fs_list"
    aliases = ("file_list",)
    description = (
        "List a directory of the workspace, sorted. A directory ends with `/`, a link with `@`."
    )
    arguments = ListArguments

    def needs(self, arguments: ListArguments) -> list[Need]:
        """Need to read the directory."""
        return [reading(directory_path(arguments.path))]

    def perform(self, arguments: ListArguments, stop: Stop) -> str:
        """Return one name a line."""
        entries = self.workspace.entries(arguments.path)
        lines = [_shown(each) for each in entries[:MAX_ENTRIES]]
        if len(entries) > MAX_ENTRIES:
            lines.append(f"[{len(entries) - MAX_ENTRIES} more]")
        return "\n".join(lines) or "[empty]"


def _shown(entry: Entry) -> str:
    """Return a name on one line, with a mark for its kind."""
    name = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    name = name if name.isprintable() else repr(name)
    return name + {"directory": "/", "link": "@"}.get(entry.kind, "")
