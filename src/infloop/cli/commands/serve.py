"""Serve the HTTP API, and start the runs in the queue.

By default it listens on 127.0.0.1 only, and asks for no token. An address that others can reach
needs INFLOOP_API_TOKEN. Ctrl+C or SIGTERM stops it: children end, runs are settled, and queued runs
stay in the queue for the next start.

  infloop serve
  infloop serve --port 8080
  INFLOOP_API_TOKEN=$(openssl rand -hex 32) infloop serve --host 0.0.0.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    from infloop import app

    chosen = app.settings()
    given = {"host": args.host, "port": args.port}
    changed = {name: value for name, value in given.items() if value is not None}
    return app.run_async(_serve(chosen.model_copy(update=changed)))


async def _serve(chosen: Settings) -> int:
    import asyncio
    from contextlib import nullcontext

    from infloop import app
    from infloop.cli.interrupts import exit_at_once, on_interrupt
    from infloop.cli.recovery import note_unconfined, recover_and_resume
    from infloop.cli.view.terminal import note
    from infloop.web.http_server import address, listen, listen_for_metrics, serve

    stopping = asyncio.Event()
    exposure = app.server_exposure(chosen)
    for line in exposure.warnings:
        note(line)
    port = chosen.metrics_port
    with (
        listen(chosen.host, chosen.port) as api_socket,
        listen_for_metrics(port) if port else nullcontext() as metrics_socket,
        on_interrupt(stopping.set, exit_at_once),
    ):
        async with app.open_server(chosen) as server:
            application = server.application
            await note_unconfined(application)
            await recover_and_resume(application)
            url = address(api_socket, chosen.host)
            metrics = (server.metrics, metrics_socket) if metrics_socket else None

            def ready() -> None:
                print(f"infloop serves {url}", flush=True)
                server.prepare()

            streams = server.web.streams
            async with (
                application.audit.server(address=url, is_open=exposure.open, metrics_port=port),
                asyncio.TaskGroup() as group,
            ):
                group.create_task(
                    serve(server.answers, streams, api_socket, stopping, ready, metrics)
                )
                async with server.daemon.running("the server was stopped"):
                    await stopping.wait()
    return 0
