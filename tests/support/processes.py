"""Processes as tests see them: which are alive, and how much memory this one has used."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

from infloop.sandbox.keepers.keeper import PR_SET_DUMPABLE, prctl

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
DEADLINE_S = 90.0


def new_token() -> str:
    """A number that `sleep` accepts and that no other process has on its command line."""
    return f"1000.{random.randrange(10**15, 10**16)}"


def alive(token: str) -> list[int]:
    """Living processes with the token on their command line (the dead have none)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def program_name(pid: int) -> str:
    """The name of a process; empty once it has ended and was reaped."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def reset_peak() -> None:
    """Let the peak of this process's memory start anew.

    A test that opened the server's parts has hidden this process from its own user, and with it
    this file.
    """
    prctl(PR_SET_DUMPABLE, 1)
    Path("/proc/self/clear_refs").write_text("5")


def peak_kib() -> int:
    """The most memory that this process had since `reset_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


SERVER = """
import asyncio, sys
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox

async def main():
    child = ChildRequest(argv=("sh", "-c", sys.argv[1]), cwd="/", env={"PATH": "/usr/bin:/bin"})
    await HostSandbox().run(child, on_output=lambda stream, text: print(text, flush=True))

asyncio.run(main())
"""
