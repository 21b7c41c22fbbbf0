"""Known secrets never reach what is recorded, shown or asked next, even when a child prints them.

Whatever a step tells goes through here before it is an event: what it says while it runs, how it
ended, what it asks a person, what is noted about it meanwhile. What a person or a sender put in
(inputs, reasons to stop) is not a child's word and stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.events import BudgetExceeded, GuardFailed, Notice, StepFinished, StepWaiting
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
    from infloop.runtime.runs.loop import Performer, Say

_WORDS: Mapping[type[Event], tuple[str, ...]] = {
    StepFinished: ("outputs", "error"),
    StepWaiting: ("outputs", "reason"),
    Notice: ("message",),
    BudgetExceeded: ("reason",),
    GuardFailed: ("reason",),
}


class LeakGuard:
    """Takes the secrets of this process out of what steps tell; `read` returns them all."""

    def __init__(self, read: Callable[[], Iterable[str]] = tuple) -> None:
        self.known = KnownSecrets()
        self._read = read
        self.look()

    def look(self) -> None:
        """See which secrets there are by now."""
        self.known.add(self._read())

    def event(self, event: Event) -> Event:
        """Return an event of a step without secrets."""
        if not self.known:
            return event
        changed = {}
        for name in _WORDS.get(type(event), ()):
            told = getattr(event, name)
            if (cleaned := self.known.redact(told)) is not told:
                changed[name] = cleaned
        return msgspec.structs.replace(event, **changed) if changed else event

    def around(self, performer: Performer) -> Performer:
        """Return what performs steps that say no secret which was known when they began."""

        def guarded(perform: Perform, say: Say) -> Awaitable[Outcome]:
            return self._guarded(performer, perform, say) if self.known else performer(perform, say)

        return guarded

    async def _guarded(self, performer: Performer, perform: Perform, say: Say) -> Outcome:
        streams: dict[str, RedactingStream] = {}

        def say_clean(text: str, stream: str) -> None:
            if stream not in streams:
                streams[stream] = self.known.stream()
            say(streams[stream].feed(text), stream)

        try:
            return await performer(perform, say_clean)
        finally:
            for stream, cleaner in streams.items():
                say(cleaner.finish(), stream)

    def asking(self, ask: AskPerson) -> AskPerson:
        """Return the way in which a step asks a person that tells no secret."""

        async def ask_clean(question: Question) -> PermissionDecision:
            title, details = self.known.redact(question.title), self.known.redact(question.details)
            return await ask(msgspec.structs.replace(question, title=title, details=details))

        return ask_clean
