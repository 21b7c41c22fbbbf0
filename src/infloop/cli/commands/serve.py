"""Serve the HTTP API, and start the runs in the queue.

By default it listens on 127.0.0.1 only, and asks for no token: all programs of your user may use
it, and no other user. With --token auto it makes a token, keeps it in the data directory, and
prints a link that logs a browser in once. An address that others can reach needs a token. Ctrl+C or
SIGTERM stops it: children end, runs are settled, and queued runs stay in the queue for the next
start.

  infloop serve --token auto
  infloop serve --port 8080
  infloop serve --no-runs
  INFLOOP_API_TOKEN=$(openssl rand -hex 32) infloop serve --host 0.0.0.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_database

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings
    from infloop.web.dependencies import WebDependencies


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="where to listen; default: INFLOOP_HOST, or 127.0.0.1")
    parser.add_argument(
        "--port", type=_port, help="default: INFLOOP_PORT, or 3000, or the next that is free"
    )
    parser.add_argument(
        "--token",
        choices=("auto",),
        help="make a token, or take the one of the last start; default: INFLOOP_API_TOKEN, or none",
    )

    add_database(parser)
    parser.add_argument(
        "--no-runs", action="store_true", help="accept runs, and leave them to workers"
    )


def _port(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text[:9]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    chosen = app.settings()
    given = {
        "host": args.host,
        "port": args.port,
        "api_token": args.token,
        "database": args.database,
        "max_concurrent_runs": 0 if args.no_runs else None,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return app.run_async(_serve(chosen.with_options(**changed)))


async def _serve(chosen: Settings) -> int:
    import asyncio
    from contextlib import nullcontext

    from infloop import app
    from infloop.cli.interrupts import exit_at_once, on_interrupt
    from infloop.cli.recovery import recover
    from infloop.cli.view.terminal import note
    from infloop.web.http_server import (
        address,
        bind_metrics_port,
        bind_port,
        local_address,
        serve,
    )

    stopping = asyncio.Event()
    exposure = app.server_exposure(chosen)
    for line in exposure.warnings:
        note(line)
    port = chosen.metrics_port
    with (
        app.OwnPorts() as own_ports,
        bind_port(chosen.host, chosen.port, own_ports.announce) as api_socket,
        bind_metrics_port(port, own_ports.announce) if port else nullcontext() as metrics_socket,
        on_interrupt(lambda _: stopping.set(), exit_at_once),
    ):
        async with app.open_server(chosen) as server:
            application = server.application
            for name in await application.triggers.short_secrets():
                note(f"the secret of trigger {name!r} is short enough to be guessed")
            for name, problems in (await application.triggers.unable_to_start()).items():
                for problem in problems:
                    note(f"trigger {name!r}: {problem}")
            await recover(application)
            await server.daemon.take_over()
            url = address(api_socket, chosen.host)
            isolation = await application.runs.isolation()
            metrics = (server.metrics, metrics_socket) if metrics_socket else None

            def ready() -> None:
                print(f"infloop serves {url}", flush=True)
                if advice := _how_to_log_in(server.web, local_address(api_socket), chosen):
                    print(advice, flush=True)
                print(isolation, flush=True)
                server.prepare()

            web = server.web
            async with (
                application.audit.server(address=url, is_open=exposure.open, metrics_port=port),
                asyncio.TaskGroup() as group,
            ):
                group.create_task(
                    serve(
                        server.answers,
                        web.connections,
                        web.streams,
                        api_socket,
                        stopping,
                        ready,
                        metrics,
                    )
                )
                async with server.daemon.running("the server was stopped"):
                    await stopping.wait()
    return 0


def _how_to_log_in(web: WebDependencies, url: str, chosen: Settings) -> str:
    """Return the link of a server that made its token, or advice where there is none."""
    from infloop.settings import AUTO_TOKEN

    if chosen.api_token == AUTO_TOKEN:
        return f"log in, once: {url}/login?code={web.logins.make_code()}"
    if web.exposure.open and not web.exposure.any_user:
        return (
            "no token: all programs of your user may use this server; "
            "`infloop serve --token auto` makes one"
        )
    return ""
