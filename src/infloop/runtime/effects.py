"""The effects of one run: begun once their start is durable, interrupted, and always answered for.

Whatever was planned ends in exactly one outcome, interrupted or not, unless the whole run is being
taken down in this process: then there is none, and the step is begun again by whoever resumes.
"""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import BudgetError, InfloopError, StepError
from infloop.model.events import BudgetExceeded, Event, Notice, StepFinished
from infloop.nodes.base import Outcome, failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.engine.commands import Perform


class Effects:
    """What is planned and what is running."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        act: Callable[[Perform], Awaitable[Outcome]],
        post: Callable[[Event], None],
    ) -> None:
        self._tasks = tasks
        self._act = act
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._planned: list[Perform] = []
        self._waiting: dict[str, Perform] = {}
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._interrupted: dict[str, str] = {}

    def plan(self, perform: Perform) -> None:
        """Take an effect whose start has been recorded."""
        self._planned.append(perform)
        self._waiting[perform.path] = perform

    def begin_when(self, durable: asyncio.Future[None]) -> None:
        """Let what is planned begin as soon as `durable` is done."""
        if self._planned:
            planned, self._planned = self._planned, []
            durable.add_done_callback(partial(self._begin, planned))

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
                task = self._tasks.create_task(self._effect(perform))
                task.add_done_callback(partial(self._done, perform, self._loop.time()))
                self._running[perform.path] = task

    async def _effect(self, perform: Perform) -> Outcome:
        try:
            return await self._act(perform)
        except StepError as error:
            return failed(str(error))
        except BudgetError as error:
            self._post(BudgetExceeded(str(error)))
            return failed(str(error))
        except InfloopError:
            raise
        except Exception as error:  # noqa: BLE001  (the edge of a step: a defect fails it alone)
            self._post(Notice(traceback.format_exc(limit=20), perform.path, perform.node, "error"))
            return failed(f"internal error: {type(error).__name__}: {error}")

    def _done(self, perform: Perform, started: float, task: asyncio.Task[Outcome]) -> None:
        del self._running[perform.path]
        reason = self._interrupted.pop(perform.path, None)
        if task.cancelled():
            if reason is None:
                return
            outcome = _cancelled(reason)
        elif task.exception() is not None:
            return
        else:
            outcome = task.result()
        self._answer(perform, outcome, int((self._loop.time() - started) * 1000))

    def _answer(self, perform: Perform, outcome: Outcome, duration_ms: int) -> None:
        self._post(
            StepFinished(
                perform.path,
                perform.node,
                perform.node_type,
                outcome.handle,
                outcome.outputs,
                duration_ms,
                outcome.error,
            )
        )


def _cancelled(reason: str) -> Outcome:
    return Outcome("error", {"errorMessage": f"cancelled: {reason}"}, "cancelled")
