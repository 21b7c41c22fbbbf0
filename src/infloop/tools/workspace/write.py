"""Tool `fs_write`: creates or replaces a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.tools.base import Arguments
from infloop.tools.workspace.paths import written_path
from infloop.tools.workspace.tool import FileTool, writing

if TYPE_CHECKING:
    from infloop.model.capabilities import Need
    from infloop.workspace.threads import Stop


class WriteArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    content: Annotated[str, Meta(description="The whole new text of the file.")]


class Write(FileTool[WriteArguments]):
    name = "fs_write"
    aliases = ("file_write",)
    description = (
        "Create a file of the workspace or replace it as a whole. Missing directories are made."
    )
    arguments = WriteArguments

    def needs(self, arguments: WriteArguments) -> list[Need]:
        """Need to write the file."""
        return [writing(written_path(arguments.path))]

    def perform(self, arguments: WriteArguments, stop: Stop) -> str:
        """Write it at once."""
        data = arguments.content.encode()
        self.workspace.write_bytes(arguments.path, data)
        return f"wrote {len(data)} bytes to {written_path(arguments.path)}"
