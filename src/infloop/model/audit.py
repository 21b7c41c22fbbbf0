"""The audit log's vocabulary: what is recorded, who acted, and what never enters it.

Rules
  * An event is on the list below, or it is not recorded.
  * What may hold a secret, or what somebody sent, is replaced before anything is written: by the
    name under which it is given, whatever it looks like.
  * What is written is bounded, however much is given.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.values import JsonValue

ActorKind: TypeAlias = Literal[
    "cli", "api-token", "browser-session", "anonymous", "webhook", "mcp", "system", "open"
]

ACTORS: Mapping[ActorKind, str] = {
    "cli": "Who ran the `infloop` command.",
    "api-token": "A program that gave the token.",
    "browser-session": "A browser that had logged in.",
    "anonymous": "Somebody who did not prove who they are, such as by a wrong token.",
    "webhook": "The sender of a request to a trigger.",
    "mcp": "An MCP client that started infloop itself.",
    "system": "infloop, of its own accord: a schedule, a changed file, a start after a crash.",
    "open": "Whoever reached a server that asks for no token.",
}

EventName: TypeAlias = Literal[
    "server.started",
    "server.stopped",
    "login.succeeded",
    "login.failed",
    "login.ended",
    "trigger.created",
    "trigger.changed",
    "trigger.moved",
    "trigger.deleted",
    "trigger.tested",
    "trigger.answered",
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
    "queue.removed",
    "queue.dropped",
    "queue.held",
    "queue.released",
    "workflow.saved",
    "workflow.deleted",
    "worktree.deleted",
    "connection.saved",
    "connection.deleted",
    "approval.answered",
    "audit.rotated",
    "audit.repaired",
]


class EventKind(NamedTuple):
    """What an event means. A routine one becomes durable with the next that is not."""

    meaning: str
    routine: bool = False


EVENTS: Mapping[EventName, EventKind] = {
    "server.started": EventKind("The server began to listen; the details say where, and to whom."),
    "server.stopped": EventKind("The server ended in an orderly way."),
    "login.succeeded": EventKind("A browser gave the token and has a session now."),
    "login.failed": EventKind("A browser gave a wrong token, or there were too many attempts."),
    "login.ended": EventKind("A browser logged out."),
    "trigger.created": EventKind("A trigger was made."),
    "trigger.changed": EventKind("A trigger was changed."),
    "trigger.moved": EventKind("A trigger got a new address; the old one is dead."),
    "trigger.deleted": EventKind("A trigger was deleted."),
    "trigger.tested": EventKind("A trigger was fired by hand."),
    "trigger.answered": EventKind(
        "Somebody said whether a run makes up for what a schedule missed."
    ),
    "webhook.accepted": EventKind("A request to a trigger put a run into the queue.", routine=True),
    "webhook.ignored": EventKind(
        "A request to a trigger was not one that it waits for.", routine=True
    ),
    "webhook.refused": EventKind("A request to a trigger was refused; the outcome says why."),
    "run.queued": EventKind("A run was put into the queue.", routine=True),
    "run.started": EventKind("A run began.", routine=True),
    "run.finished": EventKind("A run ended; the outcome says how.", routine=True),
    "run.recovered": EventKind("A run whose process had died was seen to; the outcome says how."),
    "run.stopped": EventKind("Somebody asked for a run to be stopped."),
    "run.resumed": EventKind("Somebody let an interrupted or paused run go on."),
    "run.rewound": EventKind("Somebody began a run anew from one of its steps."),
    "run.applied": EventKind(
        "Somebody asked for a run's changes to be applied; the details say where."
    ),
    "egress.allowed": EventKind(
        "Children of a step were let through to a host; the details count how often.", routine=True
    ),
    "egress.refused": EventKind(
        "A connection of a step's child was refused; the outcome says why. Repetitions are counted."
    ),
    "queue.removed": EventKind("Somebody took a waiting run out of the queue."),
    "queue.dropped": EventKind("A waiting run could not be started; the outcome says why."),
    "queue.held": EventKind("No waiting run is started from now on: what may be spent is spent."),
    "queue.released": EventKind("Waiting runs are started again."),
    "workflow.saved": EventKind("A workflow was made or changed."),
    "workflow.deleted": EventKind("A workflow was deleted."),
    "worktree.deleted": EventKind("What was saved of an agent's worktree was deleted."),
    "connection.saved": EventKind("A connection to a machine was made or changed."),
    "connection.deleted": EventKind("A connection to a machine was deleted."),
    "approval.answered": EventKind("Somebody allowed or denied what an agent asked for."),
    "audit.rotated": EventKind("The log goes on in a new file; the details name the one before."),
    "audit.repaired": EventKind(
        "The log ended in the middle of a line; the details name the files with such pieces."
    ),
}


class Actor(msgspec.Struct, frozen=True):
    """Who did it: roughly, as far as infloop can tell."""

    kind: ActorKind
    name: str = ""


SYSTEM = Actor("system")


class Fact(msgspec.Struct, frozen=True, rename="camel"):
    """What happened; `fact` makes one that may be written down."""

    time: str
    event: str
    actor: Actor
    outcome: str = ""
    correlation_id: str = ""
    run_id: str = ""
    workflow_id: str = ""
    details: JsonObject = {}


class Entry(Fact, frozen=True, rename="camel"):
    """A fact in its place: `prev` is the hash of the entry before it, `hash` its own."""

    prev: str = ""
    hash: str = ""


def fact(
    time: int,
    event: EventName,
    actor: Actor,
    *,
    outcome: str = "",
    correlation_id: str = "",
    run_id: str = "",
    workflow_id: str = "",
    details: Mapping[str, JsonValue] | None = None,
) -> Fact:
    """Return what happened at `time` (in milliseconds), without secrets and bounded."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is no event of the audit log; add it to EVENTS")
    return Fact(
        utc_text(time),
        event,
        actor if not actor.name else Actor(actor.kind, _text(actor.name)),
        _text(outcome),
        _text(correlation_id),
        _text(run_id),
        _text(workflow_id),
        _bounded(cleaned(details)) if details else {},
    )


