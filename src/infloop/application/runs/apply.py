"""Applies what an agent changed in its worktree to the user's work tree or to a branch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from infloop.application.models import Model
from infloop.application.runs.file_changes import file_changes, printable_paths, run_result
from infloop.application.runs.models import FileChange
from infloop.errors import Forbidden, StepError, UsageError
from infloop.model.events import WORKSPACE
from infloop.runtime.runs.run_status import current_status
from infloop.runtime.timeline import workspace_history
from infloop.workspace.applying.apply import ProtectedChanges, apply, overlapping_edits
from infloop.workspace.applying.merge import MergeConflict as TreeConflict
from infloop.workspace.applying.selection import Wanted
from infloop.workspace.worktrees import repository
from infloop.workspace.worktrees.records import Saved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.application.runs.file_changes import RunResult
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.runtime.timeline import WorkspaceHistory
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.interfaces.run_log import RunRow
    from infloop.workspace.worktrees.worktree import WorktreeInfo


class Applied(Model, kw_only=True, tag_field="outcome", tag="applied"):
    """The changes are in the work tree of `repository`, or a commit on `branch`.

    `leftOut` maps changed files that were not applied to the reason. `secrets` maps applied files
    to which a secret was added to the names of its detectors.
    """

    repository: str
    branch: str | None
    commit: str | None
    files: list[FileChange]
    left_out: dict[str, str]
    secrets: dict[str, list[str]]


class UncommittedChanges(Model, kw_only=True, tag_field="outcome", tag="uncommitted"):
    """Nothing was applied: the user has uncommitted changes in the same files."""

    repository: str
    paths: list[str]


class ProtectedFiles(Model, kw_only=True, tag_field="outcome", tag="protected"):
    """Nothing was applied: other programs act on these files, or they hold a new secret.

    Each has the reason. They are applied if they are allowed.
    """

    paths: dict[str, str]


class SecretFiles(Model, kw_only=True, tag_field="outcome", tag="secrets"):
    """Nothing was applied: a secret was added to these files, and the leak guard enforces.

    Each has the names of the detectors.
    """

    paths: dict[str, list[str]]


class MergeConflict(Model, kw_only=True, tag_field="outcome", tag="conflict"):
    """Nothing was applied: the changes cannot be merged. One line for each file."""

    lines: list[str]


ApplyResult: TypeAlias = Applied | UncommittedChanges | ProtectedFiles | SecretFiles | MergeConflict


class ApplyAnswer(Model, kw_only=True):
    """What became of the changes."""

    result: ApplyResult


class ApplyChanges:
    """Applies the changes of runs, completely or not at all."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def apply(
        self,
        run_id: str,
        caller: Caller,
        *,
        node: str | None = None,
        branch: str | None = None,
        allow: Sequence[str] = (),
        allow_all: bool = False,
        everything: bool = False,
        include: Sequence[str] = (),
        into: str | None = None,
    ) -> ApplyResult:
        """Apply the changes of a run to the work tree, or to a new or existing branch.

        These are the changes that `RunHistory.diff` shows with the same `everything` and `include`.
        `node` says whose changes, if several agents made some. `allow` are protected files and
        directories that may change; with `allow_all`, all of them may. The same permission is
        needed for a file to which a secret was added; the mode of the leak guard decides.

        `into` is a directory in a clone of the repository that the run worked in, if it worked in a
        fetched one.
        """
        if not caller.is_identified:
            raise Forbidden(
                "a server without a token applies nothing: an agent may be able to reach it. "
                f"Set INFLOOP_API_TOKEN, or use `infloop apply {run_id}`",
                "token-needed",
            )
        row = await self._resources.store.run_log.run(run_id)
        workspaces = await self._resources.workspaces()
        wanted = Wanted(everything, tuple(include))
        if history := await workspace_history(self._resources.store.run_log, run_id):
            await self._check_ended(row)
            result = await run_result(self._resources, run_id, wanted=wanted)
            saved = await _saved_elsewhere(workspaces, history, result, run_id, into)
            directory = WORKSPACE
        else:
            worktree = _chosen(workspaces.listed(run_id), run_id, node)
            saved, directory = await _saved(workspaces, worktree), worktree.path
            result = await run_result(self._resources, run_id, wanted=wanted)
        assert result is not None  # there is a saved worktree
        selection = result.selections[directory]
        if branch is None and (
            paths := await overlapping_edits(workspaces.store, saved, selection)
        ):
            return UncommittedChanges(repository=saved.repository, paths=list(paths))
        secrets = await result.secrets(directory)
        if secrets:
            await self._record_leak(row, saved, result.leaks, secrets, caller)
        if secrets and result.leaks.mode == "enforce":
            return SecretFiles(paths=printable_paths(secrets))
        await self._record(row, saved, branch, caller)
        message = f"{row.workflow_name}: {saved.node}\n\nApplied by infloop from run {run_id}."
        apply_saved = partial(
            apply,
            workspaces.store,
            saved,
            selection,
            to_branch=branch,
            message=message,
            named=await workspaces.named_files(saved.repository),
            secrets=_reasons(secrets) if result.leaks.mode == "redact" else None,
        )
        done = await apply_saved(allow=allow)
        if isinstance(done, ProtectedChanges) and allow_all:
            done = await apply_saved(allow=(*allow, *done.paths))
        if isinstance(done, ProtectedChanges):
            return ProtectedFiles(paths=printable_paths(done.paths))
        if isinstance(done, TreeConflict):
            return MergeConflict(lines=done.report.splitlines())
        return Applied(
            repository=saved.repository,
            branch=done.branch,
            commit=done.commit,
            files=file_changes(done.changes),
            left_out=printable_paths(selection.left_out),
            secrets=printable_paths(secrets),
        )

    async def target(self, run_id: str, into: str | None, here: str) -> str | None:
        """Return the clone into which the changes of a run go; None if the run knows its own."""
        history = await workspace_history(self._resources.store.run_log, run_id)
        if history is None and into is not None:
            raise UsageError(
                f"--into: run {run_id!r} worked in a worktree, and its changes go into the "
                "repository of that"
            )
        return _below(here, into or ".") if history else None

    async def _check_ended(self, row: RunRow) -> None:
        if await current_status(row, self._resources.store.liveness) == "running":
            raise UsageError(
                f"run {row.id!r} is still working in its checkout; wait until it has finished"
            )

    async def _record(self, row: RunRow, saved: Saved, branch: str | None, caller: Caller) -> None:
        await self._resources.audit().record(
            "run.applied",
            caller.actor,
            correlation_id=caller.correlation_id or row.correlation_id,
            run_id=row.id,
            workflow_id=row.workflow_id,
            details={"node": saved.node, "repository": saved.repository, "branch": branch},
        )

    async def _record_leak(
        self,
        row: RunRow,
        saved: Saved,
        leaks: LeakGuard,
        secrets: Mapping[str, list[str]],
        caller: Caller,
    ) -> None:
        detectors = sorted({name for names in secrets.values() for name in names})
        await self._resources.audit().record(
            "leak.found",
            caller.actor,
            outcome=leaks.mode,
            correlation_id=caller.correlation_id or row.correlation_id,
            run_id=row.id,
            workflow_id=row.workflow_id,
            details={
                "node": saved.node,
                "files": [leaks.redact(path) for path in secrets],
                "detectors": [*detectors],
            },
        )


