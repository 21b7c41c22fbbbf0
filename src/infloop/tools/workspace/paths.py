"""Which paths the file tools accept (pure).

A path is relative to the workspace, with `/` between its names. It is refused for how it is written
before anything is opened; `files` then refuses what the file system has at that path.
"""

from __future__ import annotations

from infloop.policy.protected_paths import normalized_name
from infloop.tools.base import ToolError

TOP = "."
"""The workspace itself."""

MAX_PATH_CHARS = 4_000
_FIRST_PRINTABLE, _DELETE = " ", "\x7f"
_OWN_PREFIX = ".infloop"
_NEVER_WRITTEN = frozenset({".git", "infloop.toml"})


def file_path(text: str) -> str:
    """Return the path of a file or directory below the workspace; raise ToolError."""
    path = directory_path(text)
    if path == TOP:
        raise ToolError("path-invalid", f"{text!r} is the workspace itself: name a file in it")
    return path


def directory_path(text: str) -> str:
    """Return a path as `file_path` does, or `.` for the workspace itself."""
    if not text.strip():
        raise ToolError("path-is-empty", "the path is empty")
    shown = repr(text[:200])
    if len(text) > MAX_PATH_CHARS:
        raise ToolError("path-invalid", f"the path is longer than {MAX_PATH_CHARS} characters")
    if text.startswith("/"):
        raise ToolError(
            "path-is-absolute", f"{shown} is absolute: give a path relative to the workspace"
        )
    if "\\" in text or text[1:2] == ":":
        raise ToolError("path-invalid", f"{shown} is not a path here: write `/` between names")
    if any(char < _FIRST_PRINTABLE or char == _DELETE for char in text) or not _is_valid(text):
        raise ToolError("path-invalid", f"{shown} has a character that no path has here")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolError("path-has-parent", f"{shown} has `..`: give the path without it")
    return "/".join(names) or TOP


def written_path(text: str) -> str:
    """Return the path of a file that may be written; raise ToolError."""
    path = file_path(text)
    for name in map(normalized_name, path.split("/")):
        if name in _NEVER_WRITTEN or name.startswith(_OWN_PREFIX):
            raise ToolError(
                "protected-path",
                f"{path[:200]!r} is not written by tools: git or infloop itself acts on it",
            )
    return path


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
