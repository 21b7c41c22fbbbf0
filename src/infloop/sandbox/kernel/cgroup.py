"""Limits the memory of a child with all its processes, where a cgroup v2 is delegated to us.

With the pids controller the number of its processes is limited too. With the cpu controller the
child also gets a lower weight than the server.

cgroups are directories. The server creates one for each child in its own cgroup, or in one above
it, if the service manager has made that writable and enabled the memory controller for its
children. Otherwise only the memory of single processes is limited.

A cgroup is locked while its server lives. The next server removes those that a killed one left.
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
_CHILD_NICE = 10


def find_parent_cgroup(mount: Path = _MOUNT, own: Path = _OWN) -> Path | None:
    """Return the nearest cgroup in which we can create cgroups with a memory limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return None
    cgroup = mount / path
    for candidate in (cgroup, *cgroup.parents):
        if not candidate.is_relative_to(mount):
            break
        if _delegates_memory(candidate):
            return candidate
    return None


def limits_processes(parent: Path) -> bool:
    """Return whether the cgroups in this one can limit their number of processes."""
    return "pids" in (parent / "cgroup.subtree_control").read_text().split()


@contextlib.contextmanager
def limited_cgroup(parent: Path, *, memory_bytes: int, processes: int) -> Iterator[int]:
    """Create a cgroup; yield a descriptor: a process id written to it becomes a member.

    A limit of 0 sets none.
    """
    cgroup = parent / f"{_PREFIX}{secrets.token_hex(8)}"
    cgroup.mkdir()
    try:
        with try_lock_directory(cgroup) as locked:
            if not locked:
                raise BlockingIOError(f"another process removes the cgroup {str(cgroup)!r}")
            with _with_limits(cgroup, memory_bytes, processes) as members:
                yield members
    finally:
        cgroup.rmdir()


def remove_abandoned_cgroups(parent: Path) -> None:
    """Remove the cgroups of servers that are gone, unless processes are left in them."""
    for cgroup in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), try_lock_directory(cgroup) as locked:
            if locked:
                cgroup.rmdir()


@contextlib.contextmanager
def _with_limits(cgroup: Path, memory_bytes: int, processes: int) -> Iterator[int]:
    (cgroup / "memory.max").write_text(str(memory_bytes or "max"))
    _set_if_there(cgroup / "pids.max", str(processes or "max"))
    _set_if_there(cgroup / "memory.swap.max", "0")
    _set_if_there(cgroup / "cpu.weight.nice", str(_CHILD_NICE))
    members = os.open(cgroup / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield members
    finally:
        os.close(members)


def _set_if_there(file: Path, value: str) -> None:
    with contextlib.suppress(FileNotFoundError), file.open("r+") as setting:
        setting.write(value)


def _delegates_memory(cgroup: Path) -> bool:
    try:
        controllers = (cgroup / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(cgroup, os.W_OK) and os.access(cgroup / "cgroup.procs", os.W_OK)
    return writable and "memory" in controllers
