"""List the worktrees that agents worked in, and what was saved of them.

A worktree is saved, whole, before it is removed at the end of its run; nothing an agent wrote is
lost. `prune` saves and removes those whose process died, and drops the snapshots of runs that
are forgotten. `restore` writes a saved worktree, or any snapshot, to a new directory. Only `forget`
throws away.

  infloop worktrees
  infloop worktrees prune
  infloop worktrees restore 1f3a9c2e-fix-0d1e2f ~/look
  infloop worktrees forget 1f3a9c2e-fix-0d1e2f
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.runtime.workspaces import Workspaces
    from infloop.workspace.worktrees.worktree import WorktreeInfo

ACTIONS = {"prune": (), "restore": ("NAME", "PATH"), "forget": ("NAME",)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, metavar="ACTION", help="prune, restore or forget"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a worktree, or a snapshot's id")
    parser.add_argument("path", nargs="?", metavar="PATH", help="where there is nothing yet")


def main(args: argparse.Namespace) -> int:
    """List them, or do what was asked for."""
    from infloop import app
    from infloop.errors import UsageError

    wanted = ACTIONS.get(args.action, ())
    if len(wanted) != sum(each is not None for each in (args.name, args.path)):
        raise UsageError(f"use `infloop worktrees {' '.join((args.action, *wanted))}`")
    return app.run_async(_act(args))


async def _act(args: argparse.Namespace) -> int:
    from infloop import app

    async with app.open_workspaces(app.settings()) as workspaces:
        match args.action:
            case "prune":
                await _prune(workspaces)
            case "restore":
                await _restore(workspaces, args.name, args.path)
            case "forget":
                await workspaces.trees.forget(args.name)
                print(f"{args.name} is gone for good")
            case _:
                _list(workspaces.trees.list_all())
    return 0


def _list(found: list[WorktreeInfo]) -> None:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import note, one_line

    if not found:
        note("there are no worktrees")
        return
    width = max(len(each.name) for each in found)
    print(f"{'name':<{width}}  {'status':<8}  {'run':<8}  {'made':<19}  repository")
    for each in reversed(found):
        print(
            f"{each.name:<{width}}  {each.status:<8}  {short(each.run_id):<8}  "
            f"{moment(each.created_at_ms):<19}  {one_line(each.repository)}"
        )


async def _prune(workspaces: Workspaces) -> None:
    from functools import partial

    from infloop import app
    from infloop.cli.view.terminal import plural
    from infloop.runtime.runs.run_status import is_known, is_over

    async with app.open_store(app.settings()) as store:
        said = await workspaces.recover(partial(is_over, store.run_log))
        dropped = await workspaces.drop_snapshots(partial(is_known, store.run_log))
    for line in said:
        print(line)
    if dropped:
        print(f"dropped the snapshots of {plural(dropped, 'forgotten run')}")
    if not said and not dropped:
        print("there was nothing to do")


async def _restore(workspaces: Workspaces, name: str, to: str) -> None:
    from pathlib import Path

    from infloop.cli.view.terminal import one_line
    from infloop.errors import NotFound, UsageError

    listed = {each.name: each for each in workspaces.trees.list_all()}
    worktree, path = listed.get(name), Path(to)
    if worktree is None:
        try:
            await workspaces.write_out(name, path)
        except NotFound as error:
            raise UsageError(f"there is no worktree {name!r}, and {error}") from None
    elif worktree.saved is None:
        raise UsageError(f"worktree {name!r} is {worktree.status}: it is still at {worktree.path}")
    else:
        await workspaces.trees.restore(worktree.saved, path)
    print(f"restored to {one_line(to)}")
