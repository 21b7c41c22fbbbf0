"""Bytes from a client to one message of the protocol, read by the rules for files.

A key that occurs twice, text that nothing can hold, numbers of no use and nesting without end are
refused before the protocol's library sees them.
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
    """Return the message; raise UsageError if it is none. Several at once are none."""
    report = Report()
    message = read_object(data, report)
    if message is None or report.failed:
        raise UsageError(f"not one JSON object: {report.problems[0].message}")
    return message


def unreadable(error: UsageError) -> JsonObject:
    """Return the answer to what could not be read."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": str(error)}}
