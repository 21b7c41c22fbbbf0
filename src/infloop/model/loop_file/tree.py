"""Reads YAML into a tree whose parts know their line and column.

The language is small on purpose, so that a file means the same to every reader and costs linear
time and memory:

- YAML 1.2 core schema: `true`, `null`, `12` and `0.5` are values; `on`, `yes` and `no` are texts.
- No tags, anchors, aliases, merge keys or directives; no duplicate keys; one document.
- The limits of a JSON file: bytes, values, depth, and text that can be stored.

A part keeps its source text, because a field for text takes `8080` and `1.10` as they are written.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from infloop.errors import Problem
from infloop.model.problems import short_repr
from infloop.model.reading import HIGHEST, LOWEST, MAX_FILE_BYTES, MAX_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.problems import Report
    from infloop.model.values import JsonValue

# A branch of a parallel takes three levels here and two in JSON.
MAX_DEPTH = 128

# Our own fixed patterns: no nested repeats.
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)  # noqa: TID251
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)  # noqa: TID251
_FLOAT = re.compile(  # noqa: TID251
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")  # noqa: TID251
# Control characters, half surrogates, and what only some YAML readers take as a line break.
_REFUSED_CHARACTER = re.compile(  # noqa: TID251
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
_MAX_NUMBER_CHARS = 400
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Mark(NamedTuple):
    """A position: line and column from 1, and the number of characters before it."""

    line: int
    column: int
    offset: int


class Scalar(msgspec.Struct, frozen=True):
    """A single value. `text` is what is written, `value` what it means without a type."""

    text: str
    value: JsonValue
    start: Mark
    end: int


class Items(msgspec.Struct):
    """A list."""

    items: list[Tree]
    start: Mark
    end: int


class Member(NamedTuple):
    """A value of a mapping, and where its key is."""

    key: Mark
    value: Tree


class Fields(msgspec.Struct):
    """A mapping. Keys are texts, as they are written."""

    members: dict[str, Member]
    start: Mark
    end: int


Tree: TypeAlias = Scalar | Items | Fields


class _Refused(Exception):
    """The file cannot be used at all; a position, the reason and the way out."""

    def __init__(self, mark: Mark, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.problem = Problem("file", message, hint, line=mark.line, column=mark.column)


def read_tree(data: bytes, report: Report) -> tuple[str, Fields | None]:
    """Return the text of a YAML file and its mapping; None if it cannot be used at all."""
    if len(data) > MAX_FILE_BYTES:
        report.error(
            "file",
            f"larger than {MAX_FILE_BYTES >> 20} MiB",
            "split it into subworkflows, or keep long texts in other files",
        )
        return "", None
    text = ""
    try:
        text = _decode(data)
        tree = _Builder(text, report).document()
    except _Refused as refused:
        report.add(refused.problem)
        return text, None
    if not isinstance(tree, Fields):
        mark = tree.start if tree is not None else Mark(1, 1, 0)
        got = "nothing" if tree is None else short_repr(plain(tree))
        hint = "a loop file begins with `name:` and `steps:`"
        report.add(
            Problem("file", f"expected keys, got {got}", hint, line=mark.line, column=mark.column)
        )
        return text, None
    return text, tree


def plain(tree: Tree) -> JsonValue:
    """Return the value of a part without its positions."""
    if isinstance(tree, Scalar):
        return tree.value
    if isinstance(tree, Items):
        return [plain(item) for item in tree.items]
    return {key: plain(member.value) for key, member in tree.members.items()}


def meaning(text: str) -> JsonValue:
    """Return what an unquoted scalar means in the core schema. Raises ValueError for no number."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if not (first.isdecimal() or first in "+-."):
        return text
    if _INTEGER.fullmatch(text):
        return _checked(int(text)) if len(text) <= _MAX_NUMBER_CHARS else _too_large()
    if _OTHER_BASE.fullmatch(text):
        return _checked(int(text, 0)) if len(text) <= _MAX_NUMBER_CHARS else _too_large()
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("not a finite number")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("not a finite number")
    return text


