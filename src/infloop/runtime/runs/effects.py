"""Performs the steps of one run: starts them once they are durable, and interrupts them.

Every planned step has exactly one outcome, interrupted or not. The exception is a run that this
process stops driving: its open steps have none, and start again when the run is resumed.
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
from infloop.model.nodes import node_model
from infloop.nodes.base import Outcome, failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from infloop.engine.commands import Perform, Wait

MAX_SLEEP_S = 30.0


class Effects:
    """The planned and the running steps."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        act: Callable[[Perform], Awaitable[Outcome]],
        post: Callable[[Event], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Take what performs a step, and what adds events to the run."""
        self._tasks = tasks
        self._act = act
        self._post = post
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._planned: list[Perform] = []
        self._not_started: dict[str, Perform] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._interrupted: dict[str, str] = {}

    def plan(self, perform: Perform) -> None:
        """Add a step whose start is recorded."""
        self._planned.append(perform)
        self._not_started[perform.path] = perform

    def start_when(self, durable: asyncio.Future[None]) -> None:
        """Start the planned steps as soon as `durable` is done."""
        if self._planned:
            planned, self._planned = self._planned, []
            if durable.done():
                self._start(planned, durable)
            else:
                durable.add_done_callback(partial(self._start, planned))

    def wait(self, wait: Wait) -> None:
        """Report when the time of a waiting step has come."""
        self._run(wait, self._sleep(wait))

    def interrupt(self, path: str, reason: str) -> None:
        """End a step, or keep it from starting."""
        perform = self._not_started.pop(path, None)
        if perform is not None:
            self._report(perform, _cancelled(reason), 0)
            return
        task = self._running.get(path)
        if task is not None:
            self._interrupted[path] = reason
            task.cancel()

    def close(self) -> None:
        """Start nothing more."""
        self._not_started.clear()

    def _start(self, planned: list[Perform], durable: asyncio.Future[None]) -> None:
        if durable.cancelled() or durable.exception() is not None:
            return
        for perform in planned:
            if self._not_started.pop(perform.path, None) is not None:
                self._run(perform, self._effect(perform, self._loop.time()))

    def _run(self, step: Perform | Wait, work: Coroutine[object, object, None]) -> None:
        task = self._tasks.create_task(work)
        task.add_done_callback(partial(self._done, step, self._loop.time()))
        self._running[step.path] = task

    async def _sleep(self, wait: Wait) -> None:
        # Short sleeps by wall-clock time: the event loop's clock stops while the machine sleeps.
        while (left_ms := wait.until - self._now_ms()) > 0:  # noqa: ASYNC110  (time, not an event)
            await asyncio.sleep(min(left_ms / 1000, MAX_SLEEP_S))
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
                    path=perform.path,
                    node=perform.node,
                    node_type=perform.node_type,
                    until=outcome.until,
                    reason=outcome.error,
                    outputs=outcome.outputs,
                    duration_ms=self._since(began),
                )
            )
        else:
            self._report(perform, outcome, self._since(began))

    def _done(self, perform: Perform | Wait, began: float, task: asyncio.Task[None]) -> None:
        """Report the outcome of an interrupted step, which may not even have started."""
        if self._running.get(perform.path) is task:  # not the next attempt of the same step
            del self._running[perform.path]
        reason = self._interrupted.pop(perform.path, None)
        if reason is not None and task.cancelled():
            self._report(perform, _cancelled(reason), self._since(began))

    def _since(self, began: float) -> int:
        return int((self._loop.time() - began) * 1000)

    def _failure(self, perform: Perform, error: Exception) -> Outcome | None:
        """Return the outcome of a failed step; None if the engine ends the whole run instead."""
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
                trace = "".join(traceback.format_exception(error, limit=20))
                self._post(Notice(trace, perform.path, perform.node, "error"))
                return failed(f"internal error: {type(error).__name__}: {error}")

    def _report(self, perform: Perform | Wait, outcome: Outcome, duration_ms: int) -> None:
        self._post(
            StepFinished(
                path=perform.path,
                node=perform.node,
                node_type=perform.node_type,
                handle=outcome.handle,
                outputs=node_model(perform.node_type).with_steady_outputs(outcome.outputs),
                duration_ms=duration_ms,
                error=outcome.error,
                tree=outcome.tree,
            )
        )


def _cancelled(reason: str) -> Outcome:
    return Outcome("error", {"errorMessage": f"cancelled: {reason}"}, "cancelled")
