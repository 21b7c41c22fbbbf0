"""Reads a JSON object from bytes, within limits.

Files that are too large or too deep, duplicate keys, and text that cannot be stored are refused
before the content is interpreted.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from infloop.errors import Problem
from infloop.model.problems import place_of, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.model.problems import Report
    from infloop.model.values import JsonObject

MAX_FILE_BYTES = 5 << 20
MAX_DEPTH = 64
MAX_VALUES = 500_000

# The range that 64-bit readers and the journal can store.
LOWEST, HIGHEST = -(2**63), 2**64 - 1


class _WithDuplicate(dict[str, Any]):
    """An object in which a key occurred more than once."""

    duplicate: str = ""


def read_object(data: bytes, report: Report) -> JsonObject | None:
    """Return the JSON object in `data`, or None if it cannot be used at all."""
    if len(data) > MAX_FILE_BYTES:
        report.error(
            "file",
            f"larger than {MAX_FILE_BYTES >> 20} MiB",
            "split it into subworkflows, or keep long texts in other files",
        )
        return None
    value = _decode(data, report)
    if value is None:
        return None
    if not within_bounds(value, report, escapes=b"\\u" in data):
        return None
    if not isinstance(value, dict):
        report.error("file", f"expected a JSON object, got {short_repr(value)}")
        return None
    return value


def load_json(text: str) -> Any:
    """Return the JSON value in `text`; check it with `within_bounds` before you use it.

    Raises JSONDecodeError, ValueError for a number with thousands of digits, and RecursionError.
    """
    return json.loads(text, object_pairs_hook=_object)


def repeats_a_key(value: object) -> bool:
    """Say whether an object of a value from `load_json` had a key more than once."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _WithDuplicate):
            return True
        if isinstance(one, dict | list):
            waiting.extend(one.values() if isinstance(one, dict) else one)
    return False


def within_bounds(
    value: Any, report: Report, *, escapes: bool, max_values: int = MAX_VALUES
) -> bool:
    """Report what JSON allows and infloop does not; return whether `value` can be used at all.

    A duplicate key is reported, and the value can still be used. `escapes` says whether the source
    contained `\\u`; strings are checked only then.
    """
    inspection = _Inspection(report, escapes=escapes, max_values=max_values)
    container = value if isinstance(value, dict | list) else [value]
    return inspection.passes(container, ()) and not inspection.unusable


def _decode(data: bytes, report: Report) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        report.error("file", f"not UTF-8 text (byte {error.start})", "save the file as UTF-8")
        return None
    if text.startswith("\ufeff"):
        report.error("file", "begins with a byte order mark", "save the file as UTF-8 without BOM")
        return None
    try:
        value = load_json(text)
    except RecursionError:
        _too_deep(report)
        return None
    except json.JSONDecodeError as error:
        message = f"not JSON: line {error.lineno} column {error.colno}: {error.msg}"
        report.add(Problem("file", message, line=error.lineno, column=error.colno))
        return None
    except ValueError as error:  # a number with thousands of digits
        report.error("file", f"not JSON: {error}")
        return None
    if value is None:
        report.error("file", "expected a JSON object, got null")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    marked = _WithDuplicate(made)
    marked.duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return marked


def _too_deep(report: Report) -> None:
    report.error(
        "file",
        f"nested deeper than {MAX_DEPTH} levels",
        "a container costs two levels; move the inner part into a subworkflow",
    )


class _Inspection:
    """Finds what JSON allows and infloop does not."""

    def __init__(self, report: Report, *, escapes: bool, max_values: int) -> None:
        self._report = report
        self._max_values = max_values
        # Strings that cannot be stored come only from \\u escapes; few files have any.
        self._escapes = escapes
        self._values = 0
        self.unusable = False

    def passes(self, value: dict[str, Any] | list[Any], path: tuple[str | int, ...]) -> bool:
        """Report what is wrong inside `value`; return False if checking must stop."""
        self._values += len(value)
        if len(path) >= MAX_DEPTH:
            _too_deep(self._report)
            return False
        if self._values > self._max_values:
            self._report.error(
                "file", f"holds more than {self._max_values} values", "split it into subworkflows"
            )
            return False
        if isinstance(value, list):
            return self._members(enumerate(value), path)
        if isinstance(value, _WithDuplicate):
            self._report.error(
                place_of(path) or "file",
                f"the key {value.duplicate!r} occurs more than once in one object",
                "keep one of them; JSON readers differ in which one they use",
            )
        if self._escapes:
            for key in value:
                self._text(key, path)
        return self._members(value.items(), path)

    def _members(
        self, members: Iterable[tuple[str | int, Any]], path: tuple[str | int, ...]
    ) -> bool:
        for key, value in members:
            if isinstance(value, str):
                if self._escapes:
                    self._text(value, (*path, key))
            elif isinstance(value, dict | list):
                if not self.passes(value, (*path, key)):
                    return False
            elif isinstance(value, float):
                if not math.isfinite(value):
                    self._refuse((*path, key), "not a finite number", "write a plain number")
            elif isinstance(value, int) and not LOWEST <= value <= HIGHEST:
                self._refuse((*path, key), "a number of more than 64 bits", "write it as text")
        return True

    def _text(self, text: str, path: tuple[str | int, ...]) -> None:
        if "\0" in text:
            self._refuse(path, "holds a NUL character (\\u0000)", "remove it")
        if any("\ud800" <= char <= "\udfff" for char in text):
            self._refuse(path, "holds half of a surrogate pair (\\ud800)", "remove it")

    def _refuse(self, path: tuple[str | int, ...], message: str, hint: str) -> None:
        """Report a value that can be neither stored nor passed on."""
        self.unusable = True
        self._report.error(place_of(path) or "file", message, hint)
