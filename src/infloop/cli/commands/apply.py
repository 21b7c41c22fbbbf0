"""Bring the work of a run's agent home: a clean merge, or nothing at all and the reasons.

What the agent changed in its worktree goes into your tree as uncommitted changes, or with --to onto
a branch as one commit, with your tree left alone. Files in which you have uncommitted changes
yourself are not touched: commit or stash them first.

Files that other programs act on without being asked (git and editor settings, agents' settings, CI,
hooks, shell files, package scripts) are listed, and applied only if you allow it.

  infloop apply last
  infloop apply 1f3a9c2e --to agents/fix
  infloop apply last --protected .github/workflows

Exit code 1 means that something stood in the way, and nothing was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.runtime.workspaces import Workspaces
    from infloop.store.interfaces.run_log import RunRow
    from infloop.workspace.applying.apply import Applied
    from infloop.workspace.worktrees.records import Saved
    from infloop.workspace.worktrees.worktree import WorktreeInfo

SHOWN = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("--to", metavar="BRANCH", help="a branch, new or not checked out")
    parser.add_argument("--node", metavar="NODE", help="whose work, if several agents did some")
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


def main(args: argparse.Namespace) -> int:
    """Apply the work, and say what changed or why not."""
    from infloop import app

    return app.run_async(_apply(args))


async def _apply(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import note
    from infloop.workspace.applying.apply import ProtectedChanges, apply, overlapping_edits
    from infloop.workspace.applying.merge import MergeConflict
    from infloop.workspace.snapshots.changes import printable

    settings = app.settings()
    async with app.open_store(settings) as store:
        row = await find_run(store.run_log, args.run)
    async with app.open_workspaces(settings) as workspaces:
        saved = await _saved(workspaces, _chosen(workspaces.listed(row.id), row, args.node))
        edits = () if args.to else await overlapping_edits(workspaces.store, saved)
        if edits:
            note(f"nothing was applied: you have uncommitted changes in {saved.repository}, in")
            for path in edits:
                note(f"  {path}")
            note("that the agent changed too; commit or stash them, or apply with --to BRANCH")
            return 1
        how = {"to_branch": args.to, "message": _message(row, saved)}
        done = await apply(workspaces.store, saved, **how, allow=args.protected)
        if isinstance(done, ProtectedChanges) and args.allow_protected:
            everything = (*args.protected, *done.paths)
            done = await apply(workspaces.store, saved, **how, allow=everything)
    if isinstance(done, ProtectedChanges):
        note("nothing was applied: other programs act on these files, look at them first")
        for path, why in done.paths.items():
            note(f"  {printable(path)}  ({why})")
        note("allow them with --protected PATH, or all of them with --allow-protected")
        return 1
    if isinstance(done, MergeConflict):
        note("nothing was applied: the agent's work and yours do not fit together in")
        for line in done.report.splitlines():
            note(f"  {line}")
        return 1
    _tell(done, saved)
    return 0


def _chosen(found: list[WorktreeInfo], row: RunRow, node: str | None) -> WorktreeInfo:
    """Return the worktree that is meant, or raise UsageError that says what to type."""
    from infloop.errors import UsageError

    if not found:
        raise UsageError(
            f"run {row.id!r} has no worktree: what its steps changed, they changed in place "
            f"(`infloop diff {row.id}` shows it)"
        )
    named = [each for each in found if node in (None, each.node)]
    if len(named) != 1:
        nodes = ", ".join(each.node for each in found)
        raise UsageError(f"run {row.id!r} has worktrees of: {nodes}; choose one with --node")
    return named[0]


async def _saved(workspaces: Workspaces, worktree: WorktreeInfo) -> Saved:
    from infloop.errors import UsageError

    if worktree.status == "in use":
        raise UsageError(
            f"run {worktree.run_id!r} is still working in its worktree; wait until it has finished"
        )
    return worktree.saved or await workspaces.trees.save(worktree.name)


def _message(row: RunRow, saved: Saved) -> str:
    return f"{row.workflow_name}: {saved.node}\n\nApplied by infloop from run {row.id}."


def _tell(done: Applied, saved: Saved) -> None:
    from infloop.cli.view.changes import change_lines, total
    from infloop.cli.view.terminal import note, one_line

    where = f"branch {done.branch}" if done.branch else saved.repository
    if not done.changes:
        print(f"there is nothing to apply: {one_line(where)} has it all")
    else:
        how = f", commit {(done.commit or '')[:12]}" if done.branch else ", uncommitted"
        print(f"applied to {one_line(where)}{how}: {total(done.changes)}")
        for line in change_lines(done.changes, SHOWN):
            print(line)
    if done.left_out:
        note(f"left out, because git ignores it or it is a repository: {len(done.left_out)}")
        for path in done.left_out[:SHOWN]:
            note(f"  {path}")
