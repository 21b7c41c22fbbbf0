"""A bound on the memory of a child with all its processes, where cgroup v2 lets us have one.

The kernel bounds a group of processes, and groups are directories. One of ours can be made where
the service manager has given us a directory that hands the memory controller down to its members:
the server's own group, or one above it. Where there is none, only single processes are bounded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def find_parent(mount: Path = _MOUNT, own: Path = _OWN) -> Path | None:
    """Return the nearest group in which we can make groups that bound memory."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return None
    group = mount / path
    for candidate in (group, *group.parents):
        if not candidate.is_relative_to(mount):
            break
        if _hands_memory_down(candidate):
            return candidate
    return None


@contextlib.contextmanager
def bounded_group(parent: Path, memory_bytes: int) -> Iterator[int]:
    """Make a group; yield the descriptor to which the id of its first process is written."""
    group = parent / f"infloop-{secrets.token_hex(8)}"
    group.mkdir()
    try:
        (group / "memory.max").write_text(str(memory_bytes))
        with contextlib.suppress(FileNotFoundError):
            (group / "memory.swap.max").write_text("0")
        joining = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield joining
        finally:
            os.close(joining)
    finally:
        group.rmdir()


def _hands_memory_down(group: Path) -> bool:
    try:
        controllers = (group / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return writable and "memory" in controllers
