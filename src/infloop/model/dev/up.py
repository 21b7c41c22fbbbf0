"""Whether the processes of a development loop are up. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.model.dev.status import DevStatus, ProcessStatus


def is_up(process: ProcessStatus) -> bool:
    """Tell whether a process is ready, or runs and has no readiness probe."""
    return process.state == "ready" or (process.state == "running" and not process.has_readiness)


def not_up(status: DevStatus, names: Collection[str]) -> list[ProcessStatus]:
    """Return the named processes that are not up; without names, of all that were started."""
    return [
        process
        for process in status.processes
        if not is_up(process) and (process.name in names if names else process.state != "stopped")
    ]


def describe(process: ProcessStatus) -> str:
    """Return the state of a process as a phrase."""
    times = f"restarted {process.restarts} times in a row" if process.restarts > 1 else ""
    more = "; ".join(filter(None, (process.detail, times)))
    return f"process {process.name!r} is {process.state}" + (f" ({more})" if more else "")