def utc_text(time: int) -> str:
    """Return a time in milliseconds as it is written; such texts sort as the times do."""
    when = datetime.fromtimestamp(time / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def mark_of(credential: str) -> str:
    """Return what stands for a credential in the log: it can be recognised, and not be used.

    The id of a webhook trigger is one: who knows it can fire the trigger.
    """
    return f"#{hashlib.sha256(credential.encode(errors='replace')).hexdigest()[:12]}"


# -- what may be written ---------------------------------------------------------------------------

WITHHELD = "[withheld]"

MOST_CHARACTERS = 500
MOST_MEMBERS = 50
MOST_DEPTH = 4
MOST_DETAILS = 8_000
"""Characters of the details of one entry."""

_SECRET_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "credential", "authorization"),
    *("apikey", "accesskey", "privatekey", "signingkey", "bearer", "cookie", "signature"),
)
_PRIVATE_NAMES = frozenset(("auth", "key", "pin", "body", "rawbody", "payload", "headers", "query"))


def cleaned(details: Mapping[str, JsonValue]) -> JsonObject:
    """Return `details` with secrets withheld, long texts cut and deep parts left out."""
    return _object(details, MOST_DEPTH)


@lru_cache(maxsize=1024)  # an event has the same names each time
def is_secret_name(name: str) -> bool:
    """Say whether a value under this name may be a secret, or what somebody sent."""
    plain = "".join(char for char in name.lower() if char.isalnum())
    return plain in _PRIVATE_NAMES or any(word in plain for word in _SECRET_WORDS)


def _object(members: Mapping[str, JsonValue], depth: int) -> JsonObject:
    kept = list(members.items())[:MOST_MEMBERS]
    return {_text(str(name)): _member(str(name), value, depth) for name, value in kept}


def _member(name: str, value: JsonValue, depth: int) -> JsonValue:
    told = value is None or isinstance(value, bool)  # whether there is one is no secret
    return WITHHELD if is_secret_name(name) and not told else _value(value, depth - 1)


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
            return [_value(member, depth - 1) for member in value[:MOST_MEMBERS]]
        case _:
            return f"[{type(value).__name__}]"


def _text(text: str) -> str:
    if len(text) <= MOST_CHARACTERS and text.isascii():
        return text
    # Half a surrogate pair is no text, and could not be read back.
    whole = text[:MOST_CHARACTERS].encode(errors="replace").decode()
    return whole if len(text) <= MOST_CHARACTERS else f"{whole}…"


def _bounded(details: JsonObject) -> JsonObject:
    size = len(json.dumps(details))
    return details if size <= MOST_DETAILS else {"omitted": f"{size} characters of details"}


# -- what is looked for ----------------------------------------------------------------------------


class Wanted(msgspec.Struct, frozen=True):
    """Which entries are looked for; what is empty does not matter.

    `event` is a name or an area (`run`, `login`), `actor` a kind or a name, `run` the beginning of
    a run's id, `since` and `until` times in milliseconds.
    """

    event: str = ""
    actor: str = ""
    run: str = ""
    correlation_id: str = ""
    since: int | None = None
    until: int | None = None

    def includes(self, entry: Fact) -> bool:
        """Say whether an entry is one of those."""
        return (
            (not self.event or entry.event == self.event or self._is_area_of(entry.event))
            and (not self.actor or self.actor in (entry.actor.kind, entry.actor.name))
            and entry.run_id.startswith(self.run)
            and (not self.correlation_id or entry.correlation_id == self.correlation_id)
            and (self.since is None or utc_text(self.since) <= entry.time)
            and (self.until is None or entry.time <= utc_text(self.until))
        )

    def _is_area_of(self, event: str) -> bool:
        return event.startswith(f"{self.event}.")
