"""Applies what an agent changed in its worktree to the user's work tree or to a branch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from infloop.application.models import Model
from infloop.application.runs.file_changes import file_changes, printable_paths, run_result
from infloop.application.runs.models import FileChange
from infloop.errors import Forbidden, UsageError
from infloop.workspace.applying.apply import ProtectedChanges, apply, overlapping_edits
from infloop.workspace.applying.merge import MergeConflict as TreeConflict
from infloop.workspace.applying.selection import Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.policy.leaks.modes import LeakMode
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.interfaces.run_log import RunRow
    from infloop.workspace.worktrees.records import Saved
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
    ) -> ApplyResult:
        """Apply the changes of a run to the work tree, or to a new or existing branch.

        These are the changes that `RunHistory.diff` shows with the same `everything` and `include`.
        `node` says whose changes, if several agents made some. `allow` are protected files and
        directories that may change; with `allow_all`, all of them may. The same permission is
        needed for a file to which a secret was added; the mode of the leak guard decides.
        """
        if not caller.is_identified:
            raise Forbidden(
                "a server without a token applies nothing: an agent may be able to reach it. "
                f"Set INFLOOP_API_TOKEN, or use `infloop apply {run_id}`",
                "token-needed",
            )
        row = await self._resources.store.run_log.run(run_id)
        workspaces = await self._resources.workspaces()
        worktree = _chosen(workspaces.listed(run_id), run_id, node)
        saved = await _saved(workspaces, worktree)
        wanted = Wanted(everything, tuple(include))
        result = await run_result(self._resources, run_id, wanted=wanted)
        assert result is not None  # there is a saved worktree
        selection = result.selections[worktree.path]
        if branch is None and (
            paths := await overlapping_edits(workspaces.store, saved, selection)
        ):
            return UncommittedChanges(repository=saved.repository, paths=list(paths))
        secrets = await result.secrets(worktree.path)
        if secrets:
            await self._record_leak(row, saved, result.leaks.mode, secrets, caller)
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
        mode: LeakMode,
        secrets: Mapping[str, list[str]],
        caller: Caller,
    ) -> None:
        detectors = sorted({name for names in secrets.values() for name in names})
        await self._resources.audit().record(
            "leak.found",
            caller.actor,
            outcome=mode,
            correlation_id=caller.correlation_id or row.correlation_id,
            run_id=row.id,
            workflow_id=row.workflow_id,
            details={"node": saved.node, "files": [*secrets], "detectors": [*detectors]},
        )


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
