"""Questions that wait for a person: list, read, answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.errors import Conflict, Forbidden, UsageError
from infloop.model.approval import Approval, answer_hint
from infloop.store.interfaces.approvals import AlreadySettled

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.model.approval import AllowOrDeny, ApprovalState

SHORTEST_PREFIX = 4


class ApprovalList(Model, kw_only=True):
    """Questions in one state; one with a `hint` is answered as the hint says."""

    approvals: list[Approval]


class ApprovalAnswer(Model, kw_only=True):
    """One question, and what became of it."""

    approval: Approval


class Approvals:
    """What waits for a person, in all processes of a data directory."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def all(self, state: ApprovalState = "waiting") -> ApprovalList:
        """List what waits, the oldest question first, or what became of earlier questions."""
        return ApprovalList(approvals=await self._resources.approvals().listed(state))

    async def find_id(self, name: str) -> str:
        """Return the id of the waiting question whose id begins so; a complete id stays as it is.

        Raises UsageError that says what to type.
        """
        waiting = await self._resources.approvals().waiting()
        found = [each.id for each in waiting if each.id.startswith(name)]
        if len(name) < SHORTEST_PREFIX or len(found) > 1:
            why = f"{len(found)} questions begin with" if len(found) > 1 else "give more than"
            raise UsageError(f"{why} {name!r}; `infloop approvals` lists them")
        return found[0] if found else name

    async def read(self, approval_id: str) -> Approval:
        return await self._resources.approvals().read(approval_id)

    async def answer(
        self, approval_id: str, answer: AllowOrDeny, caller: Caller, note: str = ""
    ) -> Approval:
        """Allow or deny what is asked. The first answer counts."""
        if not caller.is_identified:
            raise Forbidden(
                "a server without a token takes no answers: the agent that asks may be able to "
                "reach it. Set INFLOOP_API_TOKEN, or use `infloop approvals`",
                "token-needed",
            )
        try:
            return await self._resources.approvals().answer(
                approval_id,
                answer,
                caller.actor,
                note=note,
                correlation_id=caller.correlation_id,
            )
        except AlreadySettled as error:
            raise Conflict(str(error), "already-answered") from None
        except UsageError as error:
            raise Conflict(str(error), "answered-elsewhere") from None

    def open_of(self, run_id: str) -> list[Approval]:
        """Return what a run of this process waits for."""
        return self._resources.approvals().open_for_run(run_id)


__all__ = ["ApprovalAnswer", "ApprovalList", "Approvals", "answer_hint"]
