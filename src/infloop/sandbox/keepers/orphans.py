"""Ends processes whose keeper died.

When a keeper is killed, its processes become children of the next subreaper above: the server. A
child of the server that is neither a keeper nor in the server's session is such an orphan, because
every child tree has sessions of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from infloop.sandbox.keepers.keeper import (
    PR_SET_CHILD_SUBREAPER,
    Process,
    all_processes,
    descendants,
    prctl,
    send_signal,
)

_TIMEOUT_S = 3.0
_PAUSE_S = 0.005


def adopt_orphans() -> None:
    """Make this process a subreaper: descendants that lose their parent become its children."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


KEEPER_PIDS: set[int] = set()
"""Keepers of all pools that this process has started and not yet reaped.

Global, because the kernel's list of this process's children does not tell pools apart.
"""


async def end_orphans() -> int:
    """Kill all orphans and their descendants; return how many survive."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_S
    while orphans := _find_orphans():
        if loop.time() > deadline:
            return len(orphans)
        for process in orphans:
            send_signal(process, signal.SIGKILL)
        await asyncio.sleep(_PAUSE_S)
    return 0


def _find_orphans() -> list[Process]:
    """Return the orphans and their descendants.

    Dead orphans are reaped and returned too: their children may have become ours since the scan.
    """
    me, session = os.getpid(), os.getsid(0)
    table = all_processes()
    roots = [
        process
        for process in table
        if process.parent == me and process.session != session and process.pid not in KEEPER_PIDS
    ]
    for root in roots:
        if not root.alive:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(root.pid, os.WNOHANG)
    return roots + descendants({root.pid for root in roots if root.alive}, table)
