"""Convert a workflow: a JSON file becomes a loop file, and a loop file becomes a JSON file.

A file in Python becomes either, by the name of OUT. All of them mean the same. Comments of a loop
file are lost; texts that it takes from other files are
written into the JSON file. Without -o the result is printed.

  infloop convert fix.workflow.json -o fix.loop.yaml
  infloop convert fix.loop.yaml | jq .nodes
  infloop convert flow.py -o flow.loop.yaml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.application.workflows import Converted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a workflow file, or an id")
    parser.add_argument("-o", "--output", metavar="OUT", help="where to; default: print it")
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def main(args: argparse.Namespace) -> int:
    from pathlib import Path

    from infloop import app
    from infloop.cli.view.terminal import note
    from infloop.errors import UsageError

    target = Path(args.output).name if args.output else ""
    converted = app.run_async(_converted(args.file, target))
    for line in converted.notes:
        note(line)
    if not args.output:
        print(converted.text, end="")
        return 0
    try:
        with Path(args.output).open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(converted.text)
    except FileExistsError:
        raise UsageError(f"{args.output!r} exists already; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"cannot write {args.output!r}: {error.strerror}") from None
    note(f"wrote {args.output}")
    return 0


async def _converted(file: str, target: str) -> Converted:
    from infloop import app

    async with app.open_files(app.settings()) as application:
        return await application.workflows.convert(file, target)
