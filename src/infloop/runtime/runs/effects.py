"""The effects of one run: begun once their start is durable, interrupted, and always answered for.

Whatever was planned ends in exactly one outcome, interrupted or not, unless the whole run is being
taken down in this process: then there is none, and the step is begun again by whoever resumes.
"""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import BudgetError, GuardError, InfloopError, StepError
from infloop.model.events import (
    BudgetExceeded,
    Event,
    GuardFailed,
    Notice,
    StepFinished,
    StepWaiting,
    WaitOver,
)
from infloop.nodes.base import Outcome, failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from infloop.engine.commands import Perform, Wait

LONGEST_NAP_S = 30.0


class Effects:
    """What is planned and what is running."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        act: Callable[[Perform], Awaitable[Outcome]],
        post: Callable[[Event], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._tasks = tasks
        self._act = act
        self._post = post
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._planned: list[Perform] = []
        self._waiting: dict[str, Perform] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._interrupted: dict[str, str] = {}

    def plan(self, perform: Perform) -> None:
        """Take an effect whose start has been recorded."""
        self._planned.append(perform)
        self._waiting[perform.path] = perform

    def begin_when(self, durable: asyncio.Future[None]) -> None:
        """Let what is planned begin as soon as `durable` is done."""
        if self._planned:
            planned, self._planned = self._planned, []
            if durable.done():
                self._begin(planned, durable)
            else:
                durable.add_done_callback(partial(self._begin, planned))

    def wait(self, wait: Wait) -> None:
        """Report when a time has come."""
        self._run(wait, self._sleep(wait))

    def interrupt(self, path: str, reason: str) -> None:
        """End an effect, or keep it from beginning."""
        perform = self._waiting.pop(path, None)
        if perform is not None:
            self._answer(perform, _cancelled(reason), 0)
            return
        task = self._running.get(path)
        if task is not None:
            self._interrupted[path] = reason
            task.cancel()

    def close(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()

    def _begin(self, planned: list[Perform], durable: asyncio.Future[None]) -> None:
        if durable.cancelled() or durable.exception() is not None:
            return
        for perform in planned:
            if self._waiting.pop(perform.path, None) is not None:
                self._run(perform, self._effect(perform, self._loop.time()))

    def _run(self, step: Perform | Wait, work: Coroutine[object, object, None]) -> None:
        task = self._tasks.create_task(work)
        task.add_done_callback(partial(self._done, step, self._loop.time()))
        self._running[step.path] = task

    async def _sleep(self, wait: Wait) -> None:
        # In short naps by the calendar: a machine that sleeps stops the event loop's own clock.
        while (left_ms := wait.until - self._now_ms()) > 0:  # noqa: ASYNC110  (time, not an event)
            await asyncio.sleep(min(left_ms / 1000, LONGEST_NAP_S))
        self._post(WaitOver(wait.path))

    async def _effect(self, perform: Perform, began: float) -> None:
        try:
            outcome = await self._act(perform)
        except Exception as error:  # noqa: BLE001  (the edge of a step: a defect fails it alone)
            failure = self._failure(perform, error)
            if failure is None:
                return
            outcome = failure
        if outcome.until:
            self._post(
                StepWaiting(
                    perform.path,
                    perform.node,
                    perform.node_type,
                    outcome.until,
                    outcome.error,
                    outcome.outputs,
                    self._since(began),
                )
            )
        else:
            self._answer(perform, outcome, self._since(began))

    def _done(self, perform: Perform | Wait, began: float, task: asyncio.Task[None]) -> None:
        """Answer for an effect that was interrupted; it may not even have begun."""
        if self._running.get(perform.path) is task:  # and not the next attempt at the same step
            del self._running[perform.path]
        reason = self._interrupted.pop(perform.path, None)
        if reason is not None and task.cancelled():
            self._answer(perform, _cancelled(reason), self._since(began))

    def _since(self, began: float) -> int:
        return int((self._loop.time() - began) * 1000)

    def _failure(self, perform: Perform, error: Exception) -> Outcome | None:
        """Return how it went wrong; nothing if the step was refused: the engine answers for it."""
        match error:
            case StepError():
                return failed(str(error))
            case BudgetError():
                self._post(BudgetExceeded(str(error), perform.path))
                return None
            case GuardError():
                self._post(GuardFailed(str(error), perform.path))
                return None
            case InfloopError():
                raise error
            case _:
                said = "".join(traceback.format_exception(error, limit=20))
                self._post(Notice(said, perform.path, perform.node, "error"))
                return failed(f"internal error: {type(error).__name__}: {error}")

    def _answer(self, perform: Perform | Wait, outcome: Outcome, duration_ms: int) -> None:
        self._post(
            StepFinished(
                perform.path,
                perform.node,
                perform.node_type,
                outcome.handle,
                outcome.outputs,
                duration_ms,
                outcome.error,
                outcome.tree,
            )
        )


def _cancelled(reason: str) -> Outcome:
    return Outcome("error", {"errorMessage": f"cancelled: {reason}"}, "cancelled")
