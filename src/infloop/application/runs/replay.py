"""Rebuilds the view of a run from the store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from infloop.application.runs.cost import RunCost, run_cost
from infloop.application.runs.view import RunView
from infloop.model.events import Recorded, StepStarted

if TYPE_CHECKING:
    from infloop.application.runs.labels import Labels
    from infloop.engine.state import State, Step
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.run_log import LoadedRun, RunLog
    from infloop.store.interfaces.store import Store

BATCH = 10_000


async def whole_view(store: Store, run_id: str) -> RunView:
    """Return the view of a run from all its events, without output."""
    view = RunView()
    after = 0
    while batch := await store.run_log.events(run_id, after, limit=BATCH, include_output=False):
        view.apply_all(batch)
        after = batch[-1].seq
    await read_cost(store.ledger, run_id, view)
    return view


async def read_cost(ledger: CallLedger, run_id: str, view: RunView) -> None:
    """Set what the run has cost so far.

    The record of an imported run has only what its steps said.
    """
    if view.started is not None and view.started.cause.kind == "import":
        view.cost = RunCost(usd=view.steps_cost_usd)
    else:
        view.cost = await run_cost(ledger, run_id)


async def view_from_checkpoint(run_log: RunLog, loaded: LoadedRun, labels: Labels) -> RunView:
    """Return the view of a run as it was loaded, from its last checkpoint on.

    The cost does not grow with the length of the run. Steps before the checkpoint are counted and
    not listed.
    """
    from infloop.engine.state import decode_state

    view = RunView()
    if loaded.checkpoint is not None:
        view.apply_all(await run_log.events(loaded.run.id, limit=1, include_output=False))
        _apply_state(view, decode_state(loaded.checkpoint.state), labels)
    view.apply_all(loaded.events)
    return view


def _apply_state(view: RunView, state: State, labels: Labels) -> None:
    """Start the open steps, outermost first, and count the finished ones."""
    view.steps_not_listed = view.steps_done = state.executions - len(state.steps)
    view.steps_cost_usd = state.cost_usd or None
    view.max_cost_usd = state.limits.max_cost_usd
    open_frames = Counter(frame.container for frame in state.frames.values())
    for step in state.steps.values():
        if step.status != "ready":
            view.apply(_start_event(state, step, labels))
            view.active[step.path].waiting_until = step.until if step.status == "waiting" else 0
            started = step.rounds or len(step.branches)
            view.active[step.path].frames.skip(max(0, started - open_frames[step.path]))


def _start_event(state: State, step: Step, labels: Labels) -> Recorded:
    frame = state.frames[step.frame]
    node = labels.node(frame.graph, step.node)
    started = StepStarted(
        step.path,
        frame.node_prefix + step.node,
        node["type"],
        node.get("config") or {},
        frame.iteration,
        step.attempt,
    )
    return Recorded("", 0, step.started_at, "", started)
