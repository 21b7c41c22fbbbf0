"""Removes secrets from everything that steps say, before it becomes an event.

That is: their output, their outcomes, their questions to a person, and notices about them. Inputs
and reasons to stop come from people or senders, not from children, and stay as they are.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.model.events import (
    Notice,
    StepFinished,
    StepWaiting,
    StopRequested,
    TreeRestored,
    TreeSaved,
)
from infloop.nodes.base import failed
from infloop.policy.leaks.guard import BLOCKED, LeakGuard
from infloop.policy.leaks.known import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from infloop.engine.commands import Perform
    from infloop.model.approval import Question
    from infloop.model.events import Event
    from infloop.nodes.base import Outcome
    from infloop.policy.leaks.guard import OnLeak, RedactingStream
    from infloop.policy.leaks.modes import LeakMode
    from infloop.policy.leaks.rules import LeakRule
    from infloop.policy.permissions import AskPerson, PermissionDecision
    from infloop.runtime.runs.loop import Performer, WriteOutput

_REDACTED_FIELDS: Mapping[type[Event], tuple[str, ...]] = {
    StepWaiting: ("outputs", "reason"),
    StopRequested: (),
    TreeSaved: (),
    TreeRestored: (),
}
_NEVER_REDACTED = ("path", "node")
_LONG_TEXT = 64 << 10


class LeakReport(Protocol):
    """Takes note of the secrets that a step told."""

    def __call__(self, perform: Perform, detectors: list[str]) -> None: ...


class Redactor:
    """Removes the secrets of this process, and what looks like one.

    `read_secrets` returns all secrets that are known.
    """

    def __init__(
        self,
        read_secrets: Callable[[], Iterable[Secret]] = tuple,
        rules: Sequence[LeakRule] = (),
        mode: LeakMode = "redact",
    ) -> None:
        self.secrets = LeakGuard((), rules, mode)
        self._read_secrets = read_secrets
        self.refresh()

    def refresh(self) -> None:
        """Learn the secrets that there are now. Those learned before stay known."""
        self.secrets.add(self._read_secrets())

    def redact_event(self, event: Event) -> Event:
        if not self.secrets:
            return event
        if isinstance(event, StepFinished):
            return self._redact_raised(event)
        changed = {}
        for name in _redacted_fields(type(event)):
            value = getattr(event, name)
            if (redacted := self.secrets.redact(value)) is not value:
                changed[name] = redacted
        return msgspec.structs.replace(event, **changed) if changed else event

    def _redact_raised(self, event: StepFinished) -> StepFinished:
        """Redact the error of a step that raised it. What a step returns is redacted already."""
        error = self.secrets.redact(event.error)
        if error is event.error:
            return event
        outputs = {**event.outputs, "errorMessage": error}
        return msgspec.structs.replace(event, error=error, outputs=outputs)

    def wrap_performer(self, performer: Performer, report: LeakReport) -> Performer:
        """Return a performer that redacts what steps print and return."""

        def perform_redacted(perform: Perform, write_output: WriteOutput) -> Awaitable[Outcome]:
            if not self.secrets:
                return performer(perform, write_output)
            return self._perform_redacted(performer, report, perform, write_output)

        return perform_redacted

    async def _perform_redacted(
        self, performer: Performer, report: LeakReport, perform: Perform, write_output: WriteOutput
    ) -> Outcome:
        streams: dict[str, RedactingStream] = {}
        detectors: dict[str, None] = {}  # in the order in which they were found

        def write_redacted(text: str, stream: str) -> None:
            if stream not in streams:
                streams[stream] = self.secrets.stream(detectors.setdefault)
            write_output(streams[stream].feed(text), stream)

        try:
            outcome = await performer(perform, write_redacted)
        finally:
            for stream, redacting in streams.items():
                write_output(redacting.finish(), stream)
        redact = partial(self._redact_outcome, on_leak=detectors.setdefault)
        # The child decides how long this takes, and others must not wait for it.
        is_long = _text_length(outcome) > _LONG_TEXT
        outcome = await asyncio.to_thread(redact, outcome) if is_long else redact(outcome)
        if detectors:
            report(perform, list(detectors))
            if self.secrets.mode == "enforce":
                return failed(BLOCKED)._replace(tree=outcome.tree)
        return outcome

    def _redact_outcome(self, outcome: Outcome, on_leak: OnLeak) -> Outcome:
        redact = partial(self.secrets.redact, on_leak=on_leak)
        return outcome._replace(outputs=redact(outcome.outputs), error=redact(outcome.error))

    def wrap_ask(self, ask: AskPerson) -> AskPerson:
        """Return a function that redacts questions before it asks them."""

        async def ask_redacted(question: Question) -> PermissionDecision:
            redact = self.secrets.redact
            title, details = redact(question.title), redact(question.details)
            return await ask(msgspec.structs.replace(question, title=title, details=details))

        return ask_redacted


def _text_length(outcome: Outcome) -> int:
    return sum(len(each) for each in outcome.outputs.values() if isinstance(each, str))


def leak_notice(mode: LeakMode, perform: Perform, detectors: list[str]) -> Notice:
    """Return the warning about the secrets that a step told."""
    names = ", ".join(detectors)
    message = {
        "redact": f"secrets were redacted from what this step says: {names}",
        "enforce": f"what this step says holds secrets: {names}; the leak guard failed the step",
    }.get(
        mode,
        f"what this step says holds secrets: {names}; they are stored and shown, because "
        "INFLOOP_LEAKS_MODE is warn",
    )
    return Notice(message, perform.path, perform.node, "warning")


@cache
def _redacted_fields(event_type: type[Event]) -> tuple[str, ...]:
    """Return what a step can fill in; of an event type that is not listed, nearly every field."""
    every = event_type.__struct_fields__
    unlisted = tuple(name for name in every if name not in _NEVER_REDACTED)
    return _REDACTED_FIELDS.get(event_type, unlisted)
