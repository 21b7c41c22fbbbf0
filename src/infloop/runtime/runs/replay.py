"""Rebuilds a run from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.engine.machine import advance
from infloop.engine.state import State, decode_state
from infloop.errors import NotFound
from infloop.model.events import RunStarted

if TYPE_CHECKING:
    from infloop.engine.graph import Program
    from infloop.store.interfaces.run_log import LoadedRun, RunLog

SEQ_GAP = 10_000
"""How far sequence numbers skip ahead when a run goes on: an interrupted process may have shown
events to listeners that it did not write."""


def rebuild_state(program: Program, loaded: LoadedRun) -> State:
    """Return the state after a run's checkpoint and the events that follow it."""
    state = decode_state(loaded.checkpoint.state) if loaded.checkpoint else State()
    for item in loaded.events:
        state, _ = advance(program, state, item.event, item.time)  # type: ignore[arg-type]
    return state


async def first_event(run_log: RunLog, run_id: str) -> RunStarted:
    """Return the event with which a run began."""
    for item in await run_log.events(run_id, limit=1, include_output=False):
        if isinstance(item.event, RunStarted):
            return item.event
    raise NotFound(f"run {run_id!r} has no beginning; it cannot be continued")
