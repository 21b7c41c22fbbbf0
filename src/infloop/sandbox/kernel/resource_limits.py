"""How a child's limits are put to the kernel as resource limits, and what there is to share."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.sandbox.fence import Limits


# What bubblewrap itself needs, to which the limits apply as well.
_LEAST_FILES = 64
_LEAST_FILE_BYTES = 1 << 20
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def resource_limits(limits: Limits) -> tuple[tuple[int, int], ...]:
    """Return pairs of a resource and its bound; no core dumps in any case."""
    # With 0 a core would still go to the program that many systems name for it: a child's memory
    # outside of its fence. To 1 byte alone the kernel gives neither a file nor a program.
    bounds = (
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files and max(limits.open_files, _LEAST_FILES)),
        (resource.RLIMIT_FSIZE, limits.file_bytes and max(limits.file_bytes, _LEAST_FILE_BYTES)),
    )
    set_ones = (pair for pair in bounds if pair[1])
    return ((resource.RLIMIT_CORE, 1), *set_ones, *memory_limit(limits))


def memory_limit(limits: Limits) -> tuple[tuple[int, int], ...]:
    """Return the bound on memory alone, as such a pair, if there is one."""
    return ((resource.RLIMIT_DATA, limits.memory_bytes),) if limits.memory_bytes else ()


def memory_here(container: Path = _CONTAINER) -> int:
    """Return the memory of this machine, or of the container that we are in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(container.read_text()))
    except (OSError, ValueError):  # there is none, or it says `max`
        return machine
