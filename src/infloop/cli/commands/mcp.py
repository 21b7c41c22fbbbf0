"""Let a program that speaks the Model Context Protocol start workflows and follow them.

The program starts this command itself and talks to it on standard input and output. Runs work in
the directory in which it is started, and end with it; those that have not started yet stay in the
queue for `infloop serve`, which has the same tools at /api/mcp.

  infloop mcp
  claude mcp add infloop -- infloop mcp
  codex mcp add infloop -- infloop mcp
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_serve(app.settings()))


async def _serve(chosen: Settings) -> int:
    import asyncio

    from infloop import app
    from infloop.cli.interrupts import exit_at_once, on_interrupt
    from infloop.cli.recovery import recover
    from infloop.mcp_server.stdio import Wire, serve_stdio

    stopping = asyncio.Event()
    wire = Wire(*_take_standard_streams())
    with on_interrupt(lambda _: stopping.set(), exit_at_once):
        async with app.open_mcp(chosen) as process:
            await recover(process.tools.application)
            async with process.daemon.running("the MCP client left"):
                await serve_stdio(process.tools, wire, stopping)
    return 0


def _take_standard_streams() -> tuple[int, int]:
    """Return the client's input and output; from now on everything else goes to standard error."""
    import os

    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return source, target
