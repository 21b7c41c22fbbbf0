"""The audit log: its events and actors, and what is never written to it.

Rules
  * Only events that are listed below are recorded.
  * A value that may be a secret, or that was received from outside, is replaced before anything is
    written. Its name decides, whatever it looks like.
  * The size of an entry is limited.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.hashes import sha256_hex
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.values import JsonValue

ActorKind: TypeAlias = Literal[
    "cli", "api-token", "browser-session", "anonymous", "webhook", "mcp", "system", "open"
]

ACTORS: Mapping[ActorKind, str] = {
    "cli": "The user of the `infloop` command.",
    "api-token": "A program with the API token.",
    "browser-session": "A browser that has logged in.",
    "anonymous": "A client that did not authenticate, for example with a wrong token.",
    "webhook": "The sender of a request to a trigger.",
    "mcp": "An MCP client that started infloop itself.",
    "system": "infloop itself: a schedule, a changed file, a start after a crash.",
    "open": "Any client of a server that requires no token.",
}

EventName: TypeAlias = Literal[
    "server.started",
    "server.stopped",
    "dev.restart-requested",
    "demo.started",
    "doctor.attack-started",
    "login.succeeded",
    "login.failed",
    "login.ended",
    "access.refused",
    "trigger.created",
    "trigger.changed",
    "trigger.moved",
    "trigger.deleted",
    "trigger.tested",
    "trigger.answered",
    "trigger.refused",
    "webhook.accepted",
    "webhook.ignored",
    "webhook.refused",
    "run.queued",
    "run.started",
    "run.finished",
    "run.recovered",
    "run.stopped",
    "run.resumed",
    "run.rewound",
    "run.applied",
    "egress.allowed",
    "egress.refused",
    "leak.found",
    "tool.called",
    "tool.refused",
    "tool.finished",
    "queue.removed",
    "run.held",
    "queue.held",
    "queue.released",
    "workflow.saved",
    "workflow.deleted",
    "worktree.deleted",
    "connection.saved",
    "connection.deleted",
    "approval.answered",
    "installation.imported",
    "store.moved",
    "audit.rotated",
    "audit.repaired",
]


class EventKind(NamedTuple):
    """The meaning of an event. A routine event becomes durable with the next one that is not."""

    meaning: str
    routine: bool = False


EVENTS: Mapping[EventName, EventKind] = {
    "server.started": EventKind("The server began to listen; the details name its addresses."),
    "server.stopped": EventKind("The server was shut down in an orderly way."),
    "dev.restart-requested": EventKind("A development loop was asked to restart a process."),
    "demo.started": EventKind("The demo was started over the API."),
    "doctor.attack-started": EventKind(
        "The isolation level in the details is attacked, to see whether it holds."
    ),
    "login.succeeded": EventKind("A browser logged in with the token, or with a link."),
    "login.failed": EventKind("A browser sent a wrong token, or there were too many attempts."),
    "login.ended": EventKind("A browser logged out."),
    "access.refused": EventKind(
        "Requests with a wrong token or session were refused; the details count those of a sender. "
        "Of many, the 1st, 10th, 100th and so on are recorded."
    ),
    "trigger.created": EventKind("A trigger was created."),
    "trigger.changed": EventKind("A trigger was changed."),
    "trigger.moved": EventKind("A trigger got a new address; the old one no longer works."),
    "trigger.deleted": EventKind("A trigger was deleted."),
    "trigger.tested": EventKind("A trigger was fired by hand."),
    "trigger.answered": EventKind(
        "A person decided whether a run is started for the missed times of a schedule."
    ),
    "trigger.refused": EventKind(
        "A schedule or a changed file could not start its workflow; the outcome says why. Of equal "
        "refusals, the 1st, 10th, 100th and so on are recorded."
    ),
    "webhook.accepted": EventKind("A request to a trigger put a run into the queue.", routine=True),
    "webhook.ignored": EventKind(
        "A request to a trigger did not match its event or conditions.", routine=True
    ),
    "webhook.refused": EventKind(
        "A request to a trigger was refused; the outcome says why. Of those over a rate limit, the "
        "1st, 10th, 100th and so on are recorded, with their count."
    ),
    "run.queued": EventKind("A run was put into the queue.", routine=True),
    "run.started": EventKind("A run began.", routine=True),
    "run.finished": EventKind("A run ended; the outcome says how.", routine=True),
    "run.recovered": EventKind("A run whose process had died was handled; the outcome says how."),
    "run.stopped": EventKind("Somebody asked for a run to be stopped."),
    "run.resumed": EventKind("Somebody resumed an interrupted or paused run."),
    "run.rewound": EventKind("Somebody started a new run from one of a run's steps."),
    "run.applied": EventKind(
        "Somebody asked for a run's changes to be applied; the details say where."
    ),
    "egress.allowed": EventKind(
        "Children of a step connected to a host; the details count how often.", routine=True
    ),
    "egress.refused": EventKind(
        "A connection of a step's child was refused; the outcome says why. Repetitions are counted."
    ),
    "leak.found": EventKind(
        "A step said a secret, or `apply` found one in the changes; the details name the "
        "detectors, the outcome the mode of the guard."
    ),
    "tool.called": EventKind(
        "A model calls a tool; the details have its name, its capabilities and a digest of its "
        "arguments."
    ),
    "tool.refused": EventKind("A model may not call a tool; the outcome says why."),
    "tool.finished": EventKind("A tool's call ended; the outcome says how.", routine=True),
    "queue.removed": EventKind("Somebody removed a waiting run from the queue."),
    "run.held": EventKind(
        "A queued run cannot be started and stays in the queue; the outcome says why."
    ),
    "queue.held": EventKind("Waiting runs are not started any more: the total budget is spent."),
    "queue.released": EventKind("Waiting runs are started again."),
    "workflow.saved": EventKind("A workflow was created or changed."),
    "workflow.deleted": EventKind("A workflow was deleted."),
    "worktree.deleted": EventKind("What was saved of an agent's worktree was deleted."),
    "connection.saved": EventKind("A connection to a machine was created or changed."),
    "connection.deleted": EventKind("A connection to a machine was deleted."),
    "approval.answered": EventKind("Somebody allowed or denied an agent's request."),
    "installation.imported": EventKind(
        "Somebody imported another installation; the details say from where."
    ),
    "store.moved": EventKind(
        "Somebody asked for everything stored to be copied to a database; the details say where."
    ),
    "audit.rotated": EventKind("The log continues in a new file; the details name the last one."),
    "audit.repaired": EventKind(
        "The log ended in the middle of a line; the details name the affected files."
    ),
}


class Actor(msgspec.Struct, frozen=True):
    """Who acted, as far as infloop knows."""

    kind: ActorKind
    name: str = ""


SYSTEM = Actor("system")


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """What happened; `audit_event` makes one that is safe to write."""

    time: str
    event: str
    actor: Actor
    outcome: str = ""
    correlation_id: str = ""
    run_id: str = ""
    workflow_id: str = ""
    details: JsonObject = {}


class AuditEntry(AuditEvent, frozen=True, rename="camel"):
    """An event in the hash chain: `prev` is the hash of the entry before it, `hash` its own."""

    prev: str = ""
    hash: str = ""


def audit_event(
    time: int,
    event: EventName,
    actor: Actor,
    *,
    outcome: str = "",
    correlation_id: str = "",
    run_id: str = "",
    workflow_id: str = "",
    details: Mapping[str, JsonValue] | None = None,
) -> AuditEvent:
    """Return the event at `time` (milliseconds), with secrets removed and its size limited."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is not an event of the audit log; add it to EVENTS")
    return AuditEvent(
        time=utc_text(time),
        event=event,
        actor=actor if not actor.name else Actor(actor.kind, _text(actor.name)),
        outcome=_text(outcome),
        correlation_id=_text(correlation_id),
        run_id=_text(run_id),
        workflow_id=_text(workflow_id),
        details=_bounded(redacted(details)) if details else {},
    )


