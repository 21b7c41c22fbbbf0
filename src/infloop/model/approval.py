"""What waits for a person's answer: a question, and what became of it.

Rules
  * Silence denies: a question has a time at which it is over, and only `allowed` allows.
  * What is asked is in the asker's words, which may be anything. It is bounded here, and made
    harmless by whoever shows it. What is left out says so: nobody allows what was cut in silence.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.model.audit import Actor
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.values import JsonValue

ApprovalState: TypeAlias = Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
Answer: TypeAlias = Literal["allow", "deny"]

STATES: Mapping[Answer, ApprovalState] = {"allow": "allowed", "deny": "denied"}

LONGEST_TITLE = 300
LONGEST_NOTE = 1_000
LONGEST_TEXT = 4_000
SHORT_ID = 8
MOST_MEMBERS = 50
MOST_DEPTH = 6
MOST_DETAILS = 16_000
"""Characters of the details of one question."""


class Question(msgspec.Struct, frozen=True):
    """Something that a person may allow; `kind` says of which sort it is, such as `permission`."""

    kind: str
    title: str
    details: JsonObject = {}


class Approval(msgspec.Struct, frozen=True, rename="camel"):
    """A question in its place; times are milliseconds since 1970.

    With a `hint` it is answered elsewhere, as the hint says, and may wait for ever.
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

    @property
    def account(self) -> str:
        """What became of it, in words."""
        if self.state == "waiting":
            return "waits for an answer"
        if self.state == "expired":
            return "nobody answered in time"
        by = self.answered_by
        who = f" by {by.kind}{f' ({by.name})' if by.name else ''}" if by else ""
        return f"{self.state}{who}{f': {self.note}' if self.note else ''}"


def how_to(approval: Approval) -> str:
    """Return how a person answers."""
    return approval.hint or f"`infloop approvals allow {approval.id[:SHORT_ID]}`, or deny"


def question(kind: str, title: str, details: Mapping[str, JsonValue]) -> Question:
    """Return a question that can be kept: within bounds, whatever is given."""
    kept = _object(details, MOST_DEPTH)
    size = len(json.dumps(kept))
    if size > MOST_DETAILS:
        kept = {"omitted": f"{size} characters of details, too many to keep"}
    return Question(_cut(kind, LONGEST_TITLE), _cut(title, LONGEST_TITLE), kept)


def cut_note(note: str) -> str:
    """Return what somebody said with an answer, within bounds."""
    return _cut(note, LONGEST_NOTE)


def _object(members: Mapping[str, JsonValue], depth: int) -> JsonObject:
    kept = list(members.items())[:MOST_MEMBERS]
    shown = {_cut(str(name), LONGEST_TITLE): _value(value, depth - 1) for name, value in kept}
    left = len(members) - len(kept)
    return {**shown, "…": f"{left} more members"} if left else shown


def _value(value: JsonValue, depth: int) -> JsonValue:
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() < 64:
            return value
        case float() if isfinite(value):
            return value
        case str():
            return _cut(value, LONGEST_TEXT)
        case dict() if depth > 0:
            return _object(value, depth)
        case list() if depth > 0:
            shown = [_value(member, depth - 1) for member in value[:MOST_MEMBERS]]
            left = len(value) - len(shown)
            return [*shown, f"… {left} more members"] if left else shown
        case _:
            return f"[{type(value).__name__}, not shown]"


def _cut(text: str, limit: int) -> str:
    # Half a surrogate pair is no text, and could not be kept.
    whole = text[:limit].encode(errors="replace").decode()
    left = len(text) - limit
    return whole if left <= 0 else f"{whole}… ({left} more characters)"
