"""A request as templates see it: `headers`, `query` and `body`.

- A JSON object is the body itself. A list is found by its indices, a single value is `body.value`,
  null or nothing is empty.
- A body that is not JSON is `body.raw`, if it is text.
- Refused: deeply nested or oversized JSON, repeated keys, and text that cannot be stored.
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
"""The maximum number of values in a body; ordinary JSON of a megabyte has fewer."""

# Credentials, which are never passed to a run.
SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


class BadBody(ValueError):
    """The body can be neither stored nor passed on; the text says why, for the log."""


class Values:
    """A scope of plain values for templates."""

    __slots__ = ("_values",)

    def __init__(self, values: JsonObject) -> None:
        self._values = values

    def lookup(self, path: Sequence[str]) -> JsonValue | Missing:
        """Return the value at `path`, or MISSING."""
        return walk(self._values.get(path[0], MISSING), path[1:])


def request_values(
    headers: Headers, query: Headers, body: JsonObject, hidden: Collection[str] = ()
) -> Values:
    """Return a request for templates; repeated headers are joined as HTTP specifies.

    Headers with credentials and the headers in `hidden` are left out.
    """
    joined: dict[str, JsonValue] = {}
    for raw, value in headers:
        name = raw.lower()
        if name not in SECRET_HEADERS and name not in hidden:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return Values({"headers": joined, "query": dict(query), "body": body})


def read_body(data: bytes) -> JsonObject:
    """Return the body of a request for templates, or raise BadBody."""
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
        raise BadBody("contains a NUL character")
    if text.startswith("\ufeff"):
        raise BadBody("starts with a byte order mark")
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
