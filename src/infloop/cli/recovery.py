"""Settles what a crash left behind, and says so; for the commands that start a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.advice import short
from infloop.cli.view.terminal import note

if TYPE_CHECKING:
    from infloop.application.application import Application


async def recover(application: Application) -> None:
    """Settle the runs, children and worktrees of dead processes.

    Runs whose workflow asks to be resumed are left to the daemon: it knows which of them this
    process can take, and how many.
    """
    found = await application.runs.recover()
    for line in found.messages:
        note(line)
    for run_id in found.failed:
        note(f"run {short(run_id)} was interrupted by a crash and is recorded as failed")
