"""Runs inside the kernel of test_cgroup.py, as root: children with a bound on all their memory.

The arguments are the bounds in bytes; 0 is none.

The machine's files are there, read only. Prints a JSON object for each child. Every page of memory
and every start of a program is slow in this kernel, so there are few of both.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.kernel.cgroup import limited_cgroup
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox

GROUPS = Path("/sys/fs/cgroup")
WORKSPACE = Path("/run/workspace")
NOBODY = (65534, 65534)
MANY = """
import os, time
def hold():
    held = bytearray(12 << 20)
    for at in range(0, len(held), 4096): held[at] = 1
    time.sleep(1)
    os._exit(0)
pids = [os.fork() or hold() for _ in range(4)]
print(sum(os.waitpid(pid, 0)[1] != 0 for pid in pids))
"""
FORK = """
import os, signal
started = 0
try:
    while started < 400:
        if os.fork() == 0: signal.pause()
        started += 1
except OSError: pass
print(started)
"""
CHILDREN = {
    "many processes": ("/usr/bin/python3", "-IS", "-c", MANY),
    "temporary files": ("/bin/sh", "-c", "head -c 48M /dev/zero > /tmp/x; echo $?"),
}


def set_up() -> None:
    mounts = {"/proc": "proc", "/run": "tmpfs", "/sys": "sysfs"}
    for place, kind in {**mounts, str(GROUPS): "cgroup2"}.items():
        subprocess.run(["/bin/mount", "-t", kind, kind, place], check=True)
    for controller in ("memory", "cpu", "pids"):
        (GROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
    WORKSPACE.mkdir()
    os.chown(WORKSPACE, *NOBODY)


async def try_out(sandbox: BubblewrapSandbox, name: str, memory_bytes: int) -> None:
    during: list[str] = []
    priorities: list[str] = []

    def look(*_: int) -> None:
        during.extend(groups())
        priorities.extend((GROUPS / each / "cpu.weight.nice").read_text() for each in groups())

    limits = ResourceLimits(memory_bytes=memory_bytes)
    access = Access(write=(str(WORKSPACE),), limits=limits)
    request = ChildRequest(CHILDREN[name], str(WORKSPACE), {"PATH": "/usr/bin:/bin"}, access=access)
    result = await sandbox.run(request, on_started=look)
    told = {"said": result.stdout.strip(), "code": result.exit_code, "error": result.error}
    seen = {"during": len(during), "nice": [int(each) for each in priorities]}
    print(json.dumps({"name": name, "bound": memory_bytes, **told, **seen}))
    assert groups() == []


async def fork_as_root() -> None:
    """Start many processes as a child of root, for which only the cgroup has a limit."""
    sandbox = BubblewrapSandbox()
    access = Access(limits=ResourceLimits(processes=30))
    argv = ("/usr/bin/python3", "-IS", "-c", FORK)
    result = await sandbox.run(ChildRequest(argv, "/", {"PATH": "/usr/bin:/bin"}, access=access))
    await sandbox.close()
    print(json.dumps({"forked": result.stdout.strip(), "error": result.error}))


def groups() -> list[str]:
    return [path.name for path in GROUPS.glob("infloop-*")]


async def main() -> None:
    (GROUPS / "infloop-left").mkdir()
    with limited_cgroup(GROUPS, memory_bytes=1 << 20, processes=0):
        sandbox = BubblewrapSandbox(user=NOBODY)
        (kept,) = groups()
        assert kept != "infloop-left"
    assert sandbox.not_covered == ()
    await fork_as_root()
    for memory_bytes in map(int, sys.argv[1:]):
        for name in CHILDREN:
            await try_out(sandbox, name, memory_bytes)
    await sandbox.close()


if __name__ == "__main__":
    set_up()
    asyncio.run(main())
