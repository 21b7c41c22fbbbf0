"""What waits for a person: asked by a step, listed in one place, answered from anywhere.

A question is a row that every process sees. Whoever asks is woken at once by an answer that is
given in its own process, and looks once a second for one that is given in another. Silence denies:
when the time is up, when the run ends, and when the process that asked is dead.

Beside questions, the list has what else waits for somebody: runs that paused for want of money, and
schedules that missed their time. These are answered elsewhere, as their hints say.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import NotFound, StoreError, UsageError
from infloop.model.approval import SHORT_ID, Approval, cut_note, how_to, question
from infloop.model.events import Notice
from infloop.policy.permissions import PermissionDecision
from infloop.store.interfaces.approvals import AlreadySettled, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.model.approval import AllowOrDeny, ApprovalState, Question
    from infloop.model.audit import Actor
    from infloop.model.clock import Clock
    from infloop.model.events import Event
    from infloop.model.values import JsonObject
    from infloop.providers.approval_requests import AskPerson
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.approvals import ApprovalStore
    from infloop.store.interfaces.liveness import Liveness
    from infloop.store.interfaces.run_log import RunLog, RunRow

LOOK_SECONDS = 1.0
"""How long it takes at most until an answer from another process is seen."""

MOST_PAUSED = 200


@dataclass(frozen=True, slots=True)
class Asker:
    """A step that asks: where it is, which process waits, and how its run tells of it."""

    owner: str
    run_id: str
    workflow_id: str
    path: str
    node: str
    post: Callable[[Event], None]
    publish: Callable[[JsonObject], None]

    def told(self, approval: Approval, message: str) -> None:
        """Let the run's record say something, and who listens to all runs know it."""
        self.post(Notice(f"[approval] {message}", self.path, self.node))
        self.announce(approval)

    def announce(self, approval: Approval) -> None:
        """Tell who listens to all runs; what is asked in detail is for who reads it."""
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


@dataclass(frozen=True, slots=True)
class _Open:
    approval: Approval
    answered: asyncio.Event


class Approvals:
    """The questions of all processes that share a data directory.

    `timeout_ms` is how long a question waits; 0 means that nobody is asked. `missed` returns what
    schedules ask about.
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

    # -- asking ------------------------------------------------------------------------------

    def power(self, asker: Asker) -> AskPerson | None:
        """Return the way in which one step asks; none when nobody is to be asked."""
        return partial(self.ask, asker) if self._timeout_ms else None

    async def ask(self, asker: Asker, question: Question) -> PermissionDecision:
        """Wait for an answer and return it, with who gave it and why; silence denies.

        Cancelled, the question is withdrawn.
        """
        now = self._clock.now_ms()
        approval = Approval(
            str(uuid.uuid4()),
            question.kind,
            question.title,
            question.details,
            now,
            now + self._timeout_ms,
            asker.run_id,
            asker.workflow_id,
            asker.path,
        )
        waiting = self._open[approval.id] = _Open(approval, asyncio.Event())
        try:
            await self._store.ask(approval, asker.owner)
            asker.told(approval, f"waiting for an answer: {approval.title}; {how_to(approval)}")
            settled = await self._settled(waiting)
        except BaseException:
            self._take_back(asker, approval)
            raise
        finally:
            del self._open[approval.id]
        asker.told(settled, f"{settled.account}: {settled.title}")
        return PermissionDecision(settled.state == "allowed", settled.account)

    async def _settled(self, waiting: _Open) -> Approval:
        """Return what became of a question, once that is known."""
        name, expires_at = waiting.approval.id, waiting.approval.expires_at or 0
        while (left_ms := expires_at - self._clock.now_ms()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, left_ms / 1000)):
                    await waiting.answered.wait()
            found = await self._store.read(name)
            if found.state != "waiting":
                return found
        return await self._store.expire(name, self._clock.now_ms())

    def _take_back(self, asker: Asker, approval: Approval) -> None:
        now, note = self._clock.now_ms(), "whoever asked does not wait any more"
        with suppress(StoreError):  # a journal that is closed leaves it to whoever recovers
            self._store.withdraw(approval.id, note, now)
        gone = msgspec.structs.replace(approval, state="withdrawn", note=note, answered_at=now)
        asker.announce(gone)

    def open_of(self, run_id: str) -> list[Approval]:
        """Return what a run of this process waits for."""
        return [each.approval for each in self._open.values() if each.approval.run_id == run_id]

    # -- looking -----------------------------------------------------------------------------

    async def waiting(self) -> list[Approval]:
        """Return everything that waits for a person, the oldest question first."""
        await self.tidy()
        return [*await self._store.waiting(), *await self._elsewhere()]

    async def listed(self, state: ApprovalState) -> list[Approval]:
        """Return what is in this state: what waits, or what became so, the newest first."""
        if state == "waiting":
            return await self.waiting()
        await self.tidy()
        return await self._store.settled(state)

    async def read(self, approval_id: str) -> Approval:
        """Return one of them, whatever became of it; raise NotFound if it is unknown."""
        await self.tidy()
        try:
            return await self._store.read(approval_id)
        except NotFound:
            for each in await self._elsewhere():
                if each.id == approval_id:
                    return each
            raise

    async def tidy(self) -> None:
        """Settle what nobody waits for: its time is up, or the process that asked is dead."""
        now = self._clock.now_ms()
        for owner in await self._store.owners():
            if await self._liveness.state(owner) == "dead":
                await self._store.withdraw_all(owner, "the process that asked ended", now)
        if any((each.expires_at or 0) <= now for each in await self._store.waiting()):
            await self._store.expire_due(now)

    async def _elsewhere(self) -> list[Approval]:
        paused = await self._run_log.runs(status="paused", limit=MOST_PAUSED)
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
        """Answer a question, which is in the audit log before it counts; the first answer counts.

        Raises NotFound for one that is unknown, AlreadySettled for one that does not wait, and
        UsageError for what is answered elsewhere.
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
    """Return a run that paused for want of money as something that waits."""
    name = row.id[:SHORT_ID]
    asked = question("budget", f"run {name} of {row.workflow_name} paused: {row.error}", {})
    return Approval(
        f"budget:{row.id}",
        asked.kind,
        asked.title,
        asked.details,
        row.finished_at or row.started_at,
        run_id=row.id,
        workflow_id=row.workflow_id,
        hint=(
            f"`infloop resume {name} --max-cost-usd USD` grants it money, "
            f"`infloop cancel {name}` ends it"
        ),
    )
