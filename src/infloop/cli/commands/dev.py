"""Watch files, keep processes running and react to changes and events, as `devloop.toml` says.

Without an action it runs the loop of ./devloop.toml. An existing devloop configuration works
unchanged. Ctrl+C, SIGTERM and a closed terminal end it with everything it started.

  infloop dev
  infloop dev run --config site/devloop.toml
  infloop dev validate
  infloop dev docs security
  infloop dev logs server
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.commands.docs import ALIASES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from infloop.model.dev.reading import ConfigError, DevFile
    from infloop.settings import Settings

TOPICS = {
    **ALIASES,
    "development": "architecture",
    "security": "security",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    import argparse

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--config", metavar="FILE", help="the configuration; default: ./devloop.toml"
    )
    parser.set_defaults(action="run", config=None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("run", parents=[shared], help="run the loop (the default)")
    actions.add_parser("validate", parents=[shared], help="check the configuration")
    docs = actions.add_parser("docs", help="read the documentation")
    docs.add_argument("topic", metavar="TOPIC", choices=TOPICS, help=", ".join(TOPICS))
    logs = actions.add_parser("logs", help="print the last output of a process of a running loop")
    logs.add_argument("name", metavar="NAME", help="a process or a hook")


def main(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.model.dev.reading import ConfigError

    if args.action == "docs":
        return _docs(args.topic)
    if args.action == "logs":
        return app.run_async(_logs(args.name))
    try:
        return _load(args)
    except ConfigError as error:
        return _refuse(error)


def _load(args: argparse.Namespace) -> int:
    from infloop import app

    chosen = app.settings()
    file = app.load_dev_file(args.config, app.started_in())
    if args.action == "validate":
        _warn(file.warnings)
        return 0
    return app.run_async(_run(chosen, file))


def _warn(warnings: Sequence[str]) -> None:
    from infloop.cli.view.terminal import note

    for each in warnings:
        note(f"warning: {each}")


def _refuse(error: ConfigError) -> int:
    """Print an error with its causes, as devloop does; its exit code is 1."""
    from infloop.cli.view.terminal import note

    note(f"Error: {error}")
    if error.causes:
        note("\nCaused by:")
        for number, cause in enumerate(error.causes):
            note(f"    {f'{number}: ' if len(error.causes) > 1 else ''}{cause}")
    return 1


async def _run(chosen: Settings, file: DevFile) -> int:
    import asyncio
    import sys
    from contextlib import nullcontext

    from infloop import app
    from infloop.cli.interrupts import exit_at_once, on_interrupt
    from infloop.cli.view.dev_lines import DevLines
    from infloop.cli.view.dev_terminal import StatusLine
    from infloop.errors import SettingsError
    from infloop.model.dev.reading import ConfigError

    stopping = asyncio.Event()
    lines = DevLines(colours=sys.stdout.isatty() and not app.no_colour())

    def stop(reason: str) -> None:
        stopping.set()
        lines.log("INFO", "received ctrl-c, shutting down" if "terminal" in reason else reason)

    for each in file.warnings:
        lines.log("WARN", each)
    with on_interrupt(stop, exit_at_once):
        try:
            async with app.open_dev(chosen, file, lines) as engine:
                line = StatusLine(
                    lines, engine.processes.status, engine.request_restart, stopping.set
                )
                on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
                with line.shown() if on_terminal else nullcontext():
                    await engine.run(stopping)
        except SettingsError as error:
            raise ConfigError(str(error)) from None
    return 0


def _docs(topic: str) -> int:
    from infloop.cli.commands.docs import show, topics

    show(topics()[TOPICS[topic]].read_text(encoding="utf-8"))
    return 0


async def _logs(name: str) -> int:
    from infloop import app
    from infloop.cli.view.dev_lines import keep_colours

    async with app.open_files(app.settings()) as files:
        for line in files.dev_loops.logs(name).lines:
            print(keep_colours(line))
    return 0
