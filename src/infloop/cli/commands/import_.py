"""Import run records: files that `infloop export` wrote, or from Infinite Loop's runs folder.

An imported run can be listed, shown and searched like any other. It cannot be resumed or rewound,
because a record does not contain the workflow.

  infloop import run.json
  infloop import ~/infinite-loop/runs/*/*.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

MAX_RECORD_BYTES = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="a run record")


def main(args: argparse.Namespace) -> int:
    """Import each file; one that cannot be read does not prevent the others."""
    from infloop import app

    return app.run_async(_import(args.files))


async def _import(files: Sequence[str]) -> int:
    from infloop import app
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note, one_line
    from infloop.errors import UsageError

    refused = 0
    async with app.open_application(app.settings()) as application:
        for file in files:
            try:
                run = await application.records.add(_read(file))
            except UsageError as error:
                note(f"{file}: {error}")
                refused += 1
                continue
            print(f"{short(run.run_id)}  {run.status}  {one_line(run.workflow_name)}")
    return 2 if refused else 0


def _read(file: str) -> object:
    import json
    from pathlib import Path

    from infloop.errors import UsageError

    try:
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}") from None
    if len(data) > MAX_RECORD_BYTES:
        raise UsageError(f"larger than {MAX_RECORD_BYTES >> 20} MiB, too large for a run record")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None
