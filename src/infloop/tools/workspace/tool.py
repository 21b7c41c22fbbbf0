"""What the file tools have in common: the workspace, and what reading and writing need."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic

from infloop.model.capabilities import Need
from infloop.policy.protected_paths import protection_reason
from infloop.tools.base import A, Tool, ToolError
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.tools.workspace.files import Workspace
    from infloop.workspace.threads import Stop


class FileTool(Tool[A], Generic[A]):
    """A tool that works on the files of one workspace.

    `may_read` tells about a file that the call did not name whether its contents may be shown.
    """

    def __init__(self, workspace: Workspace, may_read: Callable[[str], bool]) -> None:
        self.workspace = workspace
        self.may_read = may_read

    async def run(self, arguments: A) -> str:
        """Do it in a thread, which has ended when this returns."""
        return await in_thread(lambda stop: self.perform(arguments, stop))

    @abstractmethod
    def perform(self, arguments: A, stop: Stop) -> str:
        """Do it; return the text for the model. Raises ToolError."""


def reading(path: str) -> Need:
    """Return what reading a path needs."""
    return Need("read", path)


def writing(path: str) -> Need:
    """Return what writing a path needs."""
    protected = protection_reason(path)
    return Need("write", path, frozenset({"protected"}) if protected else frozenset())


def as_text(data: bytes, path: str) -> str:
    """Return the text of a file; raise ToolError for one that is not text."""
    if b"\0" not in data:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    raise ToolError("not-text", f"{path[:200]!r} is not text in UTF-8")
