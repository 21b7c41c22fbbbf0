"""Questions that wait for a person, and their answers.

Promises of every implementation:

- The first answer counts, also when several processes answer at the same time.
- A question that was answered, has expired or was withdrawn never changes again.
- An allowed question is used once, also when several processes try.
- A question is kept for 90 days, even when its run is deleted earlier. The details of a withdrawn
  question are deleted at once.

An owner is the id of the process that waits for the answer (`liveness`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from infloop.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from infloop.model.approval import AllowOrDeny, Approval, ApprovalState
    from infloop.model.audit import Actor

KEPT_MS = 90 * 86_400_000
"""How long a question is kept after it was asked."""


class AlreadySettled(UsageError):
    """The question takes no answer any more; the message says why."""


def refusal(approval: Approval) -> str:
    """Return why a question takes no answer."""
    why = approval.account if approval.state != "waiting" else "nobody answered in time"
    return f"{approval.id!r} takes no answer any more: {why}"


class ApprovalStore(ABC):
    """The questions of all processes that share the store."""

    @abstractmethod
    async def ask(self, approval: Approval, owner: str) -> None:
        """Store a question that `owner` waits for."""

    @abstractmethod
    async def take_over(
        self, run_id: str, path: str, action: str, owner: str, time: int
    ) -> Approval | None:
        """Return the oldest question of a step for this action that nobody has used.

        It waits for another owner, whose place `owner` takes, or was answered; it has not expired.
        """

    @abstractmethod
    async def use(self, approval_id: str, time: int) -> bool:
        """Use up an answer; false if it was used before."""

    @abstractmethod
    async def answer(
        self, approval_id: str, answer: AllowOrDeny, actor: Actor, note: str, time: int
    ) -> Approval:
        """Answer a question. Raises NotFound, or AlreadySettled if it no longer waits."""

    @abstractmethod
    async def expire(self, approval_id: str, time: int) -> Approval:
        """Expire a question unless it was answered; return it as it is then."""

    @abstractmethod
    async def expire_due(self, time: int) -> None:
        """Expire all questions whose deadline has passed."""

    @abstractmethod
    def withdraw(self, approval_id: str, note: str, time: int) -> asyncio.Future[None]:
        """Queue the withdrawal of a question; an answered one stays answered."""

    @abstractmethod
    async def waiting_for(self, owner: str) -> list[Approval]:
        """Return the questions that a process waits for, oldest first."""

    @abstractmethod
    async def read(self, approval_id: str) -> Approval:
        """Return a question, or raise NotFound."""

    @abstractmethod
    async def waiting(self, *, limit: int = 1_000) -> list[Approval]:
        """Return the questions that wait for an answer, oldest first."""

    @abstractmethod
    async def settled(self, state: ApprovalState, *, limit: int = 1_000) -> list[Approval]:
        """Return the questions that ended in `state`, newest first."""

    @abstractmethod
    async def owners(self) -> list[str]:
        """Return the processes that wait for answers."""
