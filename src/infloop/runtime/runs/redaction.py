"""Removes secrets from everything that steps say, before it becomes an event.

That is: their output, their outcomes, their questions to a person, and notices about them. Inputs
and reasons to stop come from people or senders, not from children, and stay as they are.

A child decides how long this takes: a text of nothing but keywords takes seconds per megabyte. So
long values are redacted in a thread, and long output piece by piece, with a turn for others after
each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from infloop.model.events import (
    Notice,
    StepFinished,
    StepWaiting,
    StopRequested,
    TreeRestored,
    TreeSaved,
    WorkspaceFetched,
    WorkspaceStored,
)
from infloop.nodes.base import failed
from infloop.policy.leaks.guard import BLOCKED, LeakGuard
from infloop.policy.leaks.known import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from infloop.engine.commands import Perform
    from infloop.model.approval import Question
    from infloop.model.events import Event, ToolCall
    from infloop.model.values import JsonValue
    from infloop.nodes.base import Outcome, WriteOutput
    from infloop.policy.leaks.guard import OnLeak, RedactingStream
    from infloop.policy.leaks.modes import LeakMode
    from infloop.policy.leaks.rules import LeakRule
    from infloop.policy.permissions import AskPerson, PermissionDecision
    from infloop.runtime.runs.loop import Performer

_REDACTED_FIELDS: Mapping[type[Event], tuple[str, ...]] = {
    StepWaiting: (),  # what a step returns is redacted already
    StopRequested: (),
    TreeSaved: (),
    TreeRestored: (),
    WorkspaceFetched: (),
    WorkspaceStored: (),
}
_NEVER_REDACTED = ("path", "node")
_LONG_VALUE = 64 << 10
PIECE = 4 << 10
"""How many characters of output are redacted at a time."""


class LeakReport(Protocol):
    """Takes note of the secrets that a step told."""

    def __call__(self, perform: Perform, detectors: list[str]) -> None: ...


class Redactor:
    """Removes the secrets of this process, and what looks like one.

    `read_secrets` returns all secrets that are known, `rules` what others look like.
    """

    def __init__(
        self,
        read_secrets: Callable[[], Iterable[Secret]] = tuple,
        rules: Callable[[], Sequence[LeakRule]] = tuple,
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
        detectors: dict[str, None] = {}  # in the order in which they were found
        output = _RedactedOutput(self.secrets, write_output, detectors.setdefault)
        try:
            outcome = await performer(perform, output.write)
        finally:
            await output.finish()
        outputs, error = await self._redact_value(
            [outcome.outputs, outcome.error], detectors.setdefault
        )
        outcome = outcome._replace(outputs=outputs, error=error)
        if detectors:
            report(perform, list(detectors))
            if self.secrets.mode == "enforce":
                return failed(BLOCKED)._replace(tree=outcome.tree)
        return outcome

    async def _redact_value(self, values: list[Any], on_leak: OnLeak = lambda _: None) -> list[Any]:
        redact = partial(self.secrets.redact, on_leak=on_leak)
        return await asyncio.to_thread(redact, values) if _is_long(values) else redact(values)

    def wrap_ask(self, ask: AskPerson) -> AskPerson:
        """Return a function that redacts questions before it asks them."""

        async def ask_redacted(question: Question) -> PermissionDecision:
            title, details = await self._redact_value([question.title, question.details])
            return await ask(msgspec.structs.replace(question, title=title, details=details))

        return ask_redacted


class _RedactedOutput:
    """Passes on what a step prints, redacted.

    The waiting text is bounded: commands and scripts pass on a limited output, and agents wait
    after each piece.
    """

    def __init__(self, guard: LeakGuard, write_output: WriteOutput, on_leak: OnLeak) -> None:
        self._guard = guard
        self._write_output = write_output
        self._on_leak = on_leak
        self._streams: dict[str, RedactingStream] = {}
        self._waiting: deque[tuple[str, str, ToolCall | None]] = deque()
        self._working: asyncio.Task[None] | None = None

    def write(self, text: str, stream: str, tool: ToolCall | None = None) -> None:
        if len(text) <= PIECE and not self._waiting:
            self._feed(text, stream, tool)
            return
        size = PIECE if tool is None else len(text)
        self._waiting.extend(
            (text[at : at + size], stream, tool) for at in range(0, len(text), size)
        )
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def finish(self) -> None:
        """Pass on the rest of each stream."""
        if self._working is not None:
            await self._working
        for stream, redacting in self._streams.items():
            self._write_output(redacting.finish(), stream)

    def _feed(self, text: str, stream: str, tool: ToolCall | None) -> None:
        if tool is not None:  # a whole line of limited length: nothing of it is held back
            name = self._guard.redact(tool.name, self._on_leak)
            line = self._guard.redact(text, self._on_leak)
            self._write_output(line, stream, msgspec.structs.replace(tool, name=name))
            return
        if stream not in self._streams:
            self._streams[stream] = self._guard.stream(self._on_leak)
        self._write_output(self._streams[stream].feed(text), stream)

    async def _work(self) -> None:
        while self._waiting:
            self._feed(*self._waiting[0])
            self._waiting.popleft()  # afterwards: what is written meanwhile has to wait
            await asyncio.sleep(0)
        self._working = None


def _is_long(value: JsonValue) -> bool:
    """Tell whether the texts of a value are long together; its structure counts too."""
    left, length = [value], 0
    while left and length <= _LONG_VALUE:
        item = left.pop()
        length += 1
        if isinstance(item, str):
            length += len(item)
        elif isinstance(item, dict):
            left.extend(item)
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return length > _LONG_VALUE


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
