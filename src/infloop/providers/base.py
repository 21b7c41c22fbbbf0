"""What answers a prompt: the interface between a step and an agent, a CLI or a model.

A provider takes a request and yields parts, in order, until `Done`. It never raises for what the
agent did (that is `Done` with an error); it raises StepError when it cannot be asked at all.
Cancelling the task that reads the parts must leave nothing of the provider running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from infloop.sandbox.capture import Capture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt, with what a provider may need to know about where it comes from."""

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


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of what the agent says."""

    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """The agent used a tool; never part of what it says."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    summary: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used since the last `Usage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """Money spent since the last `Cost`, in US dollars."""

    usd: float


@dataclass(frozen=True, slots=True)
class Session:
    """The agent's own name for this conversation."""

    id: str


@dataclass(frozen=True, slots=True)
class Stderr:
    """Diagnostic text."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The end: exit code, the last message, and why it failed if it did."""

    exit_code: int | None = 0
    result: str | None = None
    error: str = ""


Part: TypeAlias = Text | Tool | ToolResult | Usage | Cost | Session | Stderr | Done


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
        self._transcript = Capture("stdout", max_bytes, None)
        self._stderr = Capture("stderr", max_bytes, None)
        self.usage = Usage()
        self.cost_usd: float | None = None
        self.session = ""
        self.done: Done | None = None

    def add(self, part: Part) -> None:
        """Take in one part."""
        match part:
            case Text(text):
                data = text.encode("utf-8", "replace")
                self._said.feed(data)
                self._transcript.feed(data)
            case Tool(name, summary):
                self._transcript.feed(f"\n[tool: {name}] {summary}\n".encode("utf-8", "replace"))
            case ToolResult(summary):
                self._transcript.feed(f"\n[tool result] {summary}\n".encode("utf-8", "replace"))
            case Usage():
                self.usage = Usage(
                    self.usage.input_tokens + part.input_tokens,
                    self.usage.output_tokens + part.output_tokens,
                    self.usage.cached_tokens + part.cached_tokens,
                )
            case Cost(usd):
                self.cost_usd = (self.cost_usd or 0.0) + usd
            case Session(name):
                self.session = name
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
        return self._transcript.finish().text

    @property
    def stderr(self) -> str:
        """The diagnostics."""
        return self._stderr.finish().text
