"""Rewinds a run: a new run with the same past up to a step, and the files as they were then."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from infloop.engine.graph import compile_program, decode_definition
from infloop.engine.past import PastComparison
from infloop.errors import UsageError
from infloop.model.events import Cause, Output, Recorded, StepPassed, StepStarted
from infloop.runtime.runs.admission import check_not_imported
from infloop.runtime.runs.definitions import prepare
from infloop.runtime.runs.replay import SEQ_GAP, first_event
from infloop.runtime.runs.starting import new_correlation_id
from infloop.runtime.stored_snapshots import StoredSnapshots
from infloop.runtime.timeline import directory_states
from infloop.store.interfaces.run_log import NewRun, Ownership

if TYPE_CHECKING:
    from infloop.engine.graph import Definition
    from infloop.model.events import TreeRestored
    from infloop.runtime.runs.admission import Admission
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.runtime.runs.resuming import RunResumer
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.timeline import DirectoryState
    from infloop.store.interfaces.run_log import RunLog, RunRow
    from infloop.workspace.snapshots.changes import Change

SHOWN_STEPS = 12
FILES = ("cli", "rewind")
"""The causes whose detail is the workflow's file."""


class DirectoryRestore(NamedTuple):
    """What a rewind changes in a directory; None when the directory is made again."""

    directory: str
    changes: list[Change] | None


class NewVersion(NamedTuple):
    """Another version of a run's workflows, and the file it was read from."""

    definition: Definition
    file: str


class RunRewinder:
    """Forks runs at one of their steps."""

    def __init__(self, shared: SharedResources, admission: Admission, resumer: RunResumer) -> None:
        self._shared = shared
        self._admission = admission
        self._resumer = resumer
        self._run_log = shared.store.run_log
        self._workspaces = shared.dependencies.workspaces

    async def plan(
        self, run_id: str, step: str, definition: Definition | None = None
    ) -> list[DirectoryRestore]:
        """Return what a rewind to `step` changes in the directories the run worked in.

        Raises UsageError if the run cannot go on from there with `definition`.
        """
        seq = await find_step(self._run_log, run_id, step)
        if definition is not None:
            await self._check_definition(await self._run_log.run(run_id), seq, definition)
        states = await self._past_states(run_id, seq)
        if self._workspaces is None:
            return []
        return [
            DirectoryRestore(state.directory, await self._workspaces.restore_changes(state))
            for state in states
        ]

    async def rewind(self, run_id: str, step: str, version: NewVersion | None = None) -> str:
        """Start a new run from a step of `run_id`; see `RunService.rewind`."""
        await self._admission.check_resources()
        row = await self._run_log.run(run_id)
        check_not_imported(row)
        seq = await find_step(self._run_log, run_id, step)
        prepared = None
        if version is not None:
            prepared = await self._check_definition(row, seq, version.definition)
        states = await self._past_states(run_id, seq)
        loaded = await self._run_log.load(run_id, until_seq=seq - 1)
        started = await first_event(self._run_log, run_id)
        old = prepare(decode_definition(loaded.definition))
        self._admission.check_confinement(prepared or old, started.cause)
        await self._resumer.end_orphans()
        if started.workspace:
            self._admission.check_workspace(started.workspace)
        else:
            await self._admission.enter(started.workdir)
        source = row.cause if row.cause.kind == "rewind" else started.cause
        new = NewRun(
            id=str(uuid.uuid4()),
            workflow_id=row.workflow_id,
            workflow_name=str(prepared.workflow["name"]) if prepared else row.workflow_name,
            definition=prepared.data if prepared else loaded.definition,
            owner=self._shared.instance.id,
            started_at=self._shared.clock.now_ms(),
            correlation_id=new_correlation_id(),
            cause=Cause(
                "rewind",
                version.file if version else source.detail if source.kind in FILES else "",
                parent_run=run_id,
                parent_step=step,
                untrusted=row.cause.untrusted,
            ),
        )
        await self._shared.audit.record("run.started", new)
        restores = await self._save_replaced(new, states)
        ownership = await self._run_log.fork(run_id, seq, new)
        if restores:
            ownership = await self._announce(new, ownership, restores)
        await self._resumer.go_on(
            await self._run_log.load(new.id),
            ownership,
            new_definition=prepared.hash if prepared else "",
        )
        return new.id

    async def _check_definition(
        self, row: RunRow, seq: int, definition: Definition
    ) -> PreparedDefinition:
        """Return a definition that has the same past as a run before `seq`; else raise UsageError.

        What is new in it passes the checks of a new run.
        """
        prepared = prepare(definition)
        old = await self._run_log.load(row.id, until_seq=seq - 1)
        past = PastComparison(compile_program(decode_definition(old.definition)), prepared.program)
        after = 0
        while batch := await self._run_log.events(row.id, after, seq - 1, include_output=False):
            for item in batch:
                if isinstance(item.event, Output):
                    continue
                if difference := past.replay(item.event, item.time):
                    raise UsageError(
                        f"the run cannot go on with this version of its workflow: {difference}. "
                        "Everything before the step must be the same; rewind to an earlier step, "
                        "or start a new run"
                    )
            after = batch[-1].seq
        started = await first_event(self._run_log, row.id)
        self._admission.check_confinement(prepared, started.cause)
        return prepared

    async def _past_states(self, run_id: str, seq: int) -> list[DirectoryState]:
        """Return how the run's directories were at `seq`; raise if it may still change them."""
        if self._workspaces is None:
            return []
        # A worktree that was made later is left out: the new run makes its own.
        states = [
            state
            for state in await directory_states(self._run_log, run_id, seq)
            if state.visited or not self._workspaces.is_worktree(state.directory)
        ]
        if states:
            await self._admission.check_not_driven(await self._run_log.run(run_id))
        return states

    async def _save_replaced(self, run: NewRun, states: list[DirectoryState]) -> list[TreeRestored]:
        """Save, for the new run, the files that a rewind replaces; return what it restores."""
        if self._workspaces is None:
            return []
        stored = StoredSnapshots(self._workspaces, self._run_log, self._shared.store.results)
        await stored.bring(run.cause.parent_run)
        self._workspaces.store.share(run.cause.parent_run, run.id)
        found = [
            await self._workspaces.prepare_restore(run.id, run.cause.parent_step, state)
            for state in states
        ]
        return [each for each in found if each]

    async def _announce(
        self, run: NewRun, ownership: Ownership, restores: list[TreeRestored]
    ) -> Ownership:
        """Record what is about to be restored, so that a crash in between can be finished."""
        announced = [
            Recorded(run.id, seq, run.started_at, run.correlation_id, event)
            for seq, event in enumerate(restores, ownership.last_seq + SEQ_GAP)
        ]
        await self._run_log.append(run.id, ownership.epoch, announced)
        return Ownership(ownership.epoch, announced[-1].seq)


async def find_step(run_log: RunLog, run_id: str, step: str) -> int:
    """Return the sequence number at which a step, or a round such as `loop-1[3]`, first began."""
    after, seen = 0, list[str]()
    while batch := await run_log.events(run_id, after, include_output=False):
        for item in batch:
            event = item.event
            if isinstance(event, StepStarted | StepPassed):
                if event.path == step or event.path.startswith(f"{step}/"):
                    return item.seq
                seen.append(event.path)
        after = batch[-1].seq
    last = ", ".join(dict.fromkeys(seen[-SHOWN_STEPS:])) or "none"
    raise UsageError(
        f"run {run_id!r} has no step {step!r}; its last steps are: {last}. "
        f"`infloop show {run_id}` lists them all"
    )
