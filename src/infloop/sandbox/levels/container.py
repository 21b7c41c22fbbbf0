"""Whether infloop itself lives in a container that is what level `container` promises.

What is asked for is seen from inside, whatever the engine: processes of its own, a root that nobody
can write, no capability and none to gain, and bounds on processes, memory and processors. What an
engine was told and did not do is found out here.
"""

from __future__ import annotations

import os
from pathlib import Path

# The number of the machine's own namespace of processes, on every Linux.
_MACHINE = 0xEFFFFFFC
_PROCESSES = Path("/proc/self/ns/pid")
_GROUPS = Path("/sys/fs/cgroup")
# Under cgroup v2 and v1; an engine shows a container its own group at the top.
_BOUNDS = (
    ("a limit on processes (pids_limit)", ("pids.max", "pids/pids.max")),
    ("a limit on memory (mem_limit)", ("memory.max", "memory/memory.limit_in_bytes")),
    ("a limit on processors (cpus)", ("cpu.max", "cpu/cpu.cfs_quota_us")),
)
# What v1 says where memory has no bound: as many pages as a number can count.
_ENDLESS = 1 << 60


def missing_piece() -> str:
    """Return what this container lacks, or that it is none; nothing if it is what it must be."""
    if _PROCESSES.stat().st_ino == _MACHINE or not os.statvfs("/").f_flag & os.ST_RDONLY:
        return "infloop to run in a container with a read-only root"
    if int(_status("CapBnd"), 16):
        return "a container without capabilities (cap_drop: ALL)"
    if _status("NoNewPrivs") != "1":
        return "a container that gains no privileges (no-new-privileges)"
    for what, files in _BOUNDS:
        if not any(_is_bounded(_GROUPS / file) for file in files):
            return what
    return ""


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(value.strip() for key, _, value in (x.partition(":") for x in lines) if key == name)


def _is_bounded(file: Path) -> bool:
    try:
        bound = file.read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return False
    return bound.isdecimal() and int(bound) < _ENDLESS
