"""Large texts, stored once by hash.

- A text over 64 KiB inside a JSON value is replaced by null before the value is stored. Its path,
  hash and length go into a separate column, so no value that a user writes can be mistaken for a
  reference.
- A text is stored in chunks of equal length in characters, so a page of it is read without the rest
  and splits no character.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from infloop.errors import NotFound
from infloop.model.values import compact_json
from infloop.store.interfaces.run_log import TextPage
from infloop.store.sqlite.compression import pack, unpack
from infloop.store.sqlite.encoding import to_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    from infloop.model.values import JsonObject, JsonValue

LARGE = 64 << 10
"""A text with more bytes is extracted from its value."""

LARGE_VALUE = 1 << 20
"""If a value has more bytes after that, its large members are extracted as JSON."""

_CHUNK_CHARACTERS = 64 << 10

Key: TypeAlias = str | int


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """A stored text: its path inside the value, and whether it is the text itself or JSON."""

    path: tuple[Key, ...]
    hash: str
    characters: int
    form: Literal["text", "json"] = "text"


class Extracted(msgspec.Struct, frozen=True):
    """A value without its large texts, the references to them, and the texts by hash."""

    value: JsonValue
    references: list[Reference]
    texts: dict[str, str]


_references = msgspec.json.Decoder(list[Reference])


def encode_references(references: list[Reference]) -> str | None:
    """Return the column for `references`."""
    return compact_json(references) if references else None


def decode_references(column: str) -> list[Reference]:
    """Return the references in a column."""
    return _references.decode(column)


def extract_texts(value: JsonValue) -> Extracted:
    """Extract the large texts from `value`, which is changed.

    If the value is still large after that, its large members are extracted whole.
    """
    root: JsonObject = {"value": value}
    extracted = Extracted(None, [], {})
    for holder, key, path, text in _large_texts(root):
        _add(extracted, path[1:], text, "text")
        holder[key] = None
    value = root["value"]
    if isinstance(value, dict) and len(to_json(value)) > LARGE_VALUE:
        for name, member in value.items():
            data = to_json(member)
            if len(data) > LARGE:
                _add(extracted, (name,), data.decode(), "json")
                value[name] = None
    return msgspec.structs.replace(extracted, value=value)


def restore_texts(
    value: JsonValue, references: list[Reference], read: Callable[[Reference], str]
) -> JsonValue:
    """Return `value`, which is changed, with every referenced text restored."""
    root: JsonObject = {"value": value}
    # In reverse order: a member that was extracted whole contains the paths of extracted texts.
    for reference in reversed(references):
        text = read(reference)
        holder: Any = root
        *parents, key = ("value", *reference.path)
        for parent in parents:
            holder = holder[parent]
        holder[key] = msgspec.json.decode(text) if reference.form == "json" else text
    return root["value"]


def _add(
    extracted: Extracted, path: tuple[Key, ...], text: str, form: Literal["text", "json"]
) -> None:
    name = hashlib.sha256(text.encode()).hexdigest()
    extracted.references.append(Reference(path, name, len(text), form))
    extracted.texts[name] = text


def _large_texts(root: JsonObject) -> Iterator[tuple[Any, Key, tuple[Key, ...], str]]:
    """Return each large text with the object or list that holds it, its key there, its path."""
    # Without recursion: a value may be nested deeper than Python's stack.
    unvisited: list[tuple[Any, tuple[Key, ...]]] = [(root, ())]
    while unvisited:
        holder, path = unvisited.pop()
        for key, member in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(member, dict | list):
                unvisited.append((member, (*path, key)))
            elif isinstance(member, str) and _is_large(member):
                yield holder, key, (*path, key), member


def _is_large(text: str) -> bool:
    # A character has at most four bytes, so most texts need not be encoded.
    return len(text) > LARGE // 4 and len(text.encode()) > LARGE


def store_texts(connection: sqlite3.Connection, run: int, texts: Mapping[str, str]) -> None:
    """Store each text unless it is stored already, and note that the run uses it."""
    for name, text in texts.items():
        added = connection.execute(
            "INSERT OR IGNORE INTO blob (hash, characters) VALUES (?, ?)", (name, len(text))
        ).rowcount
        if added:
            _store_chunks(connection, name, text)
        connection.execute("INSERT OR IGNORE INTO blob_use (run, hash) VALUES (?, ?)", (run, name))


def _store_chunks(connection: sqlite3.Connection, name: str, text: str) -> None:
    for number, start in enumerate(range(0, len(text), _CHUNK_CHARACTERS)):
        chunk = text[start : start + _CHUNK_CHARACTERS].encode()
        connection.execute("INSERT INTO blob_part VALUES (?, ?, ?)", (name, number, pack(chunk)))


def text_reader(connection: sqlite3.Connection) -> Callable[[Reference], str]:
    """Return what reads a whole text, for `restore_texts`."""
    return lambda reference: read_page(connection, reference.hash, 0, reference.characters).text


def read_page(connection: sqlite3.Connection, name: str, offset: int, limit: int) -> TextPage:
    """Return `limit` characters of a stored text from `offset` on, reading only their chunks."""
    total = _length(connection, name)
    start = min(max(offset, 0), total)
    end = min(start + max(limit, 0), total)
    first = start // _CHUNK_CHARACTERS
    chunks = connection.execute(
        "SELECT body FROM blob_part WHERE hash = ? AND number BETWEEN ? AND ? ORDER BY number",
        (name, first, end // _CHUNK_CHARACTERS),
    )
    text = "".join(unpack(body).decode() for (body,) in chunks)
    skipped = first * _CHUNK_CHARACTERS
    return TextPage(text[start - skipped : end - skipped], start, total)


def slice_page(text: str, offset: int, limit: int) -> TextPage:
    """Return the same page of a text in memory."""
    start = min(max(offset, 0), len(text))
    return TextPage(text[start : start + max(limit, 0)], start, len(text))


def _length(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT characters FROM blob WHERE hash = ?", (name,)).fetchone()
    if row is None:
        raise NotFound(f"no stored text has the hash {name!r}")
    length: int = row[0]
    return length
