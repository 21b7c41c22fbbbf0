"""External events: who may send what, and what follows. No HTTP here.

- A token stands for a list of event names. A child gets the token of the events that it may send.
- A value is data. It is stored under the event's key as it was sent.
- Storing a value and queueing the event's workflow are one operation: both happen, or neither.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.errors import StoreError
from infloop.model.patterns import compile_pattern
from infloop.policy.rate import RateLimit
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infloop.model.clock import Clock
    from infloop.model.dev.config import Event
    from infloop.supervisor.session import Session

_TOKEN_BYTES = 24

Outcome: TypeAlias = Literal["accepted", "unchanged", "mismatch", "not-stored", "queue-full"]


class Scope(msgspec.Struct, frozen=True):
    """The events that one token allows; `limited` if these are not all."""

    events: frozenset[str]
    limited: bool


class EventGate:
    """The events of one development loop."""

    def __init__(
        self,
        events: Mapping[str, Event],
        session: Session,
        has_room: Callable[[], bool],
        enqueue: Callable[[str, str], None],
        clock: Clock,
        rate_limit: int,
    ) -> None:
        """`enqueue` gets the workflow and the event, if `has_room` says that there is room."""
        self._events = events
        self._patterns = {
            name: compile_pattern(event.pattern)
            for name, event in events.items()
            if event.pattern is not None
        }
        self._session = session
        self._has_room = has_room
        self._enqueue = enqueue
        self._clock = clock
        self._rate = RateLimit(rate_limit)
        self._tokens: dict[frozenset[str], str] = {}

    def variables(self, base_url: str, names: Sequence[str] | None) -> dict[str, str]:
        """Return the variables of a child that may send these events; None means all."""
        allowed = frozenset(self._events if names is None else names)
        if not allowed:
            return {}
        token = self._tokens.setdefault(allowed, secrets.token_urlsafe(_TOKEN_BYTES))
        return {
            "DEVLOOP_EVENTS_BASE_URL": base_url,
            "DEVLOOP_EVENTS_TOKEN": token,
            **{
                f"DEVLOOP_EVENT_{_variable_part(name)}_URL": f"{base_url}/events/{name}"
                for name in sorted(allowed)
            },
        }

    def scope(self, token: str) -> Scope | None:
        """Return what a token allows; None for a wrong one. Takes the same time for each."""
        found = None
        for names, known in self._tokens.items():
            if same_secret(token, known):
                found = Scope(names, limited=len(names) < len(self._events))
        return found

    def knows(self, name: str) -> bool:
        return name in self._events

    def wait_s(self, name: str) -> int:
        """Count a request; return the seconds to wait if there were too many."""
        return self._rate.take(name, self._clock.now_ms())

    def receive(self, name: str, value: str) -> Outcome:
        """Take a value of a declared event."""
        event = self._events[name]
        pattern = self._patterns.get(name)
        try:
            if pattern is not None and pattern.search(value) is None:
                return "mismatch"
        except UnicodeError:  # a lone surrogate is no text
            return "mismatch"
        key = event.state_key
        before = self._session.values.get(key)
        if before == value:
            return "unchanged"
        if not self._has_room():
            return "queue-full"
        try:
            self._session.update({key: value})
        except StoreError:
            return "not-stored"
        self._enqueue(event.workflow, name)
        return "accepted"


def _variable_part(name: str) -> str:
    return "".join(char.upper() if char.isascii() and char.isalnum() else "_" for char in name)
