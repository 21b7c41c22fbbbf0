"""Reads one protocol message by the rules for files.

Duplicate keys, invalid text, numbers out of range and deep nesting are refused before the
protocol's library sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.model.problems import Report
from infloop.model.reading import read_object

if TYPE_CHECKING:
    from infloop.model.values import JsonObject

PARSE_ERROR = -32700


def read_message(data: bytes) -> JsonObject:
    """Return the message; raise UsageError for anything else, batches included."""
    report = Report()
    message = read_object(data, report)
    if message is None or report.failed:
        raise UsageError(f"not one JSON object: {report.problems[0].message}")
    return message


def unreadable(error: UsageError) -> JsonObject:
    """Return the error response to a message that cannot be read."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": str(error)}}
