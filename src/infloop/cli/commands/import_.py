"""Import run records, or a whole installation of Infinite Loop.

A record is a file that `infloop export` wrote, or one from Infinite Loop's runs folder. An imported
run can be listed, shown and searched like any other. It cannot be resumed or rewound, because a
record does not contain the workflow.

--from imports the folders workflows, triggers, providers, connections, webhook-plugins and runs of
a directory. What exists here stays, unless --force is given. An import can be repeated.

  infloop import run.json
  infloop import --from ~/.infinite-loop --dry-run
  infloop import --from ~/.infinite-loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from infloop.application.importing import ImportReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", help="a run record")
    parser.add_argument(
        "--from", dest="source", metavar="DIR", help="a data directory, or a checkout"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --from: say what would be done, and do nothing"
    )
    parser.add_argument(
        "--force", action="store_true", help="with --from: replace your files of the same id"
    )
    add_json(parser, "with --from: the report as one JSON object")


def main(args: argparse.Namespace) -> int:
    """Import each file; one that cannot be used does not prevent the others."""
    from infloop import app
    from infloop.errors import UsageError

    if bool(args.files) == bool(args.source):
        raise UsageError("give run records, or --from DIR")
    if args.files and (args.dry_run or args.force or args.json):
        raise UsageError("--dry-run, --force and --json belong to --from DIR")
    if args.source:
        return app.run_async(_import_installation(args))
    return app.run_async(_import_records(args.files))


async def _import_installation(args: argparse.Namespace) -> int:
    from pathlib import Path

    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line

    async with app.open_application(app.settings()) as application:
        report = await application.importing.run(
            Path(args.source), COMMAND_LINE, force=args.force, dry_run=args.dry_run
        )
    if args.json:
        print(json_line(to_json(report)))
    else:
        _show(report)
    return 2 if report.count("refused") else 0


def _show(report: ImportReport) -> None:
    from infloop.application.importing import OUTCOMES
    from infloop.cli.view.terminal import INDENT, one_line

    for file in report.files:
        if file.outcome == "unchanged":
            continue
        print(one_line(f"{file.outcome:<8} {file.kind:<10} {file.path}"))
        for note in file.notes:
            print(one_line(f"{INDENT}{note}"))
    total = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in OUTCOMES)
    print(total + ("; this was a dry run" if report.dry_run else ""))


async def _import_records(files: Sequence[str]) -> int:
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
    from pathlib import Path

    from infloop.application.runs.records import MAX_RECORD_BYTES, decode_record
    from infloop.errors import UsageError

    try:
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}") from None
    if len(data) > MAX_RECORD_BYTES:
        raise UsageError(f"larger than {MAX_RECORD_BYTES >> 20} MiB, too large for a run record")
    return decode_record(data)
