"""List, add or remove connections: machines with model servers, one provider per port.

  infloop connections
  infloop connections add "My server" http://192.168.1.20 --port 18643 --token
  infloop connections add Laptop http://127.0.0.1 --port 8080=llama-3.3
  infloop connections remove my-server

A port without a model is asked which one it serves. A token is read from the terminal or from
standard input, is stored in a file that only you can read, and is never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import read_secret

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import FileApplication
    from infloop.application.connections import ConnectionEntry, ConnectionRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    actions.add_parser("list", help="list the connections and their providers (the default)")
    add = actions.add_parser("add", help="write a new connection")
    add.add_argument("label", metavar="LABEL", help="what people call it")
    add.add_argument("host", metavar="HOST", help="http://name or https://name, without path")
    add.add_argument(
        "--port",
        metavar="PORT[=MODEL]",
        action="append",
        required=True,
        help="a model server; can be repeated",
    )
    add.add_argument("--token", action="store_true", help="ask for the servers' bearer token")
    add.add_argument("--id", metavar="ID", default="", help="its id; made from LABEL by default")
    remove = actions.add_parser("remove", help="delete a connection and its token")
    remove.add_argument("id", metavar="ID", help="the connection's id")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_act(args))


async def _act(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE

    async with app.open_files(app.settings()) as application:
        match args.action:
            case "add":
                await _add(application, args)
            case "remove":
                await application.connections.delete(args.id, COMMAND_LINE)
                print(f"removed {args.id}")
            case _:
                await _list(application)
    return 0


async def _list(application: FileApplication) -> None:
    from infloop.cli.view.terminal import INDENT, note, one_line, problem_lines

    found = await application.connections.all()
    if not found.connections and not found.unusable:
        note("there are no connections; `infloop connections add` makes one")
    for entry in found.connections:
        for line in _lines(entry):
            print(line)
    for unusable in found.unusable:
        print(one_line(f"{unusable.id}: cannot be used"))
        for line in problem_lines(unusable.problems, INDENT):
            print(line)


def _lines(entry: ConnectionEntry) -> list[str]:
    from infloop.cli.view.terminal import INDENT, one_line, problem_lines

    token = "set" if entry.has_token else "not set"
    return [
        one_line(f"{entry.id}: {entry.label}, {entry.host}, token {token}"),
        *(one_line(f"{INDENT}{one.id}  at {one.base_url}") for one in entry.providers),
        *problem_lines(entry.problems, INDENT),
    ]


async def _add(application: FileApplication, args: argparse.Namespace) -> None:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.terminal import one_line

    request = _request(args, read_secret("token") if args.token else None)
    added = await application.connections.add(request, COMMAND_LINE)
    providers = ", ".join(each.id for each in added.connection.providers)
    print(one_line(f"added {added.connection.id}: {providers}"))


def _request(args: argparse.Namespace, token: str | None) -> ConnectionRequest:
    from infloop.application.connections import ConnectionRequest

    named = [text.partition("=") for text in args.port]
    return ConnectionRequest(
        id=args.id or None,
        label=args.label,
        host=args.host,
        token=token,
        ports=[
            {"port": int(port) if port.isdecimal() else port, "profile": model or None}
            for port, _, model in named
        ],
    )
