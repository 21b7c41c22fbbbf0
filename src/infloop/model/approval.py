"""Questions that wait for a person's answer, and their states.

Rules
  * No answer is a denial: a question expires, and only the state `allowed` allows.
  * The text of a question comes from the asker and may be anything. Its size is limited here; each
    view escapes it. An omission is marked, so that nobody allows what was silently cut off.
  * An answer is for one action, once. `action` is the digest of all of it, so that a run that was
    interrupted while it waited can find its answer, and no other action can.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.model.audit import Actor
from infloop.model.hashes import sha256_hex
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.values import JsonValue

ApprovalState: TypeAlias = Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
AllowOrDeny: TypeAlias = Literal["allow", "deny"]

STATES: Mapping[AllowOrDeny, ApprovalState] = {"allow": "allowed", "deny": "denied"}

MAX_TITLE_CHARS = 300
MAX_NOTE_CHARS = 1_000
MAX_TEXT_CHARS = 4_000
SHORT_ID = 8
MAX_MEMBERS = 50
MAX_DEPTH = 6
MAX_DETAILS_CHARS = 16_000
"""Characters of the details of one question."""


class Question(msgspec.Struct, frozen=True):
    """Something that a person may allow; `kind` is its category, such as `permission`.

    action      the digest of exactly what is asked for
    timeout_ms  how long it waits; 0 means as long as the operator says
    """

    kind: str
    title: str
    details: JsonObject = {}
    action: str = ""
    timeout_ms: int = 0


class Approval(msgspec.Struct, frozen=True, rename="camel"):
    """A stored question; times are milliseconds since 1970.

    With a `hint` it is answered in another way, as the hint says, and it never expires.
    """

    id: str
    kind: str
    title: str
    details: JsonObject
    asked_at: int
    expires_at: int | None = None
    run_id: str = ""
    workflow_id: str = ""
    path: str = msgspec.field(default="", name="stepPath")
    state: ApprovalState = "waiting"
    answered_by: Actor | None = None
    answered_at: int | None = None
    note: str = ""
    hint: str = ""
    action: str = ""

    @property
    def account(self) -> str:
        """Its state as a phrase for people."""
        if self.state == "waiting":
            return "waits for an answer"
        if self.state == "expired":
            return "nobody answered in time"
        by = self.answered_by
        who = f" by {by.kind}{f' ({by.name})' if by.name else ''}" if by else ""
        return f"{self.state}{who}{f': {self.note}' if self.note else ''}"


def answer_hint(approval: Approval) -> str:
    """Return how a person answers."""
    return approval.hint or f"`infloop approvals allow {approval.id[:SHORT_ID]}`, or deny"


def question(
    kind: str, title: str, details: Mapping[str, JsonValue], *, timeout_ms: int = 0
) -> Question:
    """Return a question whose size is limited, so that it can be stored."""
    bounded = _object(details, MAX_DEPTH)
    size = len(json.dumps(bounded))
    if size > MAX_DETAILS_CHARS:
        bounded = {"omitted": f"{size} characters of details, too many to keep"}
    return Question(
        _cut(kind, MAX_TITLE_CHARS),
        _cut(title, MAX_TITLE_CHARS),
        bounded,
        action_digest(kind, title, details),
        timeout_ms,
    )


def action_digest(kind: str, title: str, details: Mapping[str, JsonValue]) -> str:
    """Return the digest of an action; nothing of it is left out."""
    exact = json.dumps([kind, title, dict(details)], sort_keys=True)
    return f"sha256:{sha256_hex(exact.encode())}"


def cut_note(note: str) -> str:
    """Return the note of an answer, cut to the longest length."""
    return _cut(note, MAX_NOTE_CHARS)


def _object(members: Mapping[str, JsonValue], depth: int) -> JsonObject:
    first = list(members.items())[:MAX_MEMBERS]
    bounded = {_cut(str(name), MAX_TITLE_CHARS): _value(value, depth - 1) for name, value in first}
    left = len(members) - len(first)
    return {**bounded, "…": f"{left} more members"} if left else bounded


def _value(value: JsonValue, depth: int) -> JsonValue:
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() < 64:
            return value
        case float() if isfinite(value):
            return value
        case str():
            return _cut(value, MAX_TEXT_CHARS)
        case dict() if depth > 0:
            return _object(value, depth)
        case list() if depth > 0:
            first = [_value(member, depth - 1) for member in value[:MAX_MEMBERS]]
            left = len(value) - len(first)
            return [*first, f"… {left} more members"] if left else first
        case _:
            return f"[{type(value).__name__}, not shown]"


def _cut(text: str, limit: int) -> str:
    # A lone surrogate cannot be encoded, so it cannot be stored.
    valid = text[:limit].encode(errors="replace").decode()
    left = len(text) - limit
    return valid if left <= 0 else f"{valid}… ({left} more characters)"
