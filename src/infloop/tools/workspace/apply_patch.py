"""Tool `apply_patch`: changes several files, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.tools.base import Arguments, ToolError
from infloop.tools.workspace.files import Change
from infloop.tools.workspace.patch import AddFile, DeleteFile, parse_patch, patched
from infloop.tools.workspace.paths import written_path
from infloop.tools.workspace.tool import FileTool, as_text, reading, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.model.capabilities import Need
    from infloop.tools.workspace.patch import FileOperation
    from infloop.workspace.threads import Stop

MAX_PATCHED_BYTES = 2 << 20
"""The largest file that is changed by hunks."""


class PatchArguments(Arguments, frozen=True):
    patch: Annotated[
        str, Meta(description="From the line `*** Begin Patch` to the line `*** End Patch`.")
    ]


class ApplyPatch(FileTool[PatchArguments]):
    name = "apply_patch"
    description = (
        "Add, change, move and delete files of the workspace, all of them or none. Between "
        "`*** Begin Patch` and `*** End Patch` come `*** Add File: PATH` with lines that begin "
        "with `+`; `*** Update File: PATH`, optionally `*** Move to: PATH`, and hunks that begin "
        "with `@@` and have lines that begin with ` `, `-` or `+`; `*** Delete File: PATH`. The "
        "lines that stay and go must be in the file exactly so."
    )
    arguments = PatchArguments

    def needs(self, arguments: PatchArguments) -> list[Need]:
        """Need to write every file, and to read those that are changed."""
        return list(_needs(_checked(parse_patch(arguments.patch))))

    def perform(self, arguments: PatchArguments, stop: Stop) -> str:
        """Make all new texts first, and then change the files."""
        changes: list[Change] = []
        lines = []
        for operation in _checked(parse_patch(arguments.patch)):
            stop.check()
            changes += self._changes(operation)
            lines.append(_described(operation))
        self.workspace.change(changes)
        return "\n".join(lines)

    def _changes(self, operation: FileOperation) -> list[Change]:
        path = operation.path
        if isinstance(operation, AddFile):
            return [Change(path, operation.text.encode())]
        if isinstance(operation, DeleteFile):
            return [Change(path, None, self.workspace.read(path))]
        before = self.workspace.read(path, MAX_PATCHED_BYTES)
        data = before.data
        if operation.hunks:
            data = patched(as_text(data, path), operation.hunks, path).encode()
        if operation.move_to is not None:
            moved = Change(operation.move_to, data, like=before.status)
            return [moved, Change(path, None, before)]
        return [Change(path, data, before)]


def _checked(operations: Sequence[FileOperation]) -> list[FileOperation]:
    """Return the operations with the paths as they are opened; no path may be there twice."""
    checked: list[FileOperation] = []
    for each in operations:
        if isinstance(each, AddFile | DeleteFile) or each.move_to is None:
            checked.append(each._replace(path=written_path(each.path)))
        else:
            move_to = written_path(each.move_to)
            checked.append(each._replace(path=written_path(each.path), move_to=move_to))
    seen: set[str] = set()
    for path in (path for each in checked for path in _paths(each)):
        if path in seen:
            raise ToolError("patch-invalid", f"{path!r} is in the patch twice")
        seen.add(path)
    return checked


def _paths(operation: FileOperation) -> list[str]:
    if isinstance(operation, AddFile | DeleteFile) or operation.move_to is None:
        return [operation.path]
    return [operation.path, operation.move_to]


def _needs(operations: Sequence[FileOperation]) -> Iterator[Need]:
    for each in operations:
        if not isinstance(each, AddFile):
            yield reading(each.path)
        yield from map(writing, _paths(each))


def _described(operation: FileOperation) -> str:
    if isinstance(operation, AddFile):
        return f"added {operation.path}"
    if isinstance(operation, DeleteFile):
        return f"deleted {operation.path}"
    if operation.move_to is not None:
        return f"moved {operation.path} to {operation.move_to}"
    return f"changed {operation.path}"
