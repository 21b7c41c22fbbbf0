"""Describes this process as an owner of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.store.interfaces.liveness import InstanceRow

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.store.interfaces.liveness import ProcessKind


def new_instance_id() -> str:
    """Return an id that no other process has."""
    return f"i-{os.urandom(8).hex()}"


def describe_process(
    time: int, kind: ProcessKind, labels: Collection[str], capacity: int
) -> InstanceRow:
    """Return the description of this process under a new id, registered at `time`."""
    return InstanceRow(
        id=new_instance_id(),
        pid=os.getpid(),
        process_started=_process_started(),
        boot_id=_boot_id(),
        host=os.uname().nodename,
        started_at=time,
        heartbeat_at=time,
        kind=kind,
        labels=tuple(labels),
        capacity=capacity,
    )


def _process_started() -> str:
    """Return the kernel's start time of this process; with the pid it identifies a process."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux; the value is only shown to people
        return ""
    return stat.rpartition(")")[2].split()[19]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
