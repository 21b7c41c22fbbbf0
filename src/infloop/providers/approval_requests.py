"""Questions that an agent has put and a person has not answered: the agent waits, we listen on.

An adapter is handed a way to ask (`Ask`) and nothing else of who answers, where and how.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from infloop.errors import InfloopError
from infloop.policy.permissions import PermissionDecision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.model.approval import Question

MOST_OPEN = 8
"""How many questions of one agent may be open: nobody can read more at once."""


class Ask(Protocol):
    """Puts a question to a person."""

    def __call__(self, question: Question) -> Awaitable[PermissionDecision]:
        """Wait for the answer and return it; silence denies. Cancelled, the question is gone."""


class Asking:
    """The open questions of one agent; whoever made this closes it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0

    @property
    def is_open(self) -> bool:
        """Whether the agent waits for a person."""
        return self._open > 0

    def put(self, question: Question, then: Callable[[PermissionDecision], None]) -> None:
        """Ask, and call `then` with the answer."""
        if self._open >= MOST_OPEN:
            then(
                PermissionDecision(
                    allowed=False, why=f"{MOST_OPEN} questions wait for an answer already"
                )
            )
            return
        self._open += 1
        task = asyncio.create_task(self._consult(question, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Take back what has no answer."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _consult(
        self, question: Question, then: Callable[[PermissionDecision], None]
    ) -> None:
        try:
            ruling = await self._ask(question)
        except InfloopError as error:
            ruling = PermissionDecision(allowed=False, why=f"nobody could be asked: {error}")
        finally:
            self._open -= 1  # before the answer is told: from then on the agent's silence counts
        then(ruling)
