"""Level `container`: level `guard`, where infloop itself runs in a container that is strict enough.

Whether the container is strict enough is seen from inside, for any container engine: PID namespace,
read-only root, no capabilities and no way to gain any, limits on processes, memory and processors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from infloop.errors import MissingPart
from infloop.sandbox.levels.guard import GuardSandbox

if TYPE_CHECKING:
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions

# The inode number of the machine's own PID namespace, on every Linux.
_MACHINE_NAMESPACE = 0xEFFFFFFC
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_CGROUPS = Path("/sys/fs/cgroup")
# The files of cgroup v2 and v1. An engine mounts a container's own cgroup at the top.
_LIMITS = (
    ("a limit on processes (pids_limit)", ("pids.max", "pids/pids.max")),
    ("a limit on memory (mem_limit)", ("memory.max", "memory/memory.limit_in_bytes")),
    ("a limit on processors (cpus)", ("cpu.max", "cpu/cpu.cfs_quota_us")),
)
# cgroup v1 shows unlimited memory as a very large number.
_UNLIMITED = 1 << 60


class ContainerSandbox(GuardSandbox):
    """Level `guard` inside a strict container."""

    level = "container"

    @classmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level; see the base class."""
        if part := missing_part():
            raise MissingPart(f"level 'container' needs {part}")
        return super().open(options)


def missing_part() -> str:
    """Return what this container lacks, or that there is none; empty if it is strict enough."""
    on_machine = _PID_NAMESPACE.stat().st_ino == _MACHINE_NAMESPACE
    if on_machine or not os.statvfs("/").f_flag & os.ST_RDONLY:
        return "infloop to run in a container with a read-only root"
    if int(_status("CapBnd"), 16):
        return "a container without capabilities (cap_drop: ALL)"
    if _status("NoNewPrivs") != "1":
        return "a container that gains no privileges (no-new-privileges)"
    for limit, files in _LIMITS:
        if not any(_is_limited(_CGROUPS / file) for file in files):
            return limit
    return ""


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(value.strip() for key, _, value in (x.partition(":") for x in lines) if key == name)


def _is_limited(file: Path) -> bool:
    try:
        limit = file.read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return False
    return limit.isdecimal() and int(limit) < _UNLIMITED
