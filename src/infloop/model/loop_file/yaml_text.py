"""Writes JSON values as YAML that `tree` reads back as the same values.

Only what every YAML reader understands alike is written: blocks, plain words, double quotes, and
literal blocks for texts with several lines.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from infloop.model.loop_file.tree import meaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.values import JsonObject, JsonValue

# Our own fixed patterns: no nested repeats.
_PLAIN = re.compile(r"[A-Za-z0-9_./$~][A-Za-z0-9_./$~ @%+=,()'*^<>;&|-]*", re.ASCII)  # noqa: TID251
# What YAML 1.1 readers take for something else than text.
_OLD_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
_OLD_NUMBER = re.compile(r"[-+0-9.][0-9_.:eExXoO+-]*", re.ASCII)  # noqa: TID251
_UNPRINTABLE = re.compile(  # noqa: TID251
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
)
_INDENT = "  "


class Inline(dict[str, "JsonValue"]):
    """A small mapping of single values that is written on one line: `{x: 10, y: 20}`."""


def yaml_text(content: JsonObject) -> str:
    """Return a mapping as a YAML document; its values contain no NaN and no infinity."""
    return "".join(f"{line}\n" for line in _mapping(content, ""))


def _mapping(content: JsonObject, indent: str) -> Iterator[str]:
    for key, value in content.items():
        yield from _member(f"{indent}{_key(key)}:", value, indent)


def _member(head: str, value: JsonValue, indent: str) -> Iterator[str]:
    """Yield the lines of a value after `head`, which is a key or a dash."""
    if isinstance(value, Inline) and value:
        parts = (f"{_key(key)}: {_inline(one)}" for key, one in value.items())
        yield f"{head} {{{', '.join(parts)}}}"
    elif isinstance(value, dict) and value:
        if head.endswith("-"):  # the first key stands beside the dash
            first, *rest = _mapping(value, f"{indent}{_INDENT}")
            yield f"{head} {first.lstrip()}"
            yield from rest
        else:
            yield head
            yield from _mapping(value, f"{indent}{_INDENT}")
    elif isinstance(value, list) and value:
        yield head
        for item in value:
            yield from _member(f"{indent}{_INDENT}-", item, f"{indent}{_INDENT}")
    elif isinstance(value, str) and _is_block(value):
        yield f"{head} |{_chomping(value)}"
        inner = f"{indent}{_INDENT}"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{inner}{line}" if line else ""
    elif value is None:
        yield f"{head} null"
    else:
        yield f"{head} {_scalar(value)}"


def _is_block(text: str) -> bool:
    """Say whether a text can be a literal block: nothing in it would be lost or invisible."""
    if "\n" not in text or _UNPRINTABLE.search(text):
        return False
    lines = text.removesuffix("\n").split("\n")
    # The first line sets the indentation, and empty lines at the end would need another chomping.
    return bool(lines[0].strip() and not lines[0][0].isspace() and lines[-1].strip())


def _chomping(text: str) -> str:
    return "" if text.endswith("\n") else "-"


def _key(key: str) -> str:
    return key if _is_plain(key, is_key=True) else _quoted(key)


def _scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return json.dumps(value)


def _inline(value: JsonValue) -> str:
    """Return a single value inside braces, where a comma or bracket would end it."""
    if isinstance(value, str) and not value.isidentifier():
        return _quoted(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return _scalar(value)


def _is_plain(text: str, *, is_key: bool = False) -> bool:
    """Say whether a text means itself without quotes, to readers of YAML 1.1 as well."""
    if not _PLAIN.fullmatch(text) or text.endswith(" ") or len(text) > 1000:
        return False
    if text.lower() in _OLD_WORDS or _OLD_NUMBER.fullmatch(text):
        return is_key and text.isalpha()
    try:
        return is_key or meaning(text) == text
    except ValueError:
        return False


def _quoted(text: str) -> str:
    """Return a text in quotes. JSON's escapes are YAML's too, except for surrogates."""
    if '"' in text and text.isprintable():
        doubled = text.replace("'", "''")
        return f"'{doubled}'"
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
