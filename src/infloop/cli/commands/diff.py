"""Show what a run, or one step or round of it, changed in the directories it worked in.

STEP is a path as `infloop show` prints it, or a round of a loop. Each has its own diff, whether or
not an agent commits. The diff of a whole run in a worktree is exactly what `infloop apply` takes:
the files that an agent or a script changed, as they are at the end. Files that only a check or a
command made, and files that git ignores, are left out and listed; --all or --include NAME shows
them too.

  infloop diff last
  infloop diff 1f3a9c2e 'loop-1[2]' --stat
  infloop diff last --include 'reports/*.xml'

Files that other programs act on without being asked are listed as protected, and files to which a
secret was added with the name of what found it.

On a terminal control characters are shown as escapes; in a pipe or a file the diff is unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_left_out, add_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from infloop.application.application import Application
    from infloop.application.runs.models import DirectoryChanges, DirectoryDiff

MAX_FILES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", default="", help="one step or round")
    parser.add_argument("--stat", action="store_true", help="only the names of files, and counts")
    add_left_out(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_diff(args))


async def _diff(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.changes import left_out_lines, secret_lines
    from infloop.cli.view.terminal import note
    from infloop.errors import UsageError

    async with app.open_application(app.settings()) as application:
        run = await application.history.find(args.run)
        found = await _directories(application, run.run_id, args)
    if not found:
        step = f"step {args.step!r} of " if args.step else ""
        raise UsageError(
            f"there are no snapshots of {step}run {run.run_id!r}: no agent and no script has "
            f"ended, or none were taken (`infloop logs {run.run_id}` says why)"
        )
    for each, text in found:
        if text:
            _print(f"# in {each.directory}\n{text}" if len(found) > 1 else text)
        for path, why in each.protected.items():
            note(f"protected: {path} ({why})")
        for line in secret_lines(each.secrets):
            note(line)
        for line in left_out_lines(each.left_out, MAX_FILES):
            note(line)
    if not any(each.changed for each, _ in found):
        note("no file was changed")
    return 0


async def _directories(
    application: Application, run_id: str, args: argparse.Namespace
) -> Sequence[tuple[DirectoryChanges | DirectoryDiff, str]]:
    """Return each directory with its text."""
    history = application.history
    if args.stat:
        changes = await history.changes(
            run_id, args.step, everything=args.all, include=args.include
        )
        return [(each, _stat(each)) for each in changes.directories]
    diff = await history.diff(run_id, args.step, everything=args.all, include=args.include)
    return [(each, each.patch) for each in diff.directories]


def _stat(directory: DirectoryChanges) -> str:
    from infloop.cli.view.changes import change_lines, total

    files = directory.files
    return "\n".join((*change_lines(files), total(files), "")) if files else ""


def _print(text: str) -> None:
    import sys

    from infloop.cli.view.terminal import safe

    print(safe(text) if sys.stdout.isatty() else text, end="")
