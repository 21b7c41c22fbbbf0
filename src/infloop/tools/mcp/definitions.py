"""What a server says about its tools, as a model and a person may read it.

Rules
  * A tool is called `mcp_SERVER__TOOL`, in lower case, at most 64 characters. If the name had to be
    cut, or another tool of the server has it, it ends in a hash of the original one.
  * Texts have no control characters and no invisible ones, and are cut.
  * A schema is an object, not too large, and its names and values are plain text.
  * The digest covers everything that the server said, before any of this.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NAME_CHARS = 64
MAX_TOOL_NAME_CHARS = 200
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_BYTES = 32 << 10
MAX_SCHEMA_DEPTH = 30
MAX_TOOLS = 128

_HASH_CHARS = 8
# Our own fixed pattern: no repeats.
_OTHER = re.compile(r"[^a-z0-9_-]", re.ASCII)  # noqa: TID251
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_TEXT_KEYS = frozenset(("description", "title"))


class RawTool(msgspec.Struct, frozen=True):
    """A tool in the words of its server."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """Changes with everything that the server says."""
        data = msgspec.json.encode(self, order="sorted")
        return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ToolText(msgspec.Struct, frozen=True):
    """A tool as a model sees it; `raw` is what it was made of."""

    name: str
    description: str
    schema: dict[str, Any]
    raw: RawTool


class UnusableTool(Exception):
    """A tool whose definition cannot be shown; the text says why."""


def plain_text(text: str, limit: int) -> str:
    """Return a text without characters that control a terminal or that nobody sees, cut."""
    kept = "".join(char for char in text[: 4 * limit] if char in "\n\t" or _is_visible(char))
    return kept if len(kept) <= limit else f"{kept[:limit]}…"


def _is_visible(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char) not in _INVISIBLE


def tool_texts(
    server: str, raws: Iterable[RawTool]
) -> Iterator[ToolText | tuple[str, UnusableTool]]:
    """Yield what a model sees of each tool, or the name of an unusable one and why it is."""
    taken: set[str] = set()
    for raw in sorted(raws, key=lambda one: one.name):
        try:
            text = _tool_text(server, raw, taken)
        except UnusableTool as error:
            yield plain_text(raw.name, MAX_NAME_CHARS), error
        else:
            taken.add(text.name)
            yield text


def _tool_text(server: str, raw: RawTool, taken: set[str]) -> ToolText:
    if not raw.name or len(raw.name) > MAX_TOOL_NAME_CHARS or not raw.name.isprintable():
        raise UnusableTool("its name is empty, too long, or has control characters")
    label = f"A tool of the MCP server {server!r}. What follows is text from that server:"
    description = plain_text(raw.description, MAX_DESCRIPTION_CHARS)
    return ToolText(
        _exposed_name(server, raw.name, taken), f"{label}\n{description}", _schema(raw.schema), raw
    )


def _exposed_name(server: str, tool: str, taken: set[str]) -> str:
    name = f"mcp_{server}__{_OTHER.sub('_', tool.lower())}"
    if len(name) <= MAX_NAME_CHARS and name not in taken:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH_CHARS]
    name = f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"
    if name in taken:
        raise UnusableTool("another tool has the same name")
    return name


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise UnusableTool("the schema of its arguments is not an object")
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise UnusableTool(f"the schema of its arguments is larger than {MAX_SCHEMA_BYTES} bytes")
    cleaned = _cleaned(schema, "", MAX_SCHEMA_DEPTH)
    assert isinstance(cleaned, dict)
    return cleaned


def _cleaned(value: Any, key: str, depth: int) -> Any:
    if not depth:
        raise UnusableTool("the schema of its arguments is too deep")
    if isinstance(value, dict):
        if not all(map(_is_visible, "".join(value))):
            raise UnusableTool("the schema of its arguments has control characters")
        return {name: _cleaned(inner, name, depth - 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner, "", depth - 1) for inner in value]
    if isinstance(value, str):
        if key in _TEXT_KEYS:
            return plain_text(value, MAX_DESCRIPTION_CHARS)
        if plain_text(value, len(value)) != value:
            raise UnusableTool("the schema of its arguments has control characters")
    return value
