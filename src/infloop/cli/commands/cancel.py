"""Stop a run, whichever process drives it.

The process that drives the run ends its children, settles the run as cancelled and this command
says so. A run that paused or whose process died is settled as cancelled here.

  infloop cancel 1f3a9c2e
  infloop cancel last
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings
    from infloop.store.interfaces.store import Store

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
    from infloop.cli.recording import record
    from infloop.errors import UsageError
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.runs.run_status import current_status

    async with app.open_audit(settings) as audit:
        async with app.open_store(settings) as store:
            row = await find_run(store.run_log, name)
            status = await current_status(row, store.liveness)
            if status in ("succeeded", "failed", "cancelled"):
                raise UsageError(f"run {row.id!r} has {status} already; there is nothing to stop")
            await record(audit, "run.stopped", row)
            if status in ("running", "stalled"):
                await store.liveness.request_stop(row.id, REASON, SystemClock().now_ms())
                return await _wait(store, row.id)
        async with app.open_service(settings, audit) as service:
            ended = await service.cancel_undriven(row.id, REASON)
    before = "it had paused" if status == "paused" else "its process had died"
    return _said(row.id, ended.status, f" ({before})")


def _said(run_id: str, status: str, more: str = "") -> int:
    from infloop.cli.view.advice import short

    print(f"{short(run_id)}  {status}{more}")
    return 0 if status == "cancelled" else 1


async def _wait(store: Store, run_id: str) -> int:
    """Wait until the run's process has done what it was asked for."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note
    from infloop.runtime.runs.following import follow

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _ in follow(store, run_id):
                pass
    except TimeoutError:
        note(
            f"the process that drives {short(run_id)} has not answered yet; it will stop the run "
            f"as soon as it does (`infloop why {short(run_id)}` shows how it is)"
        )
        return 1
    return _said(run_id, (await store.run_log.run(run_id)).status)
