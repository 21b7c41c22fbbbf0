"""An agent's open requests for a person's approval. Its other output is read meanwhile.

An adapter is given a function that asks (`AskPerson`). It does not know who answers, or how.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.errors import InfloopError
from infloop.policy.permissions import PermissionDecision

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.approval import Question
    from infloop.policy.permissions import AskPerson

MAX_OPEN_REQUESTS = 8
"""How many requests of one agent may be open: a person cannot read more at once."""


class ApprovalRequests:
    """The open requests of one agent. Its owner must close it."""

    def __init__(self, ask_person: AskPerson) -> None:
        self._ask_person = ask_person
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0

    @property
    def is_open(self) -> bool:
        """Whether the agent waits for a person."""
        return self._open > 0

    def submit(self, question: Question, then: Callable[[PermissionDecision], None]) -> None:
        """Ask, and call `then` with the answer."""
        if self._open >= MAX_OPEN_REQUESTS:
            why = f"{MAX_OPEN_REQUESTS} questions wait for an answer already"
            then(PermissionDecision(allowed=False, why=why))
            return
        self._open += 1
        task = asyncio.create_task(self._wait(question, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Withdraw all requests without an answer."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, question: Question, then: Callable[[PermissionDecision], None]) -> None:
        try:
            ruling = await self._ask_person(question)
        except InfloopError as error:
            ruling = PermissionDecision(allowed=False, why=f"nobody could be asked: {error}")
        finally:
            # Before `then`: once the agent has its answer, its idle timeout counts again.
            self._open -= 1
        then(ruling)
