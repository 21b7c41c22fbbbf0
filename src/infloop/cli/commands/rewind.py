"""Start a new run from a step of an earlier one, with the files as they were.

The new run shares everything before that step with the earlier run, which is not changed. The
directories in which the earlier run worked are restored to what they were just before the step.
Their present state is saved first, and a message says how to restore it. On a terminal you are
asked before a file is changed; elsewhere --yes is needed. --preview only shows what would be kept,
run again and restored. STEP is a path as `infloop show` prints it, or a round of a loop.

The new run has the workflow that the earlier run began with. With --file it goes on with another
version of it, provided that everything before the step is the same: the way to it, and the
definition of every node on that way.

  infloop rewind 1f3a9c2e --to agent-1
  infloop rewind last --to 'loop-1[3]' --preview
  infloop rewind last --to 'loop-1[3]' --yes
  infloop rewind last --to publish --file flow.loop.yaml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, add_run

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.runs.models import RewindPlan
    from infloop.application.runs.watched_run import WatchedRun
    from infloop.application.workflows import Bundle

MAX_FILES = 20
MAX_STEPS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--to", metavar="STEP", required=True, help="the step to start at")
    parser.add_argument("--file", metavar="FILE", help="go on with this version of the workflow")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--yes", action="store_true", help="change files without asking")
    chosen.add_argument("--preview", action="store_true", help="only show what it would do")
    add_json(parser, "events as JSON lines; of a preview, one object")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_rewind(args))


async def _rewind(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import note, problem_lines
    from infloop.cli.view.workflow_file import changed_lines
    from infloop.cli.watching import watch_runs

    settings = app.settings()
    workflow = None
    if args.file:
        async with app.open_files(settings) as files:
            workflow = files.workflows.load(args.file)
        for line in problem_lines(workflow.warnings):
            note(line)
    async with app.open_application(settings) as application:
        run = await application.history.find(args.run)
        plan = await application.runs.plan_rewind(run.run_id, args.to, workflow)
        if args.preview:
            _print_preview(plan, as_json=args.json)
            return 0
        for line in changed_lines(plan.workflow_file, run.run_id, args.to):
            note(line)
        if not _confirmed(plan, args.file or "", yes=args.yes):
            note("nothing was changed")
            return 1
        return await watch_runs(
            application,
            lambda: _start(application, run.run_id, args.to, workflow),
            as_json=args.json,
        )


async def _start(
    application: Application, run_id: str, step: str, workflow: Bundle | None
) -> list[WatchedRun]:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.terminal import note

    started = await application.runs.rewind(run_id, step, COMMAND_LINE, workflow=workflow)
    watched = await application.live.watch(started)
    for each in await application.history.replaced(started.run_id, started.after_seq + 1):
        note(
            f"the earlier state of {each.directory} is saved: `infloop worktrees restore "
            f"{each.snapshot} PATH` writes it to a new directory"
        )
    return [watched]


def _print_preview(plan: RewindPlan, *, as_json: bool) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.changes import change_lines, total
    from infloop.cli.view.terminal import json_line, one_line, plural

    if as_json:
        print(json_line(to_json(plan)))
        return
    lines = []
    for title, steps, shown in (
        ("kept", plan.kept, plan.kept.paths[-MAX_STEPS:]),
        ("run again", plan.again, plan.again.paths[:MAX_STEPS]),
    ):
        lines.append(f"{title}: {plural(steps.count, 'step')}")
        lines += [f"  {one_line(path)}" for path in shown]
        if steps.count > len(shown):
            lines.append(f"  and {steps.count - len(shown)} more")
    for each in plan.directories:
        if each.files is None:
            lines.append(f"{each.directory} is created again as it was")
        else:
            lines.append(f"in {each.directory}: {total(each.files)}")
            lines += change_lines(each.files, MAX_FILES)
    print("\n".join(lines))


def _confirmed(plan: RewindPlan, file: str, *, yes: bool) -> bool:
    """Show what will change, and ask whether that is wanted; `file` is the new workflow."""
    import os
    import sys

    from infloop.cli.view.changes import change_lines, total
    from infloop.cli.view.terminal import note
    from infloop.errors import UsageError

    for each in plan.directories:
        if each.files is None:
            note(f"{each.directory} is created again as it was")
        elif each.files:
            note(f"in {each.directory}: {total(each.files)}")
            for line in change_lines(each.files, MAX_FILES):
                note(line)
            if file and os.path.relpath(file, each.directory) in {one.path for one in each.files}:
                kept = "its earlier content returns, and the run uses the new"
                note(f"  {file} is one of them: {kept}")
    if yes or not any(each.files for each in plan.directories):
        return True
    if not sys.stdin.isatty():
        raise UsageError("the rewind changes these files; add --yes if that is what you want")
    note("restore these files? Their present state is saved first. [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
