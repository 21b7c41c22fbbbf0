"""Apply what a run's agent changed in its worktree: completely, or not at all with the reasons.

The changes are those that `infloop diff` shows: files that an agent or a script changed. Files that
only a check or a command made, and files that git ignores, are left out and listed; --all or
--include NAME takes them too.

The changes go into your work tree, uncommitted, or with --to onto a branch as one commit, with your
work tree unchanged. Files in which you have uncommitted changes yourself are not touched: commit or
stash them first.

Files that other programs act on without being asked (git and editor settings, agents' settings, CI,
hooks, shell files, package scripts, Makefiles, test and build settings) are listed with the reason,
and applied only if you allow it. So are files to which a secret was added: a known one, or what
looks like a token. INFLOOP_LEAKS_MODE decides: redact asks, enforce refuses, warn applies them and
says so. The secret itself is not shown.

  infloop apply last
  infloop apply 1f3a9c2e --to agents/fix
  infloop apply last --protected .github/workflows
  infloop apply last --include dist
  infloop apply last --into ~/src/web

A run that worked in a repository of its own (`workspace`) may have done so on another machine. Its
changes go into your clone of that repository: --into DIR, or where you are.

Exit code 1 means that something prevented it, and nothing was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_left_out, add_run

if TYPE_CHECKING:
    import argparse

    from infloop.application.runs.apply import Applied

MAX_FILES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--to", metavar="BRANCH", help="a branch, new or not checked out")
    parser.add_argument("--node", metavar="NODE", help="whose changes, if several agents made some")
    parser.add_argument(
        "--protected",
        metavar="PATH",
        action="append",
        default=[],
        help="let this protected file or directory change; can be repeated",
    )
    parser.add_argument(
        "--allow-protected", action="store_true", help="let all protected files change"
    )
    parser.add_argument(
        "--into",
        metavar="DIR",
        help="the clone that gets the changes of a run in a fetched repository; default: here",
    )
    add_left_out(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_apply(args))


async def _apply(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.runs.apply import (
        MergeConflict,
        ProtectedFiles,
        SecretFiles,
        UncommittedChanges,
    )
    from infloop.cli.view.changes import secret_lines
    from infloop.cli.view.terminal import note

    async with app.open_application(app.settings()) as application:
        run = await application.history.find(args.run)
        done = await application.apply.apply(
            run.run_id,
            COMMAND_LINE,
            node=args.node,
            branch=args.to,
            allow=args.protected,
            allow_all=args.allow_protected,
            everything=args.all,
            include=args.include,
            into=await application.apply.target(run.run_id, args.into, app.started_in()),
        )
    match done:
        case UncommittedChanges():
            note(f"nothing was applied: you have uncommitted changes in {done.repository}, in")
            for path in done.paths:
                note(f"  {path}")
            note("that the agent changed too; commit or stash them, or apply with --to BRANCH")
        case ProtectedFiles():
            note("nothing was applied: check these files first")
            for path, why in done.paths.items():
                note(f"  {path}  ({why})")
            note("allow them with --protected PATH, or all of them with --allow-protected")
        case SecretFiles():
            note("nothing was applied: the leak guard refuses secrets (INFLOOP_LEAKS_MODE=enforce)")
            for line in secret_lines(done.paths):
                note(f"  {line}")
        case MergeConflict():
            note("nothing was applied: the agent's changes and yours conflict in")
            for line in done.lines:
                note(f"  {line}")
        case _:
            _print_applied(done)
            return 0
    return 1


def _print_applied(done: Applied) -> None:
    from infloop.cli.view.changes import change_lines, left_out_lines, secret_lines, total
    from infloop.cli.view.terminal import note, one_line

    where = f"branch {done.branch}" if done.branch else done.repository
    if not done.files:
        print(f"there is nothing to apply: {one_line(where)} has all changes")
    else:
        how = f", commit {(done.commit or '')[:12]}" if done.branch else ", uncommitted"
        print(f"applied to {one_line(where)}{how}: {total(done.files)}")
        for line in change_lines(done.files, MAX_FILES):
            print(line)
    for line in secret_lines(done.secrets):
        note(line)
    for line in left_out_lines(done.left_out, MAX_FILES):
        note(line)
