"""Changed files as every surface shows them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from infloop.application.runs.models import DirectoryChanges, DirectoryDiff, FileChange
from infloop.errors import StepError, UsageError
from infloop.runtime.stored_snapshots import StoredSnapshots
from infloop.runtime.timeline import directory_work
from infloop.workspace.applying.added_secrets import added_secrets
from infloop.workspace.applying.merge import edit_tree
from infloop.workspace.applying.review import protected_changes
from infloop.workspace.applying.selection import NOTHING_MORE
from infloop.workspace.repositories.packs import missing_snapshots
from infloop.workspace.snapshots.changes import changes, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from infloop.application.resources import Resources
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.runtime.timeline import WorkspaceHistory
    from infloop.runtime.workspaces import Workspaces
    from infloop.workspace.applying.selection import Selection, Wanted
    from infloop.workspace.snapshots.changes import Change
    from infloop.workspace.snapshots.store import SnapshotStore

Reason = TypeVar("Reason")


class RunResult(NamedTuple):
    """The result of a run or a part of it, by directory."""

    workspaces: Workspaces
    selections: dict[str, Selection]
    leaks: LeakGuard
    history: WorkspaceHistory | None = None

    async def secrets(self, directory: str) -> dict[str, list[str]]:
        """Return the files to which a secret was added, with the names of its detectors."""
        chosen = self.selections[directory].chosen
        return await added_secrets(self.workspaces.store.trees, chosen, self.leaks)


async def run_result(
    resources: Resources, run_id: str, step: str = "", wanted: Wanted = NOTHING_MORE
) -> RunResult | None:
    """Return the files that are the result of a run, or of a step or round of it.

    None if there are no snapshots. Raises UsageError if no changed file fits a wanted name.
    """
    found = await directory_work(resources.store.run_log, run_id, step)
    workspaces = await resources.workspaces()
    store = resources.store
    history = await StoredSnapshots(workspaces, store.run_log, store.results).bring(run_id)
    if history is not None:  # other directories of its machine are not here
        names = [snapshot for each in found for snapshot in (each.first, each.last) if snapshot]
        missing = set(await missing_snapshots(workspaces.store, names))
        found = [each for each in found if not missing & {each.first, each.last}]
    selections = await workspaces.results(run_id, found, wanted, whole=not step, history=history)
    if not selections:
        return None
    fitting = {name for each in selections.values() for name in each.fitting}
    for name in wanted.names:
        if name not in fitting:
            raise UsageError(f"no changed file of run {run_id!r} fits {name!r}")
    return RunResult(workspaces, selections, resources.leaks(), history)


async def directory_diffs(result: RunResult, *, redacted: bool = False) -> list[DirectoryDiff]:
    """Return the result as patches, on demand without the secrets in them and in names."""
    store = result.workspaces.store
    read = result.leaks.redact if redacted else str
    return [
        DirectoryDiff(
            directory=directory,
            patch=read(await store.trees.patch(each.base, await _result_tree(store, each))),
            changed=bool(each.chosen),
            protected=printable_paths(await _protected(result.workspaces, directory, each), read),
            secrets=printable_paths(await result.secrets(directory), read),
            left_out=printable_paths(each.left_out, read),
        )
        for directory, each in result.selections.items()
    ]


async def directory_changes(result: RunResult) -> list[DirectoryChanges]:
    """Return the result as files with the number of their changed lines."""
    store = result.workspaces.store
    return [
        DirectoryChanges(
            directory=directory,
            files=file_changes(await _changes(store, each)),
            changed=bool(each.chosen),
            protected=printable_paths(await _protected(result.workspaces, directory, each)),
            secrets=printable_paths(await result.secrets(directory)),
            left_out=printable_paths(each.left_out),
        )
        for directory, each in result.selections.items()
    ]


async def _changes(store: SnapshotStore, selection: Selection) -> list[Change]:
    lines = await store.trees.lines(selection.base, await _result_tree(store, selection))
    return changes(selection.chosen, lines, ())


async def _result_tree(store: SnapshotStore, selection: Selection) -> str:
    return await edit_tree(store, store.trees, selection.base, selection.chosen, to="new")


async def _protected(
    workspaces: Workspaces, directory: str, selection: Selection
) -> dict[str, str]:
    named = {}
    with suppress(StepError):  # broken settings; `apply` refuses to go on then
        named = await workspaces.named_files(directory)
    trees = workspaces.store.trees
    return await protected_changes(trees, selection.base, selection.chosen, named)


def printable_paths(
    reasons: Mapping[str, Reason], read: Callable[[str], str] = str
) -> dict[str, Reason]:
    """Return the paths without control characters and as `read` shows them, with their reasons."""
    return {read(printable(path)): why for path, why in reasons.items()}


def file_changes(changes: Iterable[Change]) -> list[FileChange]:
    return [
        FileChange(
            path=change.printable_path,
            kind=change.kind,
            insertions=change.insertions,
            deletions=change.deletions,
            binary=change.binary,
        )
        for change in changes
    ]
