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

    from infloop.application.application import Application
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

    stopping = asyncio.Event()
    wire = Wire(*_apart_from_us())
    with on_interrupt(stopping.set, _give_up):
        async with app.open_mcp(chosen) as process:
            await _recover(process.tools.application)
            async with process.daemon.running("the MCP client left"):
                await serve_stdio(process.tools, wire, stopping)
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


async def _recover(application: Application) -> None:
    """Settle what a crash left behind, and say so where the client keeps its logs."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note

    found = await application.runs.recover()
    for run_id in found.failed:
        note(f"run {short(run_id)} was interrupted by a crash and is recorded as failed")
    for line in found.messages:
        note(line)
    if reason := await application.runs.unconfined_reason():
        note(f"isolation: host, so children run as you: {reason}")


def _give_up() -> None:
    """End this process now; its keepers see to it that no child is left."""
    import os

    os._exit(130)
