"""List, add or remove connections: machines with model servers, one provider per port.

  infloop connections
  infloop connections add "My server" http://192.168.1.20 --port 18643 --token
  infloop connections add Laptop http://127.0.0.1 --port 8080=llama-3.3
  infloop connections remove my-server

A port without a model is asked which one it serves. A token is read from the terminal or from
standard input, is kept in a file that only you can read, and is never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.catalog.connections import ConnectionFile
    from infloop.model.connection import Connection
    from infloop.model.values import JsonObject
    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
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
        help="a model server; may be repeated",
    )
    add.add_argument("--token", action="store_true", help="ask for the servers' bearer token")
    add.add_argument("--id", metavar="ID", default="", help="its id; made from LABEL by default")
    remove = actions.add_parser("remove", help="delete a connection and its token")
    remove.add_argument("id", metavar="ID", help="the connection's id")


def main(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    from infloop import app

    chosen = app.settings()
    match args.action:
        case "add":
            return _add(chosen, args)
        case "remove":
            from infloop.catalog.connections import remove

            remove(chosen.connections, args.id)
            print(f"removed {args.id}")
            return 0
        case _:
            return _list(chosen)


def _list(chosen: Settings) -> int:
    from infloop.catalog.connections import connections
    from infloop.cli.view.terminal import note

    entries = connections(chosen.connections)
    if not entries:
        note("there are no connections; `infloop connections add` makes one")
    for entry in entries:
        for line in _lines(entry):
            print(line)
    return 0


def _lines(entry: ConnectionFile) -> list[str]:
    from infloop.cli.view.terminal import INDENT, one_line, problem_lines

    connection = entry.connection
    said = "cannot be used"
    if connection is not None:
        token = "set" if connection.token else "not set"
        said = f"{connection.label}, {connection.host}, token {token}"
    return [
        one_line(f"{entry.id}: {said}"),
        *(
            one_line(f"{INDENT}{provider.id}  at {provider.base_url}")
            for provider in entry.providers
        ),
        *problem_lines(entry.problems, INDENT),
    ]


def _add(chosen: Settings, args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.catalog.connections import ConnectionFile, save, unused_id
    from infloop.cli.view.terminal import one_line

    name = unused_id(chosen.connections, args.id, args.label)
    written = _connection(args, _read_token() if args.token else None)
    connection = app.run_async(_with_models(name, written))
    path = save(chosen.connections, name, connection)
    providers = ConnectionFile(name, path, connection).providers
    print(one_line(f"added {name}: {', '.join(provider.id for provider in providers)}"))
    return 0


def _connection(args: argparse.Namespace, token: str | None) -> Connection:
    """Return what the arguments describe, held to the same rules as a file."""
    from infloop.errors import UsageError
    from infloop.model.connection import parse_connection
    from infloop.model.values import compact_json

    named = [text.partition("=") for text in args.port]
    raw: JsonObject = {
        "label": args.label,
        "host": args.host,
        "token": token,
        "ports": [
            {"port": int(port) if port.isdecimal() else port, "profile": model or None}
            for port, _, model in named
        ],
    }
    connection, problems = parse_connection(compact_json(raw).encode())
    if connection is None:
        raise UsageError("; ".join(map(str, problems)))
    return connection


async def _with_models(name: str, connection: Connection) -> Connection:
    """Return the connection with a model at each port; ask those that have none."""
    from infloop.errors import StepError, UsageError
    from infloop.model.connection import provider_of
    from infloop.providers.http.models import list_profiles

    ports = []
    for port in connection.ports:
        profile = port.profile
        if not profile:
            try:
                offer = await list_profiles(provider_of(name, connection, port), {})
            except StepError as error:
                way_out = f"name its model: --port {port.port}=MODEL"
                raise UsageError(f"port {port.port}: {error}; {way_out}") from None
            profile = offer.profiles[0].id
        ports.append(port.model_copy(update={"profile": profile}))
    return connection.model_copy(update={"ports": tuple(ports)})


def _read_token() -> str:
    import getpass
    import sys

    from infloop.errors import UsageError

    given = getpass.getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not given.strip():
        raise UsageError("no token was given; type it, or pass it on standard input")
    return given.strip()
