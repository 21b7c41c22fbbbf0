"""Tool `fs_search`: finds lines that match a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.model.patterns import BadPattern, compile_pattern
from infloop.tools.base import Arguments, ToolError
from infloop.tools.workspace.paths import TOP, directory_path
from infloop.tools.workspace.tool import FileTool, reading
from infloop.watch.globs import GlobSet
from infloop.watch.patterns import BadGlob

if TYPE_CHECKING:
    from collections.abc import Iterator

    import re2

    from infloop.model.capabilities import Need
    from infloop.workspace.threads import Stop

MAX_RESULTS = 1_000
MAX_SEEN = 500_000
MAX_FILES = 50_000
MAX_BYTES = 512 << 20
MAX_SEARCHED_FILE_BYTES = 2 << 20
MAX_LINE_CHARS = 300
_STOPPED = "[stopped: too many files; name a directory or a glob]"
_SKIPPED = frozenset({".git", ".hg", ".svn"})
_SNIFFED_BYTES = 8 << 10


class SearchArguments(Arguments, frozen=True):
    pattern: Annotated[
        str, Meta(min_length=1, description="A regular expression (RE2); `^` and `$` are at lines.")
    ]
    path: Annotated[str, Meta(description="The directory to search in.")] = TOP
    glob: Annotated[str, Meta(description="Only these files, such as `*.py` or `src/**`.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_RESULTS, description="How many lines at most.")] = 100


class Search(FileTool[SearchArguments]):
    name = "fs_search"
    description = (
        "Find the lines of the workspace's files that match a regular expression. Each is printed "
        "as `path:line: text`. Links, `.git` and files that are not text are skipped."
    )
    arguments = SearchArguments

    def needs(self, arguments: SearchArguments) -> list[Need]:
        """Need to read the directory."""
        return [reading(directory_path(arguments.path))]

    def summary(self, arguments: SearchArguments) -> str:
        """Return what is searched, and where."""
        return f"{arguments.pattern!r} in {directory_path(arguments.path)}"

    def perform(self, arguments: SearchArguments, stop: Stop) -> str:
        """Search file by file, in the order of their paths."""
        try:
            pattern = compile_pattern(f"(?m:{arguments.pattern})")
            globs = GlobSet([arguments.glob]) if arguments.glob else None
        except BadPattern as error:
            raise ToolError("pattern-invalid", f"the pattern cannot be used: {error}") from None
        except BadGlob as error:
            raise ToolError("pattern-invalid", f"the glob cannot be used: {error}") from None
        found: list[str] = []
        left_files, left_bytes = MAX_FILES, MAX_BYTES
        for seen, path in enumerate(self.workspace.walk(arguments.path, skip=_SKIPPED)):
            stop.check()
            if seen == MAX_SEEN:
                found.append(_STOPPED)
                break
            if (globs and not globs.matches(path)) or not self.may_read(path):
                continue
            data = self._data(path)
            left_files, left_bytes = left_files - 1, left_bytes - len(data)
            if left_files < 0 or left_bytes < 0:
                found.append(_STOPPED)
                break
            found += _matches(pattern, data, path, arguments.limit + 1 - len(found))
            if len(found) > arguments.limit:
                found[-1] = f"[more than {arguments.limit} lines match]"
                break
        return "\n".join(found) or "[nothing found]"

    def _data(self, path: str) -> bytes:
        """Return the contents of a text file; nothing for what is skipped."""
        try:
            data = self.workspace.read(path, MAX_SEARCHED_FILE_BYTES).data
        except ToolError:  # too large, not readable, or exchanged meanwhile
            return b""
        return b"" if b"\0" in data[:_SNIFFED_BYTES] else data


def _matches(pattern: re2._Regexp, data: bytes, path: str, most: int) -> Iterator[str]:
    """Yield the lines on which a match begins."""
    at, number, counted = 0, 1, 0
    while most > 0 and at < len(data) and (match := pattern.search(data, at)):
        begin = data.rfind(b"\n", 0, match.start()) + 1
        if begin >= len(data):  # after the last line
            return
        end = data.find(b"\n", match.start())
        end = len(data) if end < 0 else end
        number += data.count(b"\n", counted, begin)
        counted = begin
        line = data[begin:end].decode("utf-8", "replace").rstrip("\r")
        shown = line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"
        yield f"{path}:{number}: {shown}"
        at, most = end + 1, most - 1
