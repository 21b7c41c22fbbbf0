"""Waits for a run, for less time than clients allow, and reports its progress."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject

LONGEST_SECONDS = 50.0
GATHER_SECONDS = 0.1
MAX_REPORTED = 10
"""Of many things that happen at once, only the newest are reported."""


_NOT_OVER = ("queued", "running", "stalled")


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


async def wait_for_run(mcp: McpDependencies, given: WhichToAwait, call: Call) -> JsonObject:
    """Wait until a run is over, for at most timeoutSeconds, and return its status.

    `finished` says whether it is over. Progress notifications name the steps that begin and end.
    """
    history = mcp.application.history
    await history.summary(given.run_id)
    with mcp.waits.one() as free:
        if not free:
            raise UsageError(
                f"{mcp.waits.limit} calls wait already; ask infloop_get_run_status instead"
            )
        try:
            async with asyncio.timeout(given.timeout_seconds):
                await _follow(mcp, given.run_id, call)
        except TimeoutError:
            pass  # the status then is the answer
    status = await status_of(mcp, await history.summary(given.run_id))
    return {"finished": status["status"] not in _NOT_OVER, **status}


async def _follow(mcp: McpDependencies, run_id: str, call: Call) -> None:
    """Report the progress of a run until it ends."""
    reported = 0.0
    async with aclosing(mcp.application.live.follow(run_id)) as batches:
        async for batch in batches:
            lines = list(_lines(batch))
            reported += len(lines)
            newest = lines[-MAX_REPORTED:]
            for number, line in enumerate(newest, 1):
                await call.tell(reported - len(newest) + number, line)
            if isinstance(batch[-1].event, RunFinished):
                return
            if lines:
                await asyncio.sleep(GATHER_SECONDS)  # what happens meanwhile is reported together


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
