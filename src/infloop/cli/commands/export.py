"""Write a finished run's record as JSON, in Infinite Loop's format.

The record of a very long run contains its last events; `infloop logs --json` prints all of them.

  infloop export 1f3a9c2e -o run.json
  infloop export last | jq .scope
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_run

if TYPE_CHECKING:
    import argparse

    from infloop.model.values import JsonObject


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to; default: print it")


def main(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from infloop import app
    from infloop.cli.view.terminal import note
    from infloop.errors import UsageError

    text = json.dumps(app.run_async(_record(args.run)), indent=2)
    if not args.output:
        print(text)
        return 0
    try:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {args.output!r}: {error.strerror}") from None
    note(f"wrote {args.output}")
    return 0


async def _record(name: str) -> JsonObject:
    from infloop import app

    async with app.open_application(app.settings()) as application:
        run = await application.history.find(name)
        return await application.records.export(run.run_id)
