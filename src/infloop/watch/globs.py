"""Patterns of `devloop.toml`: the dialect of the Rust crate `globset`, with its defaults. Pure.

- `*` and `?` also match `/`. `**` between slashes matches any number of directories.
- `{a,b}`, `[a-z]`, `[!a]`; a backslash makes the next character literal.
- A pattern must match the whole path relative to the root. Letter case counts.
- A pattern that ends with `/` means everything below that directory; a leading `./` means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.patterns import BadPattern, compile_pattern, quote
from infloop.watch.patterns import BadGlob

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_GLOB = 1_000
_DEEPEST_CHOICE = 10


class GlobSet:
    """Patterns, any of which may match."""

    def __init__(self, globs: Sequence[str]) -> None:
        try:
            self._compiled = compile_pattern("(?s:" + "|".join(map(translate, globs)) + ")")
        except BadPattern as error:
            raise BadGlob(f"the pattern cannot be used: {error}") from None

    def matches(self, path: str) -> bool:
        """Tell whether a path relative to the root matches."""
        try:
            return self._compiled.fullmatch(path) is not None
        except UnicodeError:  # a name that is not valid text
            return False


def translate(glob: str) -> str:
    """Return a glob as a regular expression for the whole path."""
    if not glob or len(glob) > _LONGEST_GLOB:
        raise BadGlob("a pattern has 1 to 1000 characters")
    text = normalised(glob)
    if text in ("", "."):
        return ".*"
    if text.endswith("/") and not text.endswith("**/"):
        text += "**"
    return _Translation(text).result()


def normalised(glob: str) -> str:
    """Return a glob without `.` and doubled slashes, which have no meaning in it."""
    text = glob
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return text.replace("/./", "/")


class _Translation:
    """Reads a glob from left to right."""

    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._depth = 0
        self._made: list[str] = []

    def result(self) -> str:
        while self._at < len(self._glob):
            self._one()
        if self._depth:
            raise BadGlob("unclosed alternate group; missing '}'")
        return "".join(self._made)

    def _one(self) -> None:
        char = self._glob[self._at]
        if char == "*":
            self._stars()
            return
        self._at += 1
        if char == "?":
            self._made.append(".")
        elif char == "[":
            self._choice()
        elif char == "{":
            self._depth += 1
            if self._depth > _DEEPEST_CHOICE:
                raise BadGlob("alternate groups are nested too deeply")
            self._made.append("(?:")
        elif char == "}" and self._depth:
            self._depth -= 1
            self._made.append(")")
        elif char == "}":
            raise BadGlob("unopened alternate group; missing '{'")
        elif char == "," and self._depth:
            self._made.append("|")
        elif char == "\\":
            if self._at >= len(self._glob):
                raise BadGlob("dangling '\\'")
            self._made.append(quote(self._glob[self._at]))
            self._at += 1
        else:
            self._made.append(quote(char))

    def _stars(self) -> None:
        """Translate `*`, or `**` if it stands alone between slashes."""
        begin = self._at
        while self._glob[self._at : self._at + 1] == "*":
            self._at += 1
        before = self._glob[begin - 1 : begin] if begin else "/"
        after = self._glob[self._at : self._at + 1]
        if self._at - begin != 2 or before not in "/{," or after not in ("", "/", "}", ","):
            self._made.append(".*")
        elif after == "/":
            self._at += 1
            self._made.append("(?:.*/)?")  # also no directory at all
        else:
            self._made.append(".+" if begin else ".*")

    def _choice(self) -> None:
        """Translate `[abc]`, `[a-z]` or `[!abc]`; `]` directly after the bracket is literal."""
        negated = self._glob[self._at : self._at + 1] in ("!", "^")
        begin = self._at + negated
        end = self._glob.find("]", begin + 1)
        if end < 0:
            raise BadGlob("unclosed character class; missing ']'")
        inside = self._glob[begin:end]
        self._at = end + 1
        parts, index = [], 0
        while index < len(inside):
            first = inside[index]
            if inside[index + 1 : index + 2] == "-" and index + 2 < len(inside):
                last = inside[index + 2]
                if first > last:
                    raise BadGlob(f"invalid range; '{first}' > '{last}'")
                parts.append(f"{quote(first)}-{quote(last)}")
                index += 3
            else:
                parts.append(quote(first))
                index += 1
        self._made.append(f"[{'^' if negated else ''}{''.join(parts)}]")
