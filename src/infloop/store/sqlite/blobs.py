"""Large texts, stored once by hash.

A text over 64 KiB inside a JSON value is taken out before the value is stored: its place becomes
null, and place, hash and length go into a column of their own. What a user writes can therefore
never be mistaken for a reference. A text is stored in parts of equal length in characters, so a
page is found without reading what is before it, and no page splits a character.
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
"""Bytes from which a text is taken out of the value it is in."""

STILL_LARGE = 1 << 20
"""Bytes from which, after that, whole members of the value are taken out as JSON."""

_PART_CHARACTERS = 64 << 10

Step: TypeAlias = str | int


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """Where a stored text belongs in a value, and how it is to be read."""

    place: tuple[Step, ...]
    hash: str
    characters: int
    form: Literal["text", "json"] = "text"


class Parted(msgspec.Struct, frozen=True):
    """A value without its large texts, the references to them, and the texts by hash."""

    value: JsonValue
    references: list[Reference]
    texts: dict[str, str]


_references = msgspec.json.Decoder(list[Reference])


def encode_references(references: list[Reference]) -> str | None:
    """Return the column that remembers `references`."""
    return compact_json(references) if references else None


def decode_references(column: str) -> list[Reference]:
    """Return what `encode_references` wrote."""
    return _references.decode(column)


def take_out(value: JsonValue) -> Parted:
    """Return `value` (which is changed) without its large texts.

    If it is still very large after that, its large members are taken out whole.
    """
    root: JsonObject = {"value": value}
    parted = Parted(None, [], {})
    for holder, key, place, text in _large_texts(root):
        _remember(parted, place[1:], text, "text")
        holder[key] = None
    value = root["value"]
    if isinstance(value, dict) and len(to_json(value)) > STILL_LARGE:
        for name, member in value.items():
            data = to_json(member)
            if len(data) > LARGE:
                _remember(parted, (name,), data.decode(), "json")
                value[name] = None
    return msgspec.structs.replace(parted, value=value)


def put_back(
    value: JsonValue, references: list[Reference], read: Callable[[Reference], str]
) -> JsonValue:
    """Return `value` (which is changed) with every referenced text in its place."""
    root: JsonObject = {"value": value}
    for reference in reversed(references):  # members taken out whole hold places of texts
        text = read(reference)
        holder: Any = root
        *way, key = ("value", *reference.place)
        for step in way:
            holder = holder[step]
        holder[key] = msgspec.json.decode(text) if reference.form == "json" else text
    return root["value"]


def _remember(
    parted: Parted, place: tuple[Step, ...], text: str, form: Literal["text", "json"]
) -> None:
    name = hashlib.sha256(text.encode()).hexdigest()
    parted.references.append(Reference(place, name, len(text), form))
    parted.texts[name] = text


def _large_texts(root: JsonObject) -> Iterator[tuple[Any, Step, tuple[Step, ...], str]]:
    """Return each large text with the object or list that holds it, its key there, its place."""
    # Walks without recursion: a value may be nested deeper than Python's stack.
    waiting: list[tuple[Any, tuple[Step, ...]]] = [(root, ())]
    while waiting:
        holder, place = waiting.pop()
        for key, member in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(member, dict | list):
                # A scope has thousands of small members; what is deeper is not measured again.
                if len(place) != 1 or len(to_json(member)) > LARGE:
                    waiting.append((member, (*place, key)))
            elif isinstance(member, str) and len(member.encode()) > LARGE:
                yield holder, key, (*place, key), member


def store_texts(connection: sqlite3.Connection, run: int, texts: Mapping[str, str]) -> None:
    """Store each text unless it is there already, and note that the run uses it."""
    for name, text in texts.items():
        added = connection.execute(
            "INSERT OR IGNORE INTO blob (hash, characters) VALUES (?, ?)", (name, len(text))
        ).rowcount
        if added:
            _store_parts(connection, name, text)
        connection.execute("INSERT OR IGNORE INTO blob_use (run, hash) VALUES (?, ?)", (run, name))


def _store_parts(connection: sqlite3.Connection, name: str, text: str) -> None:
    for number, start in enumerate(range(0, len(text), _PART_CHARACTERS)):
        part = text[start : start + _PART_CHARACTERS].encode()
        connection.execute("INSERT INTO blob_part VALUES (?, ?, ?)", (name, number, pack(part)))


def whole_texts(connection: sqlite3.Connection) -> Callable[[Reference], str]:
    """Return the reader for `put_back` that restores everything."""
    return lambda reference: read_page(connection, reference.hash, 0, reference.characters).text


def read_page(connection: sqlite3.Connection, name: str, offset: int, limit: int) -> TextPage:
    """Return `limit` characters of a stored text from `offset` on, reading only what holds them."""
    total = _length(connection, name)
    start = min(max(offset, 0), total)
    end = min(start + max(limit, 0), total)
    first = start // _PART_CHARACTERS
    parts = connection.execute(
        "SELECT body FROM blob_part WHERE hash = ? AND number BETWEEN ? AND ? ORDER BY number",
        (name, first, end // _PART_CHARACTERS),
    )
    text = "".join(unpack(body).decode() for (body,) in parts)
    skipped = first * _PART_CHARACTERS
    return TextPage(text[start - skipped : end - skipped], start, total)


def cut_page(text: str, offset: int, limit: int) -> TextPage:
    """Return the same page of a text that is at hand."""
    start = min(max(offset, 0), len(text))
    return TextPage(text[start : start + max(limit, 0)], start, len(text))


def _length(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT characters FROM blob WHERE hash = ?", (name,)).fetchone()
    if row is None:
        raise NotFound(f"no stored text has the hash {name!r}")
    length: int = row[0]
    return length
