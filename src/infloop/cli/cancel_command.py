"""Stop a run, whichever process drives it.

The process that drives the run ends its children, settles the run as cancelled and this command
says so. A run whose process died is settled as cancelled here.

  infloop cancel 1f3a9c2e
  infloop cancel last
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.cli.naming import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.app import History
    from infloop.settings import Settings

REASON = "stopped by `infloop cancel`"
PATIENCE_SECONDS = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Ask for the run to stop and wait until it has."""
    from infloop import app

    return app.run_async(_cancel(app.settings(), args.run))


async def _cancel(settings: Settings, name: str) -> int:
    from infloop import app
    from infloop.cli.advice import short
    from infloop.errors import UsageError
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.recovery import shown_status

    async with app.open_history(settings) as history:
        row = await find_run(history.journal, name)
        status = await shown_status(row, history.instances)
        if status in ("running", "stalled"):
            await history.journal.request_stop(row.id, REASON, SystemClock().now_ms())
            return await _wait(history, row.id)
    if status == "paused":
        await _settle_paused(settings, row.id)
        print(f"{short(row.id)}  cancelled (it had paused)")
        return 0
    if status != "interrupted":
        raise UsageError(f"run {row.id!r} has {status} already; there is nothing to stop")
    await _settle(settings, row.id)
    print(f"{short(row.id)}  cancelled (its process had died)")
    return 0


async def _wait(history: History, run_id: str) -> int:
    """Wait until the run's process has done what it was asked for."""
    from infloop.cli.advice import short
    from infloop.cli.terminal import note
    from infloop.runtime.service import follow

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _ in follow(history.journal, history.instances, run_id):
                pass
    except TimeoutError:
        note(
            f"the process that drives {short(run_id)} has not answered yet; it will stop the run "
            f"as soon as it does (`infloop why {short(run_id)}` shows how it is)"
        )
        return 1
    row = await history.journal.run(run_id)
    print(f"{short(run_id)}  {row.status}")
    return 0 if row.status == "cancelled" else 1


async def _settle(settings: Settings, run_id: str) -> None:
    """Take the run over and stop it before any step begins again."""
    from infloop import app

    async with app.open_service(settings) as service:
        await service.resume(run_id)
        outcome = asyncio.create_task(service.wait(run_id))
        await service.stop(run_id, REASON)
        await outcome


async def _settle_paused(settings: Settings, run_id: str) -> None:
    from infloop import app

    async with app.open_service(settings) as service:
        await service.cancel_paused(run_id, REASON)
