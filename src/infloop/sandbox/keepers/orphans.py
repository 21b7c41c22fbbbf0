"""Processes whose keeper died.

When a keeper is killed, what it looked after falls to the next subreaper above: the server. They
are told from the server's own children by their session, because every child tree has sessions of
its own: a child of this process that is neither a keeper nor in the server's session is a stray.
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
    below,
    prctl,
    send_signal,
)

_PATIENCE_S = 3.0
_TICK_S = 0.005


def adopt_orphans() -> None:
    """Make this process the parent of everything below it that loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


KEEPERS: set[int] = set()
"""The keepers this process has started and not yet reaped, of every pool: the kernel's list of
our children does not tell pools apart either."""


async def end_strays() -> int:
    """Kill all strays and what is below them; return how many would not go."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while strays := _strays():
        if loop.time() > deadline:
            return len(strays)
        for process in strays:
            send_signal(process, signal.SIGKILL)
        await asyncio.sleep(_TICK_S)
    return 0


def _strays() -> list[Process]:
    """Return who is left; the dead are reaped, and count: they may have left us their children."""
    me, session = os.getpid(), os.getsid(0)
    table = all_processes()
    roots = [
        process
        for process in table
        if process.parent == me and process.session != session and process.pid not in KEEPERS
    ]
    for root in roots:
        if not root.alive:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(root.pid, os.WNOHANG)
    return roots + below({root.pid for root in roots if root.alive}, table)
