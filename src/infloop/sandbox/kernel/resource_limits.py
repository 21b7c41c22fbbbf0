"""A child's limits as setrlimit() values, and the memory of this machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.sandbox.access import ResourceLimits

# bubblewrap itself needs these, and the limits apply to it too.
_MIN_FILES = 64
_MIN_FILE_BYTES = 1 << 20
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def resource_limits(limits: ResourceLimits) -> tuple[tuple[int, int], ...]:
    """Return pairs of a resource and its limit; core dumps and a higher priority are always off."""
    # With 0 the kernel still pipes a core dump to the system's core handler, outside the sandbox.
    # With 1 it writes no file and starts no handler.
    values = (
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files and max(limits.open_files, _MIN_FILES)),
        (resource.RLIMIT_FSIZE, limits.file_bytes and max(limits.file_bytes, _MIN_FILE_BYTES)),
    )
    limited = (pair for pair in values if pair[1])
    fixed = ((resource.RLIMIT_CORE, 1), (resource.RLIMIT_NICE, 0))
    return (*fixed, *limited, *memory_limit(limits))


def memory_limit(limits: ResourceLimits) -> tuple[tuple[int, int], ...]:
    """Return the limit on memory as such a pair, if there is one."""
    return ((resource.RLIMIT_DATA, limits.memory_bytes),) if limits.memory_bytes else ()


def memory_here(container: Path = _CONTAINER) -> int:
    """Return the memory of this machine, or of the container that infloop runs in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(container.read_text()))
    except (OSError, ValueError):  # there is no such file, or it says `max`
        return machine
