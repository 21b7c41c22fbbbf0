"""JSON-RPC 2.0, one message a line: a program's messages, read with suspicion, and ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.providers.json_lines import as_count, as_object, as_words, one_line, read_frame

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

Id: TypeAlias = int | str

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
LONGEST_ID = 200
LONGEST_REASON = 1_000


class Call(NamedTuple):
    """A request, or without an id a notification."""

    id: Id | None
    method: str
    params: JsonObject


class Reply(NamedTuple):
    """The answer to a request of ours: a result, or why there is none."""

    id: int
    result: object
    error: str | None
    code: int


def read_message(line: Line) -> Call | Reply | None:
    """Return the message that a line holds, or None."""
    frame = read_frame(line)
    if frame is None:
        return None
    number, method = frame.get("id"), frame.get("method")
    if isinstance(method, str):
        caller = _id(number)
        if caller is None and number is not None:
            return None
        return Call(caller, method, as_object(frame.get("params")))
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    if frame.get("error") is None:
        return Reply(number, frame.get("result"), None, 0)
    error = as_object(frame.get("error"))
    code = error.get("code")
    return Reply(number, None, _reason(error), -as_count(-code) if isinstance(code, int) else 0)


def call(number: int, method: str, params: JsonObject) -> bytes:
    """Return a request."""
    return _line({"id": number, "method": method, "params": params})


def notify(method: str, params: JsonObject) -> bytes:
    """Return a notification."""
    return _line({"method": method, "params": params})


def reply(to: Id, result: JsonObject) -> bytes:
    """Return the answer to a request."""
    return _line({"id": to, "result": result})


def refuse(to: Id, code: int, reason: str) -> bytes:
    """Return that a request has no result, and why."""
    return _line({"id": to, "error": {"code": code, "message": reason}})


def _id(value: object) -> Id | None:
    """Return what can be the id of a request."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_ID else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _reason(error: JsonObject) -> str:
    """Return what an error says: many programs have the reason in its data."""
    message = as_words(error.get("message"))
    data = error.get("data")
    details = as_words(data) or as_words(as_object(data).get("details"))
    said = ": ".join(filter(None, (message, details)))
    return one_line(said, LONGEST_REASON) or "it gave no reason"


def _line(message: JsonObject) -> bytes:
    text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
