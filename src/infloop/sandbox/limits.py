"""How a child's limits are put to the kernel as resource limits."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.sandbox.fence import Limits


# What bubblewrap itself needs, to which the limits apply as well.
_LEAST_FILES = 64
_LEAST_FILE_BYTES = 1 << 20


def resource_limits(limits: Limits) -> tuple[tuple[int, int], ...]:
    """Return pairs of a resource and its bound; no core dumps in any case."""
    # With 0 a core would still go to the program that many systems name for it: a child's memory
    # outside of its fence. To 1 byte alone the kernel gives neither a file nor a program.
    bounds = (
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files and max(limits.open_files, _LEAST_FILES)),
        (resource.RLIMIT_FSIZE, limits.file_bytes and max(limits.file_bytes, _LEAST_FILE_BYTES)),
        (resource.RLIMIT_DATA, limits.memory_bytes),
    )
    return ((resource.RLIMIT_CORE, 1), *(pair for pair in bounds if pair[1]))
