"""Let a program that speaks the Model Context Protocol start workflows and follow them.

The program starts this command itself and speaks to it on standard input and output. Runs work in
the directory in which it is started, and end with it; those that have not begun yet stay in the
queue for `infloop serve`, which has the same tools at /api/mcp.

  infloop mcp
  claude mcp add infloop -- infloop mcp
  codex mcp add infloop -- infloop mcp
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.runtime.runs.service import RunService
    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing can be given."""


def main(args: argparse.Namespace) -> int:
    """Answer one client until it leaves."""
    from infloop import app

    return app.run_async(_serve(app.settings()))


async def _serve(chosen: Settings) -> int:
    import asyncio

    from infloop import app
    from infloop.cli.watching import on_interrupt
    from infloop.mcp_server.stdio import Wire, serve_stdio
    from infloop.runtime.runs.shutdown import settle_runs

    stopping = asyncio.Event()
    wire = Wire(*_apart_from_us())
    with on_interrupt(stopping.set, _give_up):
        async with app.open_mcp(chosen) as parts:
            await _recover(parts.service)
            async with asyncio.TaskGroup() as group:
                dispatching = group.create_task(parts.dispatcher.run())
                await serve_stdio(parts, wire, stopping)
                dispatching.cancel()
            await settle_runs(parts.service, "the MCP client left")
            await parts.service.settle_audit()
    return 0


def _apart_from_us() -> tuple[int, int]:
    """Return the client's ends; what this process and its children print is for standard error."""
    import os

    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target


async def _recover(service: RunService) -> None:
    """Record runs whose process died, and say so where the client keeps its logs."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note

    found = await service.recover()
    for run_id in found.failed:
        note(f"run {short(run_id)} was interrupted by a crash and is recorded as failed")
    for line in found.files:
        note(line)
    if service.why_host:
        note(f"isolation: host, so children run as you: {service.why_host}")


def _give_up() -> None:
    """End this process now; its keepers see to it that no child is left."""
    import os

    os._exit(130)
