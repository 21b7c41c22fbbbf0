"""List the worktrees in which agents work, and what was saved of them.

A worktree is saved completely before it is removed at the end of its run; nothing an agent wrote is
lost. `prune` saves and removes those whose process died, and drops the snapshots of deleted runs.
`restore` writes a saved worktree, or any snapshot, to a new directory. Only `forget` deletes what
was saved.

  infloop worktrees
  infloop worktrees prune
  infloop worktrees restore 1f3a9c2e-fix-0d1e2f ~/look
  infloop worktrees forget 1f3a9c2e-fix-0d1e2f
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.application.runs.worktrees import PruneResult, WorktreeEntry

ACTIONS = {"prune": (), "restore": ("NAME", "PATH"), "forget": ("NAME",)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, metavar="ACTION", help="prune, restore or forget"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a worktree, or a snapshot's id")
    parser.add_argument("path", nargs="?", metavar="PATH", help="a path that does not exist yet")


def main(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.errors import UsageError

    wanted = ACTIONS.get(args.action, ())
    if len(wanted) != sum(each is not None for each in (args.name, args.path)):
        raise UsageError(f"use `infloop worktrees {' '.join((args.action, *wanted))}`")
    return app.run_async(_act(args))


async def _act(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.terminal import note, one_line

    async with app.open_application(app.settings()) as application:
        worktrees = application.worktrees
        match args.action:
            case "prune":
                _print_pruned(await worktrees.prune())
            case "restore":
                renamed = await worktrees.restore(args.name, args.path)
                print(f"restored to {one_line(args.path)}")
                for each in renamed:
                    note(f"your git settings name it and the agent changed it, so it is now {each}")
            case "forget":
                await worktrees.forget(args.name, COMMAND_LINE)
                print(f"deleted {one_line(args.name)}")
            case _:
                _print_table((await worktrees.all()).worktrees)
    return 0


def _print_table(found: list[WorktreeEntry]) -> None:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import note, one_line

    if not found:
        note("there are no worktrees")
        return
    width = max(len(each.name) for each in found)
    print(f"{'name':<{width}}  {'status':<8}  {'run':<8}  {'created':<19}  repository")
    for each in reversed(found):
        print(
            f"{each.name:<{width}}  {each.status:<8}  {short(each.run_id):<8}  "
            f"{moment(each.created_at):<19}  {one_line(each.repository)}"
        )


def _print_pruned(result: PruneResult) -> None:
    from infloop.cli.view.terminal import plural

    for line in result.messages:
        print(line)
    if result.dropped_runs:
        print(f"dropped the snapshots of {plural(result.dropped_runs, 'deleted run')}")
    if not result.messages and not result.dropped_runs:
        print("there was nothing to do")
