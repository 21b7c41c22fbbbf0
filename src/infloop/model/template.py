"""`{{path}}` references.

- A template is parsed once, when the workflow is loaded, and rendered in one pass. A value that
  contains braces is not expanded again.
- There is no evaluation. Text between braces that is not a plain dotted path stays as it is, and
  so does `${{path}}`, which other tools use. `\\{{path}}` is the text `{{path}}`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.model.values import JsonValue

# Our own fixed patterns: linear, no nested repeats.
_REFERENCE = re.compile(  # noqa: TID251
    r"(?<![$\\])\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}", re.ASCII
)
_ESCAPED = re.compile(r"\\(\{\{\s*[A-Za-z0-9_.-]+\s*\}\})", re.ASCII)  # noqa: TID251

MAX_RENDERED_CHARS = 16 << 20


class TooLong(ValueError):
    """The rendered text is longer than the limit."""


class Missing:
    """The type of `MISSING`: a scope has no value at a path."""


MISSING = Missing()


class Scope(Protocol):
    """Looks up references."""

    def lookup(self, path: Sequence[str]) -> JsonValue | Missing:
        """Return the value under `path`, or MISSING."""


def walk(value: JsonValue | Missing, path: Sequence[str]) -> JsonValue | Missing:
    """Follow `path` through objects and lists; a list has indices and `length`."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list):
            if key == "length":
                value = len(value)
            elif key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return MISSING
        else:
            return MISSING
    return MISSING if value is None else value


class Template:
    """A text with references, ready to render."""

    __slots__ = ("_parts", "references", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        parts: list[Any] = _REFERENCE.split(source) if "{{" in source else [source]
        if "\\{{" in source:
            parts[::2] = [_ESCAPED.sub(r"\1", literal) for literal in parts[::2]]
        # split() alternates: literal, reference, literal, reference, …, literal
        references = [tuple(reference.split(".")) for reference in parts[1::2]]
        parts[1::2] = references
        self._parts: tuple[str | tuple[str, ...], ...] = tuple(parts)
        self.references: tuple[tuple[str, ...], ...] = tuple(references)

    def render(
        self,
        scope: Scope,
        missing: Callable[[str], None],
        quote: Callable[[str], str] | None = None,
    ) -> str:
        """Return the text with every reference replaced.

        A reference that does not resolve is empty and reported to `missing`. `quote` transforms
        the text of each value before it is inserted.
        """
        if not self.references:
            return str(self._parts[0])
        out: list[str] = []
        size = 0
        for part in self._parts:
            if not part:
                continue
            if type(part) is str:
                text = part
            else:
                value = scope.lookup(part)
                if type(value) is str:  # nearly always
                    text = value if quote is None else quote(value)
                elif isinstance(value, Missing):
                    missing(".".join(part))
                    text = ""
                else:
                    text = as_text(value) if quote is None else quote(as_text(value))
            out.append(text)
            size += len(text)
            if size > MAX_RENDERED_CHARS:
                raise TooLong(
                    f"the text grew past {MAX_RENDERED_CHARS} characters while its references "
                    "were filled in; pass a file instead of the whole value"
                )
        return "".join(out)

    def pieces(self) -> tuple[str | tuple[str, ...], ...]:
        """Return literals and references in order, for callers that insert values themselves."""
        return self._parts
