"""A request as templates see it: `headers`, `query` and `body`.

A body that is JSON is what it says: an object is itself, a list is found by its indices, a single
value is `body.value`, and null or nothing is empty. A body that is no JSON is `body.raw`, if it is
text. Bombs, keys that occur twice and text that nothing can hold are refused.
"""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING

from infloop.model.problems import Report
from infloop.model.reading import load_json, within_bounds
from infloop.model.template import MISSING, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.template import Missing
    from infloop.model.values import JsonObject, JsonValue
    from infloop.triggers.signatures import Headers

MAX_VALUES = 50_000
"""How many values a body may hold; a megabyte of honest JSON has fewer."""

# They open something, so no run is given them.
SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


class BadBody(ValueError):
    """The body can be neither stored nor passed on; says why, for the log."""


class Values:
    """A scope of plain values, where templates look things up."""

    __slots__ = ("_values",)

    def __init__(self, values: JsonObject) -> None:
        self._values = values

    def lookup(self, path: Sequence[str]) -> JsonValue | Missing:
        """Return the value under `path`, or MISSING."""
        return walk(self._values.get(path[0], MISSING), path[1:])


def request_values(
    headers: Headers, query: Headers, body: JsonObject, hidden: Collection[str] = ()
) -> Values:
    """Return a request for templates; a header that occurs twice is joined as HTTP does it.

    Headers that open something are left out, and so are those that the caller names.
    """
    joined: dict[str, JsonValue] = {}
    for raw, value in headers:
        name = raw.lower()
        if name not in SECRET_HEADERS and name not in hidden:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return Values({"headers": joined, "query": dict(query), "body": body})


def read_body(data: bytes) -> JsonObject:
    """Return a request's body for templates, or raise BadBody."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadBody(f"not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        return {}
    try:
        value = load_json(text)
    except RecursionError:
        raise BadBody("nested too deep") from None
    except JSONDecodeError:
        return _raw(text)
    except ValueError as error:  # a number with thousands of digits
        raise BadBody(str(error)) from None
    report = Report()
    if not within_bounds(value, report, escapes="\\u" in text, max_values=MAX_VALUES) or (
        report.failed
    ):
        raise BadBody(str(report.problems[0]))
    return _object(value)


def _raw(text: str) -> JsonObject:
    if "\0" in text:
        raise BadBody("holds a NUL character")
    if text.startswith("\ufeff"):
        raise BadBody("begins with a byte order mark")
    return {"raw": text}


def _object(value: JsonValue) -> JsonObject:
    match value:
        case None:
            return {}
        case dict():
            return value
        case list():
            return {str(index): item for index, item in enumerate(value)}
        case _:
            return {"value": value}
