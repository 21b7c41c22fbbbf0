"""Show the settings: each value and where it is from.

Of a secret only whether it is set is shown. Change a setting with its variable, or in the file.

  infloop settings
  infloop settings isolation
  infloop settings --changed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse

    from infloop.application.configuration import SettingEntry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this one, with its meaning")
    parser.add_argument(
        "--changed", action="store_true", help="only those that do not have their default"
    )
    add_json(parser, "one JSON object a line")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_settings(args))


async def _settings(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, one_line

    async with app.open_files(app.settings()) as application:
        configuration = application.configuration
        found = [configuration.find(args.name)] if args.name else configuration.all().settings
    if args.changed:
        found = [entry for entry in found if entry.source != "default"]
    width = max((len(entry.name) for entry in found), default=0)
    for entry in found:
        if args.json:
            print(json_line(to_json(entry)))
        else:
            print(one_line(f"{entry.name:<{width}}  {entry.source:<12}  {_text(entry)}"))
    if args.name and not args.json:
        print(found[0].description)
    return 0


def _text(entry: SettingEntry) -> str:
    """Return a value as one would write it into a variable."""
    if isinstance(entry.value, bool):
        return "true" if entry.value else "false"
    return "" if entry.value is None else str(entry.value)
