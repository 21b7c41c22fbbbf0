"""Find everything wrong with workflow files, each with its line, its column and what to do.

Exit code 2 means that at least one of them cannot run; warnings do not count.

  infloop check fix.loop.yaml
  infloop check fix.workflow.json
  infloop check workflows/*.json
  infloop check flow.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from infloop.errors import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="a workflow file, or an id")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_check(args.files))


async def _check(files: Sequence[str]) -> int:
    from infloop import app
    from infloop.cli.view.terminal import note

    broken = 0
    async with app.open_files(app.settings()) as application:
        for file in files:
            checked = await application.workflows.check_file(file)
            for line in checked.notes:
                note(line)
            broken += _print_problems(file, checked.problems)
    return 2 if broken else 0


def _print_problems(file: str, problems: Sequence[Problem]) -> bool:
    """Print the problems of a file; return whether it cannot run."""
    from infloop.cli.view.terminal import one_line, plural, problem_lines

    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    result = plural(errors, "error") if errors else "ok"
    more = f", {plural(warnings, 'warning')}" if warnings else ""
    print(f"{one_line(file)}: {result}{more}")
    for line in problem_lines(problems):
        print(line)
    return errors > 0