def utc_text(time: int) -> str:
    """Return a time in milliseconds as ISO 8601 text, which sorts in the same order."""
    seconds, ms = divmod(time, 1000)
    return f"{_second_text(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=16)  # many entries are of the same second
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def utc_ms(text: str) -> int:
    """Return the milliseconds of a time that `utc_text` wrote; 0 for any other text."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


@lru_cache(maxsize=1024)  # all requests to a trigger have the same
def fingerprint(credential: str) -> str:
    """Return what identifies a credential in the log without revealing it.

    The id of a webhook trigger is a credential: anybody who knows it can fire the trigger.
    """
    return f"#{sha256_hex(credential.encode(errors='replace'))[:12]}"


# -- redaction and limits --------------------------------------------------------------------------

WITHHELD = "[withheld]"

MAX_TEXT_CHARS = 500
MAX_MEMBERS = 50
MAX_DEPTH = 4
MAX_DETAILS_CHARS = 8_000
"""Characters of the details of one entry."""

# A character outside of the basic plane is two escapes of six characters in JSON.
_LONGEST_ESCAPE = 12

_SECRET_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "credential", "authorization"),
    *("apikey", "accesskey", "privatekey", "signingkey", "bearer", "cookie", "signature"),
)
_PRIVATE_NAMES = frozenset(("auth", "key", "pin", "body", "rawbody", "payload", "headers", "query"))


def redacted(details: Mapping[str, JsonValue]) -> JsonObject:
    """Return `details` with secrets withheld, long texts cut and deeply nested parts left out."""
    return _object(details, MAX_DEPTH)


@lru_cache(maxsize=1024)  # an event has the same names each time
def is_secret_name(name: str) -> bool:
    """Say whether a value of this name may be a secret, or was received from outside."""
    plain = "".join(char for char in name.lower() if char.isalnum())
    return plain in _PRIVATE_NAMES or any(word in plain for word in _SECRET_WORDS)


def _object(members: Mapping[str, JsonValue], depth: int) -> JsonObject:
    kept = list(members.items())[:MAX_MEMBERS]
    return {_text(str(name)): _member(str(name), value, depth) for name, value in kept}


def _member(name: str, value: JsonValue, depth: int) -> JsonValue:
    is_flag = value is None or isinstance(value, bool)  # whether a secret is set is not secret
    return WITHHELD if is_secret_name(name) and not is_flag else _value(value, depth - 1)


def _value(value: JsonValue, depth: int) -> JsonValue:
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() < 64:
            return value
        case float() if isfinite(value):
            return value
        case str():
            return _text(value)
        case dict() if depth > 0:
            return _object(value, depth)
        case list() if depth > 0:
            return [_value(member, depth - 1) for member in value[:MAX_MEMBERS]]
        case _:
            return f"[{type(value).__name__}]"


def _text(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS and text.isascii():
        return text
    # A lone surrogate cannot be encoded, so it could not be read back.
    valid = text[:MAX_TEXT_CHARS].encode(errors="replace").decode()
    return valid if len(text) <= MAX_TEXT_CHARS else f"{valid}…"


def _bounded(details: JsonObject) -> JsonObject:
    if len(repr(details)) * _LONGEST_ESCAPE <= MAX_DETAILS_CHARS:  # cheaper than JSON
        return details
    size = len(json.dumps(details))
    return details if size <= MAX_DETAILS_CHARS else {"omitted": f"{size} characters of details"}


# -- searching -------------------------------------------------------------------------------------


class AuditFilter(msgspec.Struct, frozen=True):
    """Selects entries; an empty field matches everything.

    `event` is a name or an area (`run`, `login`), `actor` a kind or a name, `run` the beginning of
    a run's id, `since` and `until` times in milliseconds. `events` are names of which any matches,
    and `trigger` is the fingerprint of a trigger.
    """

    event: str = ""
    actor: str = ""
    run: str = ""
    correlation_id: str = ""
    since: int | None = None
    until: int | None = None
    events: frozenset[str] = frozenset()
    trigger: str = ""

    def includes(self, entry: AuditEvent) -> bool:
        """Say whether an entry matches."""
        return (
            (not self.event or entry.event == self.event or self._is_area_of(entry.event))
            and (not self.actor or self.actor in (entry.actor.kind, entry.actor.name))
            and entry.run_id.startswith(self.run)
            and (not self.correlation_id or entry.correlation_id == self.correlation_id)
            and (self.since is None or utc_text(self.since) <= entry.time)
            and (self.until is None or entry.time <= utc_text(self.until))
            and (not self.events or entry.event in self.events)
            and (not self.trigger or entry.details.get("trigger") == self.trigger)
        )

    def _is_area_of(self, event: str) -> bool:
        return event.startswith(f"{self.event}.")
