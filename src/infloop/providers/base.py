"""What answers a prompt: the interface between a step and an agent, a CLI or a model.

A provider takes a request and yields parts, in order, until `Done`. It never raises for what the
agent did (that is `Done` with an error); it raises StepError when it cannot be asked at all.
Cancelling the task that reads the parts must leave nothing of the provider running.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from infloop.sandbox.keepers.capture import Capture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Usage(msgspec.Struct, frozen=True):
    """Tokens used since the last `Usage`, and by which model where that is known.

    `input_tokens` counts all that was read: of these `cached_tokens` came from a cache and
    `cache_write_tokens` went into one.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    model: str = ""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            other.model or self.model,
        )

    def beyond(self, counted: Usage) -> Usage:
        """Return what this total holds beyond what was counted before; never less than nothing."""
        return Usage(
            max(0, self.input_tokens - counted.input_tokens),
            max(0, self.output_tokens - counted.output_tokens),
            max(0, self.cached_tokens - counted.cached_tokens),
            max(0, self.cache_write_tokens - counted.cache_write_tokens),
            self.model,
        )

    @property
    def counts(self) -> bool:
        """Whether any token was used."""
        return bool(self.input_tokens or self.output_tokens)


NO_USAGE = Usage()


class Request(msgspec.Struct, frozen=True):
    """One prompt, with what a provider may need to know about where it comes from.

    With `session_id` the agent's own session is continued where it can be; `session_usage` and
    `session_cost_usd` are what was counted of that session before, for an agent that reports the
    session's total. An agent that says nothing for `idle_timeout_ms` (0: no limit) is ended as
    stalled.
    """

    prompt: str
    cwd: str
    kind: Literal["agent", "judge"] = "agent"
    run_id: str = ""
    path: str = ""
    node: str = ""
    iteration: int = 0
    attempt: int = 1
    profile: str = ""
    agent: str = ""
    model: str = ""
    skip_permissions: bool = False
    session_id: str = ""
    session_usage: Usage = NO_USAGE
    session_cost_usd: float = 0.0
    idle_timeout_ms: int = 0

    @property
    def wanted_model(self) -> str:
        """The model that is asked for, as a judge or an agent names it; empty for the default."""
        return (self.model or self.profile).strip()


class Text(msgspec.Struct, frozen=True):
    """A piece of what the agent says."""

    text: str


class Tool(msgspec.Struct, frozen=True):
    """The agent used a tool or a sub-agent; never part of what it says."""

    name: str
    summary: str
    kind: Literal["tool", "subagent"] = "tool"

    @property
    def line(self) -> str:
        """How a transcript shows it."""
        return f"[{self.kind}: {self.name}] {self.summary}"


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool or a sub-agent answered."""

    summary: str
    kind: Literal["tool", "subagent"] = "tool"

    @property
    def line(self) -> str:
        """How a transcript shows it."""
        return f"[{self.kind} result] {self.summary}"


class Notice(msgspec.Struct, frozen=True):
    """One line about the agent, not by it, that begins with its topic: `[permissions] …`."""

    line: str


class RateLimited(msgspec.Struct, frozen=True):
    """The account's usage limit is reached; it is lifted at `until_ms`, milliseconds since 1970."""

    until_ms: int

    @property
    def reason(self) -> str:
        """Why the agent failed."""
        try:
            until = datetime.fromtimestamp(self.until_ms / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return "rate limited"
        return f"rate limited until {until:%Y-%m-%dT%H:%M:%SZ}"


class Cost(msgspec.Struct, frozen=True):
    """Money spent since the last `Cost`, in US dollars; None when some was and nobody knows it."""

    usd: float | None


class Session(msgspec.Struct, frozen=True):
    """The agent's own name for this conversation."""

    id: str


class Stderr(msgspec.Struct, frozen=True):
    """Diagnostic text."""

    text: str


class Done(msgspec.Struct, frozen=True):
    """The end: exit code, the last message, and why it failed if it did."""

    exit_code: int | None = 0
    result: str | None = None
    error: str = ""


Part: TypeAlias = (
    Text | Tool | ToolResult | Notice | Usage | Cost | Session | RateLimited | Stderr | Done
)


class Provider(Protocol):
    """Anything that can be asked."""

    @property
    def id(self) -> str:
        """The name that workflows use."""

    def ask(self, request: Request) -> AsyncIterator[Part]:
        """Yield the parts of the answer."""


class Answer:
    """Everything that was said, collected from the parts; each text is kept up to a limit."""

    def __init__(self, max_bytes: int) -> None:
        self._said = Capture("stdout", max_bytes, None)
        self._stderr = Capture("stderr", max_bytes, None)
        self._transcript: Capture | None = None  # until it is more than what was said
        self.usage = NO_USAGE
        self.cost_usd: float | None = None
        self.session = ""
        self.rate_limited_until_ms: int | None = None
        self.done: Done | None = None

    def add(self, part: Part) -> None:
        """Take in one part."""
        match part:
            case Text(text):
                data = text.encode("utf-8", "replace")
                self._said.feed(data)
                if self._transcript:
                    self._transcript.feed(data)
            case Tool() | ToolResult() | Notice():
                self._transcript = self._transcript or self._said.copy()
                self._transcript.feed(f"\n{part.line}\n".encode("utf-8", "replace"))
            case Usage():
                self.usage += part
            case Cost(usd):
                if usd is not None:
                    self.cost_usd = (self.cost_usd or 0.0) + usd
            case Session(name):
                self.session = name
            case RateLimited(until_ms):
                self.rate_limited_until_ms = until_ms
            case Stderr(text):
                self._stderr.feed(text.encode("utf-8", "replace"))
            case Done():
                self.done = self.done or part

    @property
    def said(self) -> str:
        """What the agent said, without its tools."""
        return self._said.finish().text

    @property
    def transcript(self) -> str:
        """What the agent said and did, in order."""
        return (self._transcript or self._said).finish().text

    @property
    def stderr(self) -> str:
        """The diagnostics."""
        return self._stderr.finish().text
