"""List your workflows and the presets, each with its file, its last run and its problems.

With an id, one workflow is shown with all that `infloop check` finds.

  infloop workflows
  infloop workflows fix-until-green
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.application.workflow_overview import ListedWorkflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="only this one, with its problems")
    add_json(parser, "one JSON object a line")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_workflows(args))


async def _workflows(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, problem_lines

    async with app.open_application(app.settings()) as application:
        overview = application.workflow_overview
        found = [await overview.find(args.id)] if args.id else (await overview.all()).workflows
        if args.json:
            for entry in found:
                print(json_line(to_json(entry)))
            return 0
        for line in _table(found):
            print(line)
        if args.id:
            checked = await application.workflows.check_file(args.id)
            for line in problem_lines(checked.problems):
                print(line)
    return 0


def _table(entries: list[ListedWorkflow]) -> Iterator[str]:
    from infloop.cli.view.terminal import one_line

    width = max(len("id"), *(len(entry.id) for entry in entries)) if entries else 0
    yield f"{'id':<{width}}  {'kind':<12}  {'last run':<31}  {'problems':<10}  name, file"
    for entry in entries:
        kind = entry.format if entry.source == "user" else f"{entry.format}, preset"
        yield one_line(
            f"{entry.id:<{width}}  {kind:<12}  {_last_run(entry):<31}  {_problems(entry):<10}  "
            f"{entry.name}, {entry.file}"
        )


def _last_run(entry: ListedWorkflow) -> str:
    from msgspec import UNSET

    from infloop.cli.view.figures import moment

    run = entry.last_run
    return "" if run is UNSET else f"{moment(run.started_at)} {run.status}"


def _problems(entry: ListedWorkflow) -> str:
    from infloop.cli.view.terminal import plural

    if entry.errors:
        return plural(entry.errors, "error")
    return plural(entry.problems, "warning") if entry.problems else ""
