"""A bound on the memory of a child with all its processes, where cgroup v2 lets us have one.

The kernel bounds a group of processes, and groups are directories. One of ours can be made where
the service manager has given us a directory that hands the memory controller down to its members:
the server's own group, or one above it. Where there is none, only single processes are bounded.

A group is locked while its server lives. One that a killed server left is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.lowlevel.directory_lock import try_lock_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "infloop-"


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
    group = parent / f"{_PREFIX}{secrets.token_hex(8)}"
    group.mkdir()
    try:
        with try_lock_directory(group) as locked:
            if not locked:
                raise BlockingIOError(f"another process removes the cgroup {str(group)!r}")
            with _joinable(group, memory_bytes) as joining:
                yield joining
    finally:
        group.rmdir()


def remove_left(parent: Path) -> None:
    """Remove the groups of servers that are gone; their processes are gone too, or it stays."""
    for group in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), try_lock_directory(group) as locked:
            if locked:
                group.rmdir()


@contextlib.contextmanager
def _joinable(group: Path, memory_bytes: int) -> Iterator[int]:
    (group / "memory.max").write_text(str(memory_bytes))
    with contextlib.suppress(FileNotFoundError):
        (group / "memory.swap.max").write_text("0")
    joining = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield joining
    finally:
        os.close(joining)


def _hands_memory_down(group: Path) -> bool:
    try:
        controllers = (group / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return writable and "memory" in controllers
