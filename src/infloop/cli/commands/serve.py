"""Serve the HTTP API, and run what waits in the queue.

Without any setting it listens on 127.0.0.1 only, and asks for no token. An address that others can
reach needs INFLOOP_API_TOKEN. Ctrl+C or SIGTERM stops it: children end, runs are settled, and what
waits stays in the queue for the next start.

  infloop serve
  infloop serve --port 8080
  INFLOOP_API_TOKEN=$(openssl rand -hex 32) infloop serve --host 0.0.0.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.model.values import JsonObject
    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("--host", help="where to listen; default: INFLOOP_HOST, or 127.0.0.1")
    parser.add_argument(
        "--port", type=_port, help="default: INFLOOP_PORT, or 3000, or the next that is free"
    )


def _port(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text[:9]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from infloop import app

    chosen = app.settings()
    given = {"host": args.host, "port": args.port}
    asked = {name: value for name, value in given.items() if value is not None}
    return app.run_async(_serve(chosen.model_copy(update=asked)))


async def _serve(chosen: Settings) -> int:
    import asyncio
    from contextlib import nullcontext

    from infloop import app
    from infloop.cli.view.terminal import note
    from infloop.cli.watching import on_interrupt
    from infloop.model.audit import SYSTEM
    from infloop.web.http_server import address, listen, listen_for_metrics, serve

    stopping = asyncio.Event()
    exposure = app.server_exposure(chosen)
    for line in exposure.warnings:
        note(line)
    port = chosen.metrics_port
    with (
        listen(chosen.host, chosen.port) as listening,
        listen_for_metrics(port) if port else nullcontext() as metrics_socket,
        on_interrupt(stopping.set, _give_up),
    ):
        async with app.open_server(chosen) as server:
            application = server.application
            if reason := await application.runs.unconfined_reason():
                note(f"isolation: host, so children run as you: {reason}")
            await _recover(application)
            url = address(listening, chosen.host)
            details: JsonObject = {"address": url, "open": exposure.open, "metricsPort": port}
            await application.audit.record("server.started", SYSTEM, details=details)
            metrics = (server.metrics, metrics_socket) if metrics_socket else None

            def ready() -> None:
                print(f"infloop serves {url}", flush=True)
                server.prepare()

            streams = server.web.streams
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    serve(server.answers, streams, listening, stopping, ready, metrics)
                )
                async with server.daemon.running("the server was stopped"):
                    await stopping.wait()
            await application.audit.record("server.stopped", SYSTEM)
    return 0


async def _recover(application: Application) -> None:
    """Settle what a crash left behind, and go on with the runs that ask for it."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note
    from infloop.errors import InfloopError

    found = await application.runs.recover()
    for line in found.messages:
        note(line)
    for run_id in found.failed:
        note(f"run {short(run_id)} was interrupted by a crash and is recorded as failed")
    for run_id in found.resumable:
        try:
            await application.runs.continue_recovered(run_id)
        except InfloopError as error:
            note(f"run {short(run_id)} cannot go on: {error}")


def _give_up() -> None:
    """End this process now; its keepers see to it that no child is left."""
    import os

    os._exit(130)
