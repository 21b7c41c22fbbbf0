"""Find everything wrong with workflow files, all at once, each with its place and what to do.

Exit code 2 means that at least one of them cannot run; warnings do not count.

  infloop check fix.workflow.json
  infloop check workflows/*.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="a workflow file, or an id")


def main(args: argparse.Namespace) -> int:
    """Check each file; one that cannot be read does not hide the others."""
    from infloop import app
    from infloop.cli.view.terminal import INDENT, one_line, plural, problem_lines
    from infloop.errors import Problem, UsageError

    settings = app.settings()
    catalog = app.workflow_catalog(settings)
    providers = app.known_providers(settings)
    broken = 0
    for file in args.files:
        try:
            _, problems = catalog.check(file, known_providers=providers)
        except UsageError as error:
            problems = [Problem("file", str(error))]
        errors = sum(problem.severity == "error" for problem in problems)
        warnings = len(problems) - errors
        said = plural(errors, "error") if errors else "ok"
        more = f", {plural(warnings, 'warning')}" if warnings else ""
        print(f"{one_line(file)}: {said}{more}")
        for line in problem_lines(problems, INDENT):
            print(line)
        broken += bool(errors)
    return 2 if broken else 0
