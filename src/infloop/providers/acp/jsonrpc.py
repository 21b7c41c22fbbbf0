"""JSON-RPC 2.0 with one message per line: parses untrusted messages and writes our own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.providers.json_lines import as_count, as_object, as_str, json_object, one_line

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

Id: TypeAlias = int | str

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
MAX_ID_CHARS = 200
MAX_REASON_CHARS = 1_000


class Call(NamedTuple):
    """A request, or without an id a notification."""

    id: Id | None
    method: str
    params: JsonObject


class Reply(NamedTuple):
    """The reply to a request of ours: a result or an error."""

    id: int
    result: object
    error: str | None
    code: int


def read_message(line: Line) -> Call | Reply | None:
    """Return the message in a line, or None."""
    message = json_object(line)
    if message is None:
        return None
    number, method = message.get("id"), message.get("method")
    if isinstance(method, str):
        caller = _id(number)
        if caller is None and number is not None:
            return None
        return Call(caller, method, as_object(message.get("params")))
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    if message.get("error") is None:
        return Reply(number, message.get("result"), None, 0)
    error = as_object(message.get("error"))
    code = error.get("code")
    return Reply(number, None, _reason(error), -as_count(-code) if isinstance(code, int) else 0)


def call(number: int, method: str, params: JsonObject) -> bytes:
    """Return a request."""
    return _line({"id": number, "method": method, "params": params})


def notify(method: str, params: JsonObject) -> bytes:
    """Return a notification."""
    return _line({"method": method, "params": params})


def reply(to: Id, result: JsonObject) -> bytes:
    """Return the reply to a request."""
    return _line({"id": to, "result": result})


def refuse(to: Id, code: int, reason: str) -> bytes:
    """Return the reply to a request that failed or was refused."""
    return _line({"id": to, "error": {"code": code, "message": reason}})


def _id(value: object) -> Id | None:
    """Return a valid id of a request, or None."""
    if isinstance(value, str):
        return value if len(value) <= MAX_ID_CHARS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _reason(error: JsonObject) -> str:
    """Return the message of an error; many programs put the reason into its data."""
    message = as_str(error.get("message"))
    data = error.get("data")
    details = as_str(data) or as_str(as_object(data).get("details"))
    reason = ": ".join(filter(None, (message, details)))
    return one_line(reason, MAX_REASON_CHARS) or "it gave no reason"


def _line(message: JsonObject) -> bytes:
    text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
