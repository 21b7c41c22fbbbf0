"""The interface between a step and a provider: an agent, a CLI or a model that answers a prompt.

- A provider takes a request and yields the parts of its answer in order, up to `Done`.
- It raises StepError if it cannot be asked at all. Anything that the agent does wrong is a `Done`
  with an error.
- When the task that reads the parts is cancelled, nothing of the provider keeps running.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Literal,
    Protocol,
    TypeAlias,
    assert_never,
    runtime_checkable,
)

import msgspec

from infloop.model.events import ToolKind
from infloop.sandbox.keepers.capture import Capture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_DENIALS = 5
"""How many denials of one answer are reported."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens used since the last `Usage`, and the model if it is known.

    `input_tokens` includes `cached_tokens`, which were read from a cache, and `cache_write_tokens`,
    which were written to one. These include `long_cache_write_tokens`, which are kept for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    model: str = ""
    long_cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            other.model or self.model,
            self.long_cache_write_tokens + other.long_cache_write_tokens,
        )

    def since(self, counted: Usage) -> Usage:
        """Return this total minus what was counted before; never below zero."""
        return Usage(
            max(0, self.input_tokens - counted.input_tokens),
            max(0, self.output_tokens - counted.output_tokens),
            max(0, self.cached_tokens - counted.cached_tokens),
            max(0, self.cache_write_tokens - counted.cache_write_tokens),
            self.model,
            max(0, self.long_cache_write_tokens - counted.long_cache_write_tokens),
        )

    @property
    def has_tokens(self) -> bool:
        """Whether any token was used."""
        return bool(self.input_tokens or self.output_tokens)


NO_USAGE = Usage()


class Request(msgspec.Struct, frozen=True):
    """One prompt, with what a provider may need to know about its step.

    session_id        the agent's own session to continue, if the agent can
    session_usage     tokens of that session that were counted before, for an agent that reports
                      the total of the session; `session_cost_usd` is their cost
    idle_timeout_ms   an agent that prints nothing for this long is stopped as stalled; 0 means
                      no limit
    tools             the only tools of infloop that the agent has; None for all of them
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
    tools: tuple[str, ...] | None = None

    @property
    def requested_model(self) -> str:
        """The model that a judge or an agent names; empty for the provider's default."""
        return (self.model or self.profile).strip()


class Text(msgspec.Struct, frozen=True):
    """A piece of the agent's text."""

    text: str


