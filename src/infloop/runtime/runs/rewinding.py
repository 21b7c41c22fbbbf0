"""Rewinds a run: a new run with the same past up to a step, and the files as they were then."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import UsageError
from infloop.model.events import Cause, Recorded, StepPassed, StepStarted
from infloop.runtime.runs.admission import check_not_imported
from infloop.runtime.runs.replay import SEQ_GAP, first_event
from infloop.runtime.runs.starting import new_correlation_id
from infloop.runtime.timeline import directory_states
from infloop.store.interfaces.run_log import NewRun, Ownership

if TYPE_CHECKING:
    from infloop.model.events import TreeRestored
    from infloop.runtime.runs.admission import Admission
    from infloop.runtime.runs.resuming import RunResumer
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.timeline import DirectoryState
    from infloop.store.interfaces.run_log import RunLog
    from infloop.workspace.snapshots.changes import Change

SHOWN_STEPS = 12


class DirectoryRestore(NamedTuple):
    """What a rewind changes in a directory; None when the directory is made again."""

    directory: str
    changes: list[Change] | None


class RunRewinder:
    """Forks runs at one of their steps."""

    def __init__(self, shared: SharedResources, admission: Admission, resumer: RunResumer) -> None:
        self._shared = shared
        self._admission = admission
        self._resumer = resumer
        self._run_log = shared.store.run_log
        self._workspaces = shared.dependencies.workspaces

    async def plan(self, run_id: str, step: str) -> list[DirectoryRestore]:
        """Return what a rewind to `step` changes in the directories the run worked in."""
        states = await self._past_states(run_id, await find_step(self._run_log, run_id, step))
        if self._workspaces is None:
            return []
        return [
            DirectoryRestore(state.directory, await self._workspaces.restore_changes(state))
            for state in states
        ]

    async def rewind(self, run_id: str, step: str) -> str:
        """Start a new run from a step of `run_id`; see `RunService.rewind`."""
        await self._admission.check_resources()
        row = await self._run_log.run(run_id)
        check_not_imported(row)
        seq = await find_step(self._run_log, run_id, step)
        states = await self._past_states(run_id, seq)
        await self._resumer.end_orphans()
        loaded = await self._run_log.load(run_id, until_seq=seq - 1)
        await self._admission.enter((await first_event(self._run_log, run_id)).workdir)
        new = NewRun(
            id=str(uuid.uuid4()),
            workflow_id=row.workflow_id,
            workflow_name=row.workflow_name,
            definition=loaded.definition,
            owner=self._shared.instance.id,
            started_at=self._shared.clock.now_ms(),
            correlation_id=new_correlation_id(),
            cause=Cause(
                "rewind", parent_run=run_id, parent_step=step, untrusted=row.cause.untrusted
            ),
        )
        restores = await self._save_replaced(new, states)
        ownership = await self._run_log.fork(run_id, seq, new)
        self._shared.audit.note("run.started", new)
        if restores:
            ownership = await self._announce(new, ownership, restores)
        await self._resumer.go_on(await self._run_log.load(new.id), ownership)
        return new.id

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
