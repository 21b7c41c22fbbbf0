"""Finds out whether a process is ready, or alive. Every check has a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infloop.model.dev.config import ExecProbe, HttpProbe, LogLineProbe, StateKeyProbe, TcpProbe

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from infloop.model.dev.config import Probe
    from infloop.supervisor.session import Session

_LONGEST_CHECK_S = 5.0


class IsUp(Protocol):
    """Tells whether a server is up: at a URL, or at HOST:PORT."""

    def __call__(self, place: str, timeout_s: float, /) -> Awaitable[bool]: ...


class Subject(Protocol):
    """The process that is checked."""

    def printed(self, pattern: str) -> bool:
        """Tell whether a line of output matched since the start."""

    async def succeeds(self, command: list[str], timeout_ms: int) -> bool:
        """Run a command in the process's directory and environment."""


class Prober:
    """Checks probes."""

    def __init__(self, session: Session, answers: IsUp, accepts: IsUp) -> None:
        self._session = session
        self._answers = answers
        self._accepts = accepts

    async def check(self, probe: Probe, subject: Subject) -> bool:
        """Tell whether a probe passes now."""
        limit_s = min(_LONGEST_CHECK_S, max(probe.timeout_ms, 100) / 1000)
        match probe:
            case StateKeyProbe():
                return bool(self._session.text(probe.key).strip())
            case LogLineProbe():
                return subject.printed(probe.pattern)
            case ExecProbe():
                return await subject.succeeds(probe.command, round(limit_s * 1000))
            case HttpProbe():
                return await self._answers(probe.url, limit_s)
            case TcpProbe():
                return await self._accepts(probe.address, limit_s)


def described(probe: Probe) -> str:
    """Return what is waited for, for a message."""
    match probe:
        case HttpProbe():
            return f"probe {probe.url}"
        case StateKeyProbe():
            return f"state key {probe.key}"
        case TcpProbe():
            return f"probe {probe.address}"
        case ExecProbe():
            return f"command {probe.command[0]}"
        case LogLineProbe():
            return f"log line {probe.pattern}"


def passed(name: str, probe: Probe) -> str:
    """Return the message that a process is ready."""
    if isinstance(probe, HttpProbe):
        return f"process {name} is healthy at {probe.url}"
    return f"process {name} is ready via {described(probe)}"
