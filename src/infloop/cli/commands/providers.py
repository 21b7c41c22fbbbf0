"""List the providers: installed or not, their version, whether a login is there, what they may do.

Programs are asked for their version. No model is called, and nobody is asked whether a login is
still valid. No secret is printed.

  infloop providers
  infloop providers claude
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.application.provider_logins import LoginStatus
    from infloop.application.providers import ProviderStatus, ProviderStatusList


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", default="", help="only this one")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_providers(args))


async def _providers(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, one_line

    async with app.open_files(app.settings()) as application:
        found = await application.providers.statuses(args.id)
    if args.json:
        print(json_line(to_json(found)))
        return 0
    for line in _lines(found):
        print(one_line(line))
    return 0


def _lines(found: ProviderStatusList) -> Iterator[str]:
    if not found.level:
        yield f"isolation: none, so nothing runs: {found.reason}"
    elif found.reason:
        yield f"isolation: {found.level}, agents run as you: {found.reason}"
    else:
        yield f"isolation: {found.level}"
    for one in found.providers:
        yield f"{one.id}: {one.label}, {_presence(one)}"
        yield f"  login: {_login(one.login)}"
        yield f"  may: {one.may}"


def _presence(one: ProviderStatus) -> str:
    from msgspec import UNSET

    if one.installed is UNSET:
        return one.transport
    if not one.installed:
        return f"not installed{'' if one.install is UNSET else f'; install it: {one.install}'}"
    return f"{'installed' if one.version is UNSET else one.version} at {one.program}"


def _login(login: LoginStatus) -> str:
    how = f"; log in: {login.command}" if login.command else ""
    match login.status:
        case "found":
            return f"found in {login.place}"
        case "missing":
            return f"none found{how}"
        case "unknown":
            return f"its manifest does not say where it is{how}"
        case "not needed":
            return "not needed"
