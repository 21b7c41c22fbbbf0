"""What is shown of a running development loop: on a terminal, to MCP clients, in a file."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

ProcessState: TypeAlias = Literal[
    "stopped", "waiting", "starting", "running", "ready", "restarting", "crash-loop", "failed"
]
"""`running` has no readiness probe that passed; `failed` will not be started again by itself."""

UP: tuple[ProcessState, ...] = ("running", "ready")


class ProcessStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One process: its state, how it last ended, how often it was restarted in a row.

    `ready` means that it can be used: its probe passed, or it runs and has none. `cause` says why
    it was last started.
    """

    name: str
    state: ProcessState
    pid: int = 0
    restarts: int = 0
    has_readiness: bool = False
    detail: str = ""
    ready: bool = False
    cause: str = ""


class DevStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A running loop: its configuration, process id, present workflow and processes.

    `run_id` is the infloop run that the workflow waits for; `events` are those that it accepts.
    """

    config: str
    root: str
    pid: int
    state_file: str
    workflow: str = ""
    run_id: str = ""
    events: tuple[str, ...] = ()
    processes: tuple[ProcessStatus, ...] = ()
