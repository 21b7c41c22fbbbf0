"""What a story is told of a run that began before anybody watched."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from infloop.cli.view.run_view import Story
from infloop.engine.state import decode_state
from infloop.model.events import Recorded, StepStarted
from infloop.store.interfaces.ledger import CallFilter

if TYPE_CHECKING:
    from infloop.cli.view.labels import Labels
    from infloop.engine.state import State, Step
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.run_log import LoadedRun, RunLog
    from infloop.store.interfaces.store import Store

AT_ONCE = 10_000


async def whole_story(store: Store, run_id: str) -> Story:
    """Return all that the journal says of a run, without its output."""
    story = Story()
    after = 0
    while batch := await store.run_log.events(run_id, after, limit=AT_ONCE, include_output=False):
        story.tell(batch)
        after = batch[-1].seq
    await count_doubts(store.ledger, run_id, story)
    return story


async def count_doubts(ledger: CallLedger, run_id: str, story: Story) -> None:
    """Let the story know whether all that the run cost is known."""
    story.cost_is_incomplete = (await ledger.total(CallFilter(run_id=run_id))).incomplete > 0


async def story_so_far(run_log: RunLog, loaded: LoadedRun, labels: Labels) -> Story:
    """Return how a run came to where it was loaded, told from its last checkpoint on.

    So it costs the same however long the run is; what was done before is counted and not listed.
    """
    story = Story()
    if loaded.checkpoint is not None:
        story.tell(await run_log.events(loaded.run.id, limit=1, include_output=False))
        _tell_state(story, decode_state(loaded.checkpoint.state), labels)
    story.tell(loaded.events)
    return story


def _tell_state(story: Story, state: State, labels: Labels) -> None:
    """Tell what is open as if it began just now, outermost first, and count what is over."""
    story.untold = story.steps_done = state.executions - len(state.steps)
    story.cost_usd = state.cost_usd or None
    still_open = Counter(frame.container for frame in state.frames.values())
    for step in state.steps.values():
        if step.status != "ready":
            story.add(_beginning(state, step, labels))
            begun = step.rounds or len(step.branches)
            story.active[step.path].frames.skip(max(0, begun - still_open[step.path]))


def _beginning(state: State, step: Step, labels: Labels) -> Recorded:
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
