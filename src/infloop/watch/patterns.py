"""File patterns: which files below a directory count. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.patterns import BadPattern, compile_pattern, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_GLOBS = 100
_LONGEST_GLOB = 500
IGNORED_DIRECTORIES = frozenset((".git", ".hg", ".svn", ".infloop-worktrees"))
"""Directories of version control and our own, in which no file counts."""

# Temporary files of editors.
_EDITOR_FILES = ("**/*~", "**/.#*", "**/*.sw?", "**/4913", "**/.*.tmp")


class BadGlob(ValueError):
    """A file pattern is invalid; the text says why."""


class FileFilter:
    """Decides which files of a directory count."""

    def __init__(self, globs: Sequence[str], ignore: Sequence[str] = ()) -> None:
        if len(globs) + len(ignore) > _MAX_GLOBS:
            raise BadGlob(f"more than {_MAX_GLOBS} patterns; join some of them")
        ignored = (f"**/{name}/**" for name in sorted(IGNORED_DIRECTORIES))
        try:
            self._wanted = compile_pattern(_any_of(globs))
            self._ignored = compile_pattern(_any_of((*ignored, *_EDITOR_FILES, *ignore)))
        except BadPattern as error:
            raise BadGlob(
                f"the patterns are too complex: {error}; use fewer or shorter ones"
            ) from None

    def counts(self, path: str) -> bool:
        """Tell whether a change of the file at `path`, relative to the directory, counts."""
        try:
            wanted = self._wanted.fullmatch(path) is not None
            return wanted and self._ignored.fullmatch(path) is None
        except UnicodeError:  # a name that is not valid text
            return False


def _any_of(globs: Sequence[str]) -> str:
    return "(?s:" + "|".join(map(_pattern, globs)) + ")"


def _pattern(glob: str) -> str:
    """Return a glob as a regular expression: `*` stays within a directory, `**` does not."""
    if not glob or len(glob) > _LONGEST_GLOB or glob.startswith("/"):
        raise BadGlob(f"{glob[:60]!r} is not a pattern for files below the directory")
    if ".." in glob.split("/") or any(char in glob for char in "{}\\\0"):
        raise BadGlob(f"{glob!r}: no '..', braces or backslashes; write two patterns instead")
    return (
        "/".join(map(_segment, glob.split("/"))).replace("\0/", "(?:[^/]+/)*").replace("\0", ".+")
    )


def _segment(text: str) -> str:
    if text == "**":
        return "\0"
    if "**" in text:
        raise BadGlob(f"{text!r}: '**' must be alone between slashes")
    made, rest = "", text
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "[":
            chosen, closed, rest = rest.partition("]")
            made += _choice(chosen, closed, text)
        else:
            made += quote(char)
    return made


def _choice(chosen: str, closed: str, text: str) -> str:
    """Return `[a-z]` or `[!a-z]` as a regular expression."""
    inside = chosen.removeprefix("!")
    if not closed or not inside or not all(char.isalnum() or char in "-_." for char in inside):
        raise BadGlob(f"{text!r}: write a choice as [abc], [a-z] or [!abc]")
    return f"[^/{inside}]" if chosen != inside else f"[{inside}]"
