"""Replaces large texts in a value by references to blobs, and back.

A blob is a text that is stored once, by hash.

- A text over 64 KiB inside a JSON value is replaced by null before the value is stored. Its path,
  hash and length go into a separate column, so no value that a user writes can be mistaken for a
  reference.
- A text is stored in chunks of equal length in characters, so a page of it is read without the rest
  and splits no character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from infloop.model.hashes import sha256_hex
from infloop.model.values import compact_json
from infloop.store.encoding.compression import pack, unpack
from infloop.store.encoding.values import to_json
from infloop.store.interfaces.run_log import TextPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
    name = sha256_hex(text.encode())
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


def chunks(text: str) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered chunks in which a text is stored."""
    for number, start in enumerate(range(0, len(text), _CHUNK_CHARACTERS)):
        yield number, pack(text[start : start + _CHUNK_CHARACTERS].encode())


class PageRange(msgspec.Struct, frozen=True):
    """A page of a text with `total` characters: its characters, and the chunks that have them."""

    start: int
    end: int
    total: int

    @classmethod
    def of(cls, offset: int, limit: int, total: int) -> PageRange:
        """Return the page that `limit` characters from `offset` on are."""
        start = min(max(offset, 0), total)
        return cls(start, min(start + max(limit, 0), total), total)

    @property
    def first_chunk(self) -> int:
        """The number of the first chunk of the page."""
        return self.start // _CHUNK_CHARACTERS

    @property
    def last_chunk(self) -> int:
        """The number of the last chunk of the page."""
        return self.end // _CHUNK_CHARACTERS

    def page(self, bodies: Iterable[bytes]) -> TextPage:
        """Return the page; `bodies` are its chunks in order."""
        text = "".join(unpack(body).decode() for body in bodies)
        skipped = self.first_chunk * _CHUNK_CHARACTERS
        return TextPage(text[self.start - skipped : self.end - skipped], self.start, self.total)


def slice_page(text: str, offset: int, limit: int) -> TextPage:
    """Return the same page of a text in memory."""
    start = min(max(offset, 0), len(text))
    return TextPage(text[start : start + max(limit, 0)], start, len(text))


def encode_scope(scope: JsonObject) -> tuple[str | None, bytes, dict[str, str]]:
    """Return the columns `blobs` and `body` for a run's final scope, and its texts by hash."""
    data = to_json(scope)
    if len(data) <= LARGE:
        return None, pack(data), {}
    extracted = extract_texts(msgspec.json.decode(data))
    return (
        encode_references(extracted.references),
        pack(to_json(extracted.value)),
        extracted.texts,
    )
