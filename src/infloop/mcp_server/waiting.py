"""Waiting for a run, for less time than clients have patience, and telling how it goes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, assert_never

from pydantic import Field

from infloop.errors import UsageError
from infloop.mcp_server.runs import status_of
from infloop.mcp_server.tools import Arguments, utility
from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Output,
    Remark,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    WaitOver,
)
from infloop.store.queue import QueueEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Call
    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject

LONGEST_SECONDS = 50.0
LOOK_SECONDS = 0.1
TOLD_AT_ONCE = 10
"""Of many things that happened at once, so many of the newest are told."""


_GOING_ON = ("queued", "running", "stalled")


class WhichToAwait(Arguments):
    """Which run is waited for, and how long."""

    run_id: str = Field(description="The run's id.", min_length=1, max_length=200)
    timeout_seconds: float = Field(
        30.0,
        description="When to return although the run goes on; then wait again.",
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
    )


async def wait_for_run(parts: McpParts, given: WhichToAwait, call: Call) -> JsonObject:
    """Wait until a run is over, for at most timeoutSeconds, and tell how it is then.

    `finished` says whether it is over. Who asks for progress is told which steps begin and end.
    """
    await parts.dispatcher.find(given.run_id)
    with parts.waits.one() as free:
        if not free:
            raise UsageError(
                f"{parts.waits.most} calls wait already; ask infloop_get_run_status instead"
            )
        try:
            async with asyncio.timeout(given.timeout_seconds):
                await _to_its_end(parts, given.run_id, call)
        except TimeoutError:
            pass  # how the run is by then is the answer
    status = await status_of(parts, await parts.dispatcher.find(given.run_id))
    return {"finished": status["status"] not in _GOING_ON, **status}


async def _to_its_end(parts: McpParts, run_id: str, call: Call) -> None:
    while isinstance(found := await parts.dispatcher.find(run_id), QueueEntry):
        if not found.is_waiting:
            return
        await asyncio.sleep(LOOK_SECONDS)
    told = 0.0
    async with aclosing(parts.service.listen(run_id)) as batches:
        async for batch in batches:
            lines = list(_lines(batch))
            told += len(lines)
            newest = lines[-TOLD_AT_ONCE:]
            for number, line in enumerate(newest, 1):
                await call.tell(told - len(newest) + number, line)
            if isinstance(batch[-1].event, RunFinished):
                return
            if lines:
                await asyncio.sleep(LOOK_SECONDS)  # what happens meanwhile is told together


def _lines(batch: Sequence[Recorded]) -> Iterator[str]:
    for item in batch:
        event = item.event
        match event:
            case StepStarted():
                yield f"{event.path} began{_round(event.iteration)}"
            case StepFinished():
                yield f"{event.path} ended: {'failed' if event.error else event.handle}"
            case StepPassed():
                yield f"{event.path} passed: {event.handle}{_round(event.iteration)}"
            case RunStarted() | RunResumed() | RunFinished() | StepWaiting() | WaitOver():
                pass
            case StopRequested() | BudgetExceeded() | GuardFailed() | Remark() | Output():
                pass
            case _:
                assert_never(event)


def _round(iteration: int) -> str:
    return f" (round {iteration})" if iteration else ""


WAIT_FOR_RUN = utility(
    "wait_for_run", "Wait for a run", WhichToAwait, wait_for_run, reads_only=True
)
