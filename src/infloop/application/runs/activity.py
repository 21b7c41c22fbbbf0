"""Where a run is that has not ended, whichever process drives it: read from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.models import Model

if TYPE_CHECKING:
    from infloop.application.runs.view import RunView
    from infloop.store.interfaces.run_log import LoadedRun, RunLog, RunRow

_END = 1 << 62


class OpenStep(Model, kw_only=True):
    """A step in progress."""

    path: str
    node_id: str
    node_type: str
    attempt: int
    started_at: int


class StepWait(Model, kw_only=True):
    """A step that is tried again at `until`, and why; the reason may be missing."""

    path: str
    until: int
    reason: str


class RunActivity(Model, kw_only=True):
    """The steps in progress, the round of each loop around them, and the last sign of life."""

    max_cost_usd: float | None = None
    open_steps: list[OpenStep]
    rounds: dict[str, int]
    last_sign_at: int | None = None
    waiting: StepWait | None = None


async def read_activity(run_log: RunLog, row: RunRow) -> RunActivity:
    """Return where a run is. The cost does not grow with the length of the run."""
    from infloop.application.runs.labels import Labels
    from infloop.application.runs.replay import view_from_checkpoint

    loaded = await run_log.load(row.id)
    view = await view_from_checkpoint(run_log, loaded, Labels(loaded.definition))
    newest = await run_log.events_before(row.id, _END, limit=1)
    positions = view.positions()
    rounds = {
        loop.path: number for step in positions for loop, number in step.loops() if number
    } | {step.path: step.rounds for step in positions if step.opens == "round" and step.rounds}
    return RunActivity(
        max_cost_usd=view.max_cost_usd or None,
        open_steps=[
            OpenStep(
                path=step.path,
                node_id=step.node,
                node_type=step.node_type,
                attempt=step.attempt,
                started_at=step.started_at,
            )
            for step in positions
        ],
        rounds=rounds,
        last_sign_at=newest.items[-1].time if newest.items else None,
        waiting=_wait(view, loaded),
    )


def _wait(view: RunView, loaded: LoadedRun) -> StepWait | None:
    from infloop.model.events import StepWaiting

    for step in view.positions():
        if step.waiting_until:
            reasons = (
                item.event.reason
                for item in reversed(loaded.events)
                if isinstance(item.event, StepWaiting) and item.event.path == step.path
            )
            return StepWait(path=step.path, until=step.waiting_until, reason=next(reasons, ""))
    return None