class Tool(msgspec.Struct, frozen=True):
    """The agent used a tool or a sub-agent; it is not part of its text.

    `id` is the agent's own name for the call, where it has one.
    """

    name: str
    summary: str
    kind: ToolKind = "tool"
    id: str = ""

    @property
    def line(self) -> str:
        """Its line in a transcript."""
        return f"[{self.kind}: {self.name}] {self.summary}"


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool or a sub-agent; `id` is that of the call."""

    summary: str
    kind: ToolKind = "tool"
    id: str = ""
    failed: bool = False

    @property
    def line(self) -> str:
        """Its line in a transcript."""
        return f"[{self.kind} result] {self.summary}"


class ProviderNotice(msgspec.Struct, frozen=True):
    """One line about the agent, written by infloop. It begins with its topic: `[permissions] …`.

    A warning becomes a warning of the run. So does a denial: the agent was not allowed to do
    something.
    """

    line: str
    is_warning: bool = False
    is_denial: bool = False


CLI_REMEDY = (
    "allow it in the agent's own settings or in `args` of the provider, or allow everything with "
    "`skipPermissions` of the node"
)
"""What lets an agent do what its own command line denied."""


def denied(what: str, remedy: str) -> ProviderNotice:
    """Return the notice that an agent was not allowed to do something, and what changes that."""
    return ProviderNotice(f"[permissions] denied: {what} ({remedy})", is_denial=True)


class RateLimited(msgspec.Struct, frozen=True):
    """The account's usage limit is reached; it is lifted at `until_ms`, milliseconds since 1970."""

    until_ms: int

    @property
    def reason(self) -> str:
        """Why the agent failed, with the time at which the limit is lifted."""
        try:
            until = datetime.fromtimestamp(self.until_ms / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return "rate limited"
        return f"rate limited until {until:%Y-%m-%dT%H:%M:%SZ}"


class Cost(msgspec.Struct, frozen=True):
    """US dollars spent since the last `Cost`; None if something was spent and is not known."""

    usd: float | None


class Session(msgspec.Struct, frozen=True):
    """The id that the agent gave this conversation."""

    id: str


class Stderr(msgspec.Struct, frozen=True):
    """Diagnostic text."""

    text: str


class Done(msgspec.Struct, frozen=True):
    """The end of an answer: exit code, last message, and the error if it failed."""

    exit_code: int | None = 0
    result: str | None = None
    error: str = ""


AnswerPart: TypeAlias = (
    Text | Tool | ToolResult | ProviderNotice | Usage | Cost | Session | RateLimited | Stderr | Done
)


class Provider(Protocol):
    """Answers prompts."""

    @property
    def id(self) -> str:
        """The id that workflows use."""

    def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Yield the parts of the answer."""


@runtime_checkable
class BoundedProvider(Protocol):
    """A provider that knows the most that a call can cost."""

    def highest_cost_usd(self, request: Request, unpriced_usd_per_mtok: float) -> float:
        """Return the most that this call can cost; 0 if it cannot be made.

        A model that is on no price list has the given price. This blocks.
        """


@runtime_checkable
class RemoteProvider(Protocol):
    """A provider that may be elsewhere: then it works in no directory of this machine."""

    @property
    def is_remote(self) -> bool:
        """Whether it is."""


def is_remote(provider: Provider) -> bool:
    """Say whether a provider works in no directory, so that `cwd` and worktrees mean nothing."""
    return isinstance(provider, RemoteProvider) and provider.is_remote


@runtime_checkable
class ToolUser(Protocol):
    """An agent that uses infloop's own tools, and keeps its sessions outside of any home."""

    @property
    def uses_tools(self) -> bool:
        """Whether it does."""


def uses_tools(provider: Provider) -> bool:
    """Say whether a provider uses infloop's own tools."""
    return isinstance(provider, ToolUser) and provider.uses_tools


class Answer:
    """Collects the parts of an answer; each text is kept up to a limit.

    `denials` are the first few things that the agent was not allowed to do.
    """

    def __init__(self, max_bytes: int) -> None:
        self._text = Capture("stdout", max_bytes, None)
        self._stderr = Capture("stderr", max_bytes, None)
        self._transcript: Capture | None = None  # while it is the same as the text
        self.usage = NO_USAGE
        self.cost_usd: float | None = None
        self.session = ""
        self.rate_limited_until_ms: int | None = None
        self.denials: list[str] = []
        self.done: Done | None = None

    def add(self, part: AnswerPart) -> None:
        """Add one part."""
        match part:
            case Text(text):
                data = text.encode("utf-8", "replace")
                self._text.feed(data)
                if self._transcript:
                    self._transcript.feed(data)
            case Tool() | ToolResult() | ProviderNotice():
                self._transcript = self._transcript or self._text.copy()
                self._transcript.feed(f"\n{part.line}\n".encode("utf-8", "replace"))
                if isinstance(part, ProviderNotice) and part.is_denial:
                    self._add_denial(part.line)
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
            case _:
                assert_never(part)

    def _add_denial(self, line: str) -> None:
        if len(self.denials) < MAX_DENIALS and line not in self.denials:
            self.denials.append(line)

    @property
    def text(self) -> str:
        """The agent's text, without its tools."""
        return self._text.finish().text

    @property
    def transcript(self) -> str:
        """The agent's text and its tools, in order."""
        return (self._transcript or self._text).finish().text

    @property
    def stderr(self) -> str:
        """The diagnostics."""
        return self._stderr.finish().text
