"""What a node is given, and what it returns.

A node has no other powers than these: it cannot start a process but through the sandbox, reach a
model but through a provider, or see a variable that the environment does not hand out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from infloop.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from infloop.model.values import JsonObject
    from infloop.providers.base import Provider
    from infloop.sandbox.base import Sandbox


class Outcome(NamedTuple):
    """How a step ended: the handle it leaves by, its outputs, and why it failed if it did."""

    handle: str
    outputs: JsonObject
    error: str = ""


class Environment(Protocol):
    """Makes the variables of a child."""

    def __call__(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the allowed variables, with those that the workflow sets itself."""


@dataclass(frozen=True, slots=True)
class Interpreters:
    """Programs that run scripts, as the operator named them or as they were found."""

    python: str = "python3"
    typescript: tuple[str, ...] = ()
    typescript_missing: str = "no TypeScript runtime was found"


@dataclass(frozen=True, slots=True)
class Powers:
    """Everything one step may use."""

    run_id: str
    path: str
    node: str
    iteration: int
    attempt: int
    workdir: str
    say: Callable[[str, str], None]
    room: Callable[[], Awaitable[None]]
    sandbox: Sandbox
    environment: Environment
    provider: Callable[[str], Provider]
    interpreters: Interpreters
    max_output_bytes: int

    def directory(self, configured: object) -> str:
        """Return the directory a step works in: its own, or else the run's."""
        if not isinstance(configured, str) or not configured:
            return self.workdir  # which was there when the run began
        directory = Path(self.workdir, configured)
        if not directory.is_dir():
            raise StepError(f"cwd {str(directory)!r} is not a directory; create it or change 'cwd'")
        return str(directory)


def failed(reason: str, **outputs: object) -> Outcome:
    """Return an outcome that leaves by `error`."""
    return Outcome("error", {**outputs, "errorMessage": reason}, reason)  # type: ignore[dict-item]


def whole_number(value: object, default: int) -> int:
    """Return a count of milliseconds or the like from a configuration value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return default
    return int(value)


def tail(text: str, limit: int = 300) -> str:
    """Return the end of a text, for an error message."""
    text = text.strip()
    return text if len(text) <= limit else f"…{text[-limit:]}"
