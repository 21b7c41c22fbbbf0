"""Show what a run, or one step or round of it, changed in the directories it worked in.

STEP is a path as `infloop show` prints it, or a round of a loop. Each has its own diff, whether or
not an agent commits. For the whole run, it is how the files were when the run first came to them
against how it last left them.

  infloop diff last
  infloop diff 1f3a9c2e 'loop-1[2]' --stat

Files that other programs act on without being asked are named as protected.

On a terminal control characters are shown as escapes; in a pipe or a file the diff is as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.runtime.timeline import DirectoryChange
    from infloop.workspace.snapshots.store import SnapshotStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", default="", help="one step or round")
    parser.add_argument("--stat", action="store_true", help="only which files, and how much")


def main(args: argparse.Namespace) -> int:
    """Print the diff of each directory."""
    from infloop import app

    return app.run_async(_diff(args))


async def _diff(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import note

    settings = app.settings()
    found = await _spans(args)
    async with app.open_workspaces(settings) as workspaces:
        for span in found:
            text = await (_stat if args.stat else _patch)(workspaces.store, span)
            if text:
                _print(f"# in {span.directory}\n{text}" if len(found) > 1 else text)
            await _mark(workspaces.store, span)
    if all(span.before == span.after for span in found):
        note("no file was changed")
    return 0


async def _spans(args: argparse.Namespace) -> list[DirectoryChange]:
    from infloop import app
    from infloop.errors import UsageError
    from infloop.runtime.timeline import directory_changes

    async with app.open_store(app.settings()) as store:
        row = await find_run(store.run_log, args.run)
        found = await directory_changes(store.run_log, row.id, args.step)
    if not found:
        what = f"step {args.step!r} of run {row.id!r}" if args.step else f"run {row.id!r}"
        raise UsageError(
            f"no files were kept for {what}: it has no agent or script that ended, or no snapshots "
            f"were taken (`infloop logs {row.id}` says why)"
        )
    return found


async def _patch(store: SnapshotStore, span: DirectoryChange) -> str:
    return await store.patch(span.before, span.after)


async def _stat(store: SnapshotStore, span: DirectoryChange) -> str:
    from infloop.cli.view.changes import change_lines, total

    changes = await store.diff(span.before, span.after)
    return "\n".join((*change_lines(changes), total(changes), "")) if changes else ""


async def _mark(store: SnapshotStore, span: DirectoryChange) -> None:
    """Name the changed files that `infloop apply` asks a person about."""
    from infloop.cli.view.terminal import note
    from infloop.workspace.applying.review import protected_changes
    from infloop.workspace.snapshots.changes import printable

    before, after = await store.stored_tree(span.before), await store.stored_tree(span.after)
    changed = await store.trees.leaves(before.files, after.files)
    for path, why in (await protected_changes(store.trees, before.files, changed)).items():
        note(f"protected: {printable(path)} ({why})")


def _print(text: str) -> None:
    import sys

    from infloop.cli.view.terminal import safe

    print(safe(text) if sys.stdout.isatty() else text, end="")
