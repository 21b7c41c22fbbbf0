"""Tool `fs_edit`: replaces a piece of text in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.tools.base import Arguments, ToolError
from infloop.tools.workspace.files import Change
from infloop.tools.workspace.paths import written_path
from infloop.tools.workspace.tool import FileTool, as_text, reading, writing

if TYPE_CHECKING:
    from infloop.model.capabilities import Need
    from infloop.workspace.threads import Stop


class EditArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    old: Annotated[str, Meta(min_length=1, description="The exact text that is replaced.")]
    new: Annotated[str, Meta(description="The text that takes its place.")]
    all: Annotated[bool, Meta(description="Replace it wherever it is in the file.")] = False


class Edit(FileTool[EditArguments]):
    name = "fs_edit"
    description = (
        "Replace a piece of text in a file of the workspace. The text must be in the file exactly "
        "once, unless `all` is set."
    )
    arguments = EditArguments

    def needs(self, arguments: EditArguments) -> list[Need]:
        """Need to read the file too: an answer tells whether it has the text."""
        path = written_path(arguments.path)
        return [reading(path), writing(path)]

    def perform(self, arguments: EditArguments, stop: Stop) -> str:
        """Replace the text if the file has not changed meanwhile."""
        path, old, new = written_path(arguments.path), arguments.old, arguments.new
        before = self.workspace.read(path)
        text = as_text(before.data, path)
        found = text.count(old)
        if not found:
            raise ToolError("text-not-found", f"{path!r} does not have this text: read it again")
        if found > 1 and not arguments.all:
            raise ToolError(
                "text-not-unique",
                f"{path!r} has this text {found} times: give more of it, or set `all`",
            )
        self.workspace.change([Change(path, text.replace(old, new).encode(), before)])
        return f"replaced {found} {'place' if found == 1 else 'places'} in {path}"
