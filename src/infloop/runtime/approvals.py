"""Questions of steps to a person: asked, listed and answered.

- A question is a row that every process sees. An answer from the same process wakes the step at
  once; an answer from another process is seen within a second.
- No answer means no: after the timeout, and when the run ends.
- A question outlives the process that asked. A resumed run asks for the same action again and finds
  the question or its answer, which is used once.
- The list also has runs that paused because their budget is spent, and schedules that missed their
  time. They are answered elsewhere, as their hints say.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import NotFound, StoreError, UsageError
from infloop.model.approval import SHORT_ID, Approval, answer_hint, cut_note, question
from infloop.model.events import Notice
from infloop.policy.permissions import PermissionDecision
from infloop.store.interfaces.approvals import AlreadySettled, refusal
from infloop.store.interfaces.liveness import dead_owners

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.model.approval import AllowOrDeny, ApprovalState, Question
    from infloop.model.audit import Actor
    from infloop.model.clock import Clock
    from infloop.model.events import Event
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import AskPerson
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.approvals import ApprovalStore
    from infloop.store.interfaces.liveness import Liveness
    from infloop.store.interfaces.run_log import RunLog, RunRow

POLL_SECONDS = 1.0
"""How often a waiting step checks for an answer from another process."""

MAX_PAUSED = 200


class AskingStep(msgspec.Struct, frozen=True):
    """A step that asks; `owner` is the process that waits for the answer.

    `post` adds events to the step's run; `publish` sends messages to the event bus.
    """

    owner: str
    run_id: str
    workflow_id: str
    path: str
    node: str
    post: Callable[[Event], None]
    publish: Callable[[JsonObject], None]

    def report(self, approval: Approval, message: str) -> None:
        """Add a notice to the run, and publish the state of the question."""
        self.post(Notice(f"[approval] {message}", self.path, self.node))
        self.publish_state(approval)

    def publish_state(self, approval: Approval) -> None:
        """Publish the state of the question, without its details."""
        asked = approval.state == "waiting"
        self.publish(
            {
                "type": "approval_asked" if asked else "approval_answered",
                "approvalId": approval.id,
                "runId": approval.run_id,
                "workflowId": approval.workflow_id,
                "stepPath": approval.path,
                "kind": approval.kind,
                "title": approval.title,
                "state": approval.state,
                "expiresAt": approval.expires_at,
                "time": approval.asked_at if asked else approval.answered_at,
            }
        )


class _Open(msgspec.Struct, frozen=True):
    approval: Approval
    answered: asyncio.Event


class Approvals:
    """The questions of all processes that share a data directory.

    `timeout_ms` is how long a question waits; 0 means that nobody is asked. `missed` returns the
    schedules that missed their time.
    """

    def __init__(
        self,
        store: ApprovalStore,
        run_log: RunLog,
        liveness: Liveness,
        clock: Clock,
        audit: AuditLog,
        *,
        timeout_ms: int = 0,
        missed: Callable[[], Sequence[Approval]] = tuple,
    ) -> None:
        self._store = store
        self._run_log = run_log
        self._liveness = liveness
        self._clock = clock
        self._audit = audit
        self._timeout_ms = timeout_ms
        self._missed = missed
        self._open: dict[str, _Open] = {}
        self._keeps_open = False
        self._lost_runs: set[str] = set()

    # -- asking ------------------------------------------------------------------------------

    def ask_function(self, step: AskingStep) -> AskPerson | None:
        """Return the function with which one step asks; None if nobody is asked."""
        return partial(self.ask, step) if self._timeout_ms else None

    def keep_open(self) -> None:
        """From now on keep the questions of steps that are cancelled: their runs can be resumed."""
        self._keeps_open = True

    def keep_open_for(self, run_id: str) -> None:
        """Keep the questions of a run that belongs to another process now."""
        if self.open_for_run(run_id):
            self._lost_runs.add(run_id)

    async def ask(self, step: AskingStep, question: Question) -> PermissionDecision:
        """Wait for the answer and return it, with who gave it and why; no answer means no.

        When this is cancelled the question is withdrawn, unless the process stops.
        """
        earlier = await self._earlier(step, question)
        approval = earlier or self._new(step, question)
        waiting = self._open[approval.id] = _Open(approval, asyncio.Event())
        try:
            if earlier is None:
                await self._store.ask(approval, step.owner)
            if approval.state == "waiting":
                step.report(
                    approval, f"waiting for an answer: {approval.title}; {answer_hint(approval)}"
                )
            settled = await self._settled(waiting)
            is_first_use = await self._store.use(settled.id, self._clock.now_ms())
        except BaseException:
            if not self._keeps_open and step.run_id not in self._lost_runs:
                self._withdraw(step, approval)
            raise
        finally:
            del self._open[approval.id]
            if not self.open_for_run(step.run_id):
                self._lost_runs.discard(step.run_id)
        step.report(settled, f"{settled.account}: {settled.title}")
        return PermissionDecision(settled.state == "allowed" and is_first_use, settled.account)

    async def _earlier(self, step: AskingStep, question: Question) -> Approval | None:
        """Return the question that the step asked before its run was interrupted, if it did."""
        if not step.run_id or not question.action:
            return None
        now = self._clock.now_ms()
        return await self._store.take_over(step.run_id, step.path, question.action, step.owner, now)

    def _new(self, step: AskingStep, question: Question) -> Approval:
        now = self._clock.now_ms()
        return Approval(
            id=str(uuid.uuid4()),
            kind=question.kind,
            title=question.title,
            details=question.details,
            asked_at=now,
            expires_at=now + (question.timeout_ms or self._timeout_ms),
            run_id=step.run_id,
            workflow_id=step.workflow_id,
            path=step.path,
            action=question.action,
        )

    async def _settled(self, waiting: _Open) -> Approval:
        """Return the question once it is answered, withdrawn or expired."""
        name, expires_at = waiting.approval.id, waiting.approval.expires_at or 0
        if waiting.approval.state != "waiting":
            return waiting.approval
        while (left_ms := expires_at - self._clock.now_ms()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(POLL_SECONDS, left_ms / 1000)):
                    await waiting.answered.wait()
            found = await self._store.read(name)
            if found.state != "waiting":
                return found
        return await self._store.expire(name, self._clock.now_ms())

    def _withdraw(self, step: AskingStep, approval: Approval) -> None:
        now, note = self._clock.now_ms(), "the step that asked does not wait any more"
        with suppress(StoreError):  # if the store is closed, recovery withdraws it
            self._store.withdraw(approval.id, note, now)
        gone = msgspec.structs.replace(approval, state="withdrawn", note=note, answered_at=now)
        step.publish_state(gone)

    def open_for_run(self, run_id: str) -> list[Approval]:
        """Return the open questions of a run of this process."""
        return [each.approval for each in self._open.values() if each.approval.run_id == run_id]

    # -- listing -----------------------------------------------------------------------------

    async def waiting(self) -> list[Approval]:
        """Return everything that waits for a person, the oldest question first."""
        await self.settle_abandoned()
        return [*await self._store.waiting(), *await self._answered_elsewhere()]

    async def listed(self, state: ApprovalState) -> list[Approval]:
        """Return the questions in a state: waiting ones oldest first, others newest first."""
        if state == "waiting":
            return await self.waiting()
        await self.settle_abandoned()
        return await self._store.settled(state)

    async def read(self, approval_id: str) -> Approval:
        """Return a question in any state; raise NotFound if it is unknown."""
        await self.settle_abandoned()
        try:
            return await self._store.read(approval_id)
        except NotFound:
            for each in await self._answered_elsewhere():
                if each.id == approval_id:
                    return each
            raise

    async def settle_abandoned(self) -> None:
        """Settle the questions that have expired, or that no run can come back to."""
        now = self._clock.now_ms()
        for owner in await dead_owners(self._liveness, await self._store.owners()):
            for each in await self._store.waiting_for(owner):
                if not await self._can_come_back(each.run_id):
                    note = "the process that asked ended"
                    await self._store.withdraw(each.id, note, now)
        if any((each.expires_at or 0) <= now for each in await self._store.waiting()):
            await self._store.expire_due(now)

    async def _can_come_back(self, run_id: str) -> bool:
        """Tell whether a run of a dead process can be resumed."""
        try:
            return bool(run_id) and (await self._run_log.run(run_id)).status == "running"
        except NotFound:
            return False

    async def _answered_elsewhere(self) -> list[Approval]:
        paused = await self._run_log.runs(status="paused", limit=MAX_PAUSED)
        return [*map(_paused, paused), *await asyncio.to_thread(self._missed)]

    # -- answering ---------------------------------------------------------------------------

    async def answer(
        self,
        approval_id: str,
        answer: AllowOrDeny,
        who: Actor,
        *,
        note: str = "",
        correlation_id: str = "",
    ) -> Approval:
        """Answer a question; the audit log has the answer before it takes effect.

        The first answer counts. Raises NotFound if the question is unknown, AlreadySettled if it
        does not wait, and UsageError if it is answered elsewhere.
        """
        found = await self.read(approval_id)
        if found.hint:
            raise UsageError(f"{approval_id!r} is not answered here: {found.hint}")
        if found.state != "waiting":
            raise AlreadySettled(refusal(found))
        note = cut_note(note)
        details: JsonObject = {"approval": found.id, "kind": found.kind, "title": found.title}
        record = partial(
            self._audit.record,
            "approval.answered",
            who,
            correlation_id=correlation_id,
            run_id=found.run_id,
            workflow_id=found.workflow_id,
            details={**details, "note": note} if note else details,
        )
        await record(outcome=answer)
        now = self._clock.now_ms()
        try:
            settled = await self._store.answer(approval_id, answer, who, note, now)
        except AlreadySettled:
            await record(outcome="too-late")
            raise
        if approval_id in self._open:
            self._open[approval_id].answered.set()
        return settled


def _paused(row: RunRow) -> Approval:
    """Return a run that paused because its budget is spent, as a question."""
    name = row.id[:SHORT_ID]
    ask = question("budget", f"run {name} of {row.workflow_name} paused: {row.error}", {})
    return Approval(
        id=f"budget:{row.id}",
        kind=ask.kind,
        title=ask.title,
        details=ask.details,
        asked_at=row.finished_at or row.started_at,
        run_id=row.id,
        workflow_id=row.workflow_id,
        hint=(
            f"`infloop resume {name} --max-cost-usd USD` grants it money, "
            f"`infloop cancel {name}` ends it"
        ),
    )
