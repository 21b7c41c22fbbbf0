"""Removes known secrets from everything that steps say, before it becomes an event.

That is: their output, their outcomes, their questions to a person, and notices about them. Inputs
and reasons to stop come from people or senders, not from children, and stay as they are.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from infloop.model.events import StepFinished, StepWaiting, StopRequested, TreeRestored, TreeSaved
from infloop.policy.redaction import KnownSecrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from infloop.engine.commands import Perform
    from infloop.model.approval import Question
    from infloop.model.events import Event
    from infloop.nodes.base import Outcome
    from infloop.policy.permissions import PermissionDecision
    from infloop.policy.redaction import RedactingStream
    from infloop.providers.approval_requests import AskPerson
    from infloop.runtime.runs.loop import Performer, WriteOutput

_REDACTED_FIELDS: Mapping[type[Event], tuple[str, ...]] = {
    StepFinished: ("outputs", "error"),
    StepWaiting: ("outputs", "reason"),
    StopRequested: (),
    TreeSaved: (),
    TreeRestored: (),
}
_NEVER_REDACTED = ("path", "node")


class Redactor:
    """Removes the secrets of this process; `read_secrets` returns all of them."""

    def __init__(self, read_secrets: Callable[[], Iterable[str]] = tuple) -> None:
        self.secrets = KnownSecrets()
        self._read_secrets = read_secrets
        self.refresh()

    def refresh(self) -> None:
        """Learn the secrets that there are now. Those learned before stay known."""
        self.secrets.add(self._read_secrets())

    def redact_event(self, event: Event) -> Event:
        if not self.secrets:
            return event
        changed = {}
        for name in _redacted_fields(type(event)):
            value = getattr(event, name)
            if (redacted := self.secrets.redact(value)) is not value:
                changed[name] = redacted
        return msgspec.structs.replace(event, **changed) if changed else event

    def wrap_performer(self, performer: Performer) -> Performer:
        """Return a performer that redacts the output of steps."""

        def perform_redacted(perform: Perform, write_output: WriteOutput) -> Awaitable[Outcome]:
            if not self.secrets:
                return performer(perform, write_output)
            return self._perform_redacted(performer, perform, write_output)

        return perform_redacted

    async def _perform_redacted(
        self, performer: Performer, perform: Perform, write_output: WriteOutput
    ) -> Outcome:
        streams: dict[str, RedactingStream] = {}

        def write_redacted(text: str, stream: str) -> None:
            if stream not in streams:
                streams[stream] = self.secrets.stream()
            write_output(streams[stream].feed(text), stream)

        try:
            return await performer(perform, write_redacted)
        finally:
            for stream, redacting in streams.items():
                write_output(redacting.finish(), stream)

    def wrap_ask(self, ask: AskPerson) -> AskPerson:
        """Return a function that redacts questions before it asks them."""

        async def ask_redacted(question: Question) -> PermissionDecision:
            redact = self.secrets.redact
            title, details = redact(question.title), redact(question.details)
            return await ask(msgspec.structs.replace(question, title=title, details=details))

        return ask_redacted


@cache
def _redacted_fields(event_type: type[Event]) -> tuple[str, ...]:
    """Return what a step can fill in; of an event type that is not listed, nearly every field."""
    every = event_type.__struct_fields__
    unlisted = tuple(name for name in every if name not in _NEVER_REDACTED)
    return _REDACTED_FIELDS.get(event_type, unlisted)