def is_storable(text: str) -> bool:
    """Say whether a text has no half of a surrogate pair, which an escape can write."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _checked(number: int) -> int:
    return number if LOWEST <= number <= HIGHEST else _too_large()


def _too_large() -> int:
    raise ValueError("a number of more than 64 bits")


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        mark = Mark(line, column, 0)
        raise _Refused(mark, "not UTF-8 text", "save the file as UTF-8") from None
    if text.startswith("\ufeff"):
        raise _Refused(
            Mark(1, 1, 0), "begins with a byte order mark", "save the file as UTF-8 without BOM"
        )
    found = _REFUSED_CHARACTER.search(text)
    if found is not None:
        code = f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}"
        hint = f'remove it, or write it as "{code}" in double quotes'
        if found[0] == "\0":
            raise _Refused(mark_at(text, found.start()), "holds a NUL character", "remove it")
        raise _Refused(mark_at(text, found.start()), f"holds the invisible character {code}", hint)
    return text


def mark_at(text: str, index: int) -> Mark:
    """Return the position of a character."""
    return Mark(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index), index)


class _Builder:
    """Builds the tree from the events of the YAML parser, without recursion."""

    def __init__(self, text: str, report: Report) -> None:
        self._text = text
        self._report = report
        self._values = 0

    def document(self) -> Tree | None:
        """Return the only document of the file; None for an empty file."""
        import yaml  # type: ignore[import-untyped]

        loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
        try:
            return self._build(yaml.parse(self._text, Loader=loader), yaml)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except yaml.YAMLError as error:
            raise _Refused(Mark(1, 1, 0), f"not YAML: {error}") from None

    def _build(self, events: Iterator[Any], yaml: Any) -> Tree | None:
        root: Tree | None = None
        documents = 0
        # The open containers, each with the key whose value comes next.
        parents: list[Items | Fields] = []
        keys: list[tuple[str, Mark] | None] = []
        ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
        for event in events:
            kind = type(event)
            if kind in ends:
                parents.pop().end = event.end_mark.index
                keys.pop()
                continue
            if kind is yaml.DocumentStartEvent:
                documents += 1
                self._refuse_document(event, documents)
                continue
            if kind is yaml.AliasEvent:
                raise self._no_references(event)
            if not isinstance(event, yaml.NodeEvent):
                continue
            self._refuse_properties(event)
            key = keys[-1] if keys else None
            if parents and isinstance(parents[-1], Fields) and key is None:
                keys[-1] = self._key(event, yaml)
                continue
            made = self._made(event, yaml)
            if not parents:
                root = made
            elif isinstance(parents[-1], Items):
                parents[-1].items.append(made)
            else:
                assert key is not None
                self._put(parents[-1], *key, made)
                keys[-1] = None
            if not isinstance(made, Scalar):
                parents.append(made)
                keys.append(None)
                if len(parents) > MAX_DEPTH:
                    raise _Refused(
                        made.start,
                        f"nested deeper than {MAX_DEPTH} levels",
                        "move the inner part into a workflow of its own, and `call` it",
                    )
        if isinstance(root, Scalar) and root.text == "":
            return None
        return root

    def _made(self, event: Any, yaml: Any) -> Tree:
        self._values += 1
        start = _mark(event.start_mark)
        if self._values > MAX_VALUES:
            raise _Refused(start, f"holds more than {MAX_VALUES} values", "split it into workflows")
        if isinstance(event, yaml.MappingStartEvent):
            return Fields({}, start, start.offset)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items([], start, start.offset)
        text: str = event.value
        end = event.end_mark.index
        if "\0" in text or not is_storable(text):
            self._error(start, "holds a character that cannot be stored", "remove it")
            return Scalar("", "", start, end)
        if not event.implicit[0]:
            return Scalar(text, text, start, end)
        try:
            return Scalar(text, meaning(text), start, end)
        except ValueError as error:
            self._error(start, f"{short_repr(text)}: {error}", "put it in quotes if it is a text")
            return Scalar(text, text, start, end)

    def _key(self, event: Any, yaml: Any) -> tuple[str, Mark]:
        start = _mark(event.start_mark)
        if not isinstance(event, yaml.ScalarEvent):
            braces = self._text.startswith("{{", start.offset - 1)
            hint = 'put a value that begins with {{ in quotes: "{{inputs.task}}"'
            raise _Refused(
                start,
                "a reference without quotes" if braces else "a key must be a plain text",
                hint if braces else "use a word as the key",
            )
        if event.implicit[0] and event.value == "<<":
            raise _Refused(start, "merge keys (<<) are not used in loop files", "write the keys")
        return event.value, start

    def _put(self, parent: Fields, key: str, mark: Mark, value: Tree) -> None:
        if key in parent.members:
            first = parent.members[key].key.line
            self._error(mark, f"the key {short_repr(key)} is already in line {first}", "keep one")
            return
        parent.members[key] = Member(mark, value)

    def _refuse_document(self, event: Any, number: int) -> None:
        start = _mark(event.start_mark)
        if event.version is not None or event.tags:
            raise _Refused(start, "directives (%) are not used in loop files", "remove the line")
        if number == 1 and self._text.lstrip().startswith("%"):
            raise _Refused(start, "directives (%) are not used in loop files", "remove the line")
        if number > 1:
            raise _Refused(start, "holds a second document", "one file is one workflow")

    def _refuse_properties(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._no_references(event)
        if event.tag is not None:
            raise _Refused(
                _mark(event.start_mark),
                f"tags ({short_repr(event.tag)}) are not used in loop files",
                "put a text that begins with ! in quotes",
            )

    def _no_references(self, event: Any) -> _Refused:
        return _Refused(
            _mark(event.start_mark),
            "anchors and aliases (& and *) are not used in loop files",
            "put a text that begins with & or * in quotes",
        )

    def _error(self, mark: Mark, message: str, hint: str) -> None:
        self._report.add(Problem("file", message, hint, line=mark.line, column=mark.column))

    def _syntax(self, error: Any) -> _Refused:
        """Explain a mistake of syntax."""
        mark = _mark(error.problem_mark or error.context_mark)
        said = str(error.problem or error.context or "cannot be read")
        while_doing = str(error.context or "")
        here = self._text[mark.offset : mark.offset + 1]
        if here == "\t":
            return _Refused(mark, "a tab cannot indent a line in YAML", "use spaces")
        if "alias" in while_doing or "anchor" in while_doing:
            hint = "put a text that begins with & or * in quotes"
            return _Refused(mark, f"not YAML: {said}", hint)
        hint = ""
        if "mapping values are not allowed" in said:
            hint = "put a text that holds ': ' in quotes"
        elif here in "@`%" and here:
            hint = f"put a text that begins with {here} in quotes"
        elif "expected" in said:
            hint = "check the indentation and the brackets of the lines before"
        return _Refused(mark, f"not YAML: {said}", hint)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1, mark.index)
