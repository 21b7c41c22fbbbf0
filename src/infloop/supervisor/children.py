"""How children of the loop are started: program, directory, environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infloop.sandbox.base import ChildRequest, FlowControl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.sandbox.base import Sandbox

_KEPT_BYTES = 1 << 20
_OWN_PREFIX = "INFLOOP_"


class EventVariables(Protocol):
    """Returns the variables of a child that may send these events; None means all."""

    def __call__(self, names: Sequence[str] | None, /) -> Mapping[str, str]: ...


class SandboxFor(Protocol):
    """Returns the sandbox for a child; its record has this name."""

    def __call__(self, name: str, /) -> Sandbox: ...


class Command(Protocol):
    """What a process and a hook have in common."""

    @property
    def command(self) -> list[str]: ...
    @property
    def cwd(self) -> str | None: ...
    @property
    def env(self) -> dict[str, str]: ...
    @property
    def events(self) -> list[str] | None: ...


class Children:
    """Makes the requests for children.

    A variable of the configuration overrides an inherited one, and one of the engine overrides
    both. Nothing that a client sent is in a request.
    """

    def __init__(
        self,
        root: str,
        state_path: str,
        inherited: Mapping[str, str],
        event_variables: EventVariables,
        sandbox_for: SandboxFor,
    ) -> None:
        self._root = root
        self._state_path = state_path
        self._inherited = inherited
        self._event_variables = event_variables
        self.sandbox_for = sandbox_for
        self.reload_url = ""

    def request(
        self,
        spec: Command,
        workflow: str,
        files: Sequence[str] = (),
        *,
        grace_ms: int = 2_000,
        timeout_ms: int = 0,
        command: Sequence[str] = (),
    ) -> ChildRequest:
        """Return the request for a child of a process or hook; `command` replaces its own."""
        program, *arguments = command or spec.command
        own = {k: v for k, v in spec.env.items() if not k.upper().startswith(_OWN_PREFIX)}
        return ChildRequest(
            argv=(self._program(program), *arguments),
            cwd=str(Path(self._root, spec.cwd or ".")),
            env={
                **self._inherited,
                **own,
                **self._event_variables(spec.events),
                **({"DEVLOOP_BROWSER_EVENTS_URL": self.reload_url} if self.reload_url else {}),
                "DEVLOOP_ROOT": self._root,
                "DEVLOOP_STATE": self._state_path,
                "DEVLOOP_WORKFLOW": workflow,
                "DEVLOOP_CHANGED_FILES_JSON": json.dumps(list(files), ensure_ascii=False),
            },
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            max_output_bytes=_KEPT_BYTES,
            flow_control=FlowControl(),
        )

    def _program(self, name: str) -> str:
        """A name without a slash is looked up on PATH; another one is relative to the root."""
        return str(Path(self._root, name)) if "/" in name else name


def described_end(exit_code: int | None, signal: int | None) -> str:
    """Return how a child ended, for a message."""
    return f"signal: {signal}" if signal is not None else f"exit status: {exit_code}"
