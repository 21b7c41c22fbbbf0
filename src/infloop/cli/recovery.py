"""Settles what a crash left behind, and says so; for the commands that start a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.advice import short
from infloop.cli.view.terminal import note

if TYPE_CHECKING:
    from infloop.application.application import Application
    from infloop.application.runs.models import Recovery


async def recover(application: Application) -> Recovery:
    """Settle the runs, children and worktrees of dead processes."""
    found = await application.runs.recover()
    for line in found.messages:
        note(line)
    for run_id in found.failed:
        note(f"run {short(run_id)} was interrupted by a crash and is recorded as failed")
    return found


async def recover_and_resume(application: Application) -> None:
    """Recover, and continue the runs whose workflow asks for it."""
    from infloop.errors import InfloopError

    for run_id in (await recover(application)).resumable:
        try:
            await application.runs.continue_recovered(run_id)
        except InfloopError as error:
            note(f"run {short(run_id)} cannot continue: {error}")