def _below(here: str, path: str) -> str:
    return str(Path(here, Path(path).expanduser()))


def _reasons(secrets: Mapping[str, list[str]]) -> dict[str, str]:
    return {path: f"holds a secret: {', '.join(names)}" for path, names in secrets.items()}


def _chosen(found: Sequence[WorktreeInfo], run_id: str, node: str | None) -> WorktreeInfo:
    """Return the worktree that is meant; raise UsageError that says what to type."""
    if not found:
        raise UsageError(
            f"run {run_id!r} has no worktree: its steps changed files in place "
            f"(`infloop diff {run_id}` shows the changes)"
        )
    named = [each for each in found if node in (None, each.node)]
    if len(named) != 1:
        nodes = ", ".join(each.node for each in found)
        raise UsageError(f"run {run_id!r} has worktrees of: {nodes}; choose one with --node")
    return named[0]


async def _saved(workspaces: Workspaces, worktree: WorktreeInfo) -> Saved:
    saved = await workspaces.saved(worktree)
    if saved is None:
        raise UsageError(
            f"run {worktree.run_id!r} is still working in its worktree; wait until it has finished"
        )
    return saved


async def _saved_elsewhere(
    workspaces: Workspaces,
    history: WorkspaceHistory,
    result: RunResult | None,
    run_id: str,
    into: str | None,
) -> Saved:
    """Return the state of a run's own checkout as that of a worktree of the clone at `into`."""
    chosen = result.selections.get(WORKSPACE) if result else None
    if history.fetched is None or result is None or chosen is None:
        raise UsageError(f"run {run_id!r} changed nothing in its checkout that could be applied")
    source, commit = history.source.repository, history.fetched.commit
    if into is None:
        raise UsageError(
            f"run {run_id!r} worked in {source!r}: say which clone of it gets the changes "
            f"(`infloop apply {run_id} --into DIR`)"
        )
    try:
        found = await repository.find(workspaces.store.git, Path(into))
    except StepError:
        raise UsageError(
            f"{into!r} is in no clone of {source!r}, which run {run_id!r} worked in: choose one "
            "with --into DIR"
        ) from None
    if await found.ref(commit) is None:
        raise UsageError(
            f"{str(found.root)!r} does not have the commit {commit[:12]} in which run {run_id!r} "
            f"began: choose a clone of {source!r} with --into DIR, or fetch first"
        )
    last = history.stored.snapshot if history.stored else history.snapshots[-1]
    return Saved(
        name="",
        run_id=run_id,
        node="workspace",
        repository=str(found.root),
        common=str(found.common),
        commit=commit,
        base=history.snapshots[0],
        final=last,
        head=commit,
    )
