"""Says whether another version of a workflow has the same past, so that a run can go on with it.

The events of the run are replayed with the new version. Every step must be reached as it was, and
the node of every step must be defined as it was: what it did would otherwise not be what the new
version asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.engine.machine import advance
from infloop.engine.state import State
from infloop.model.events import RunStarted, StepPassed, StepStarted

if TYPE_CHECKING:
    from infloop.engine.graph import Graph, Program
    from infloop.model.events import Event


class PastComparison:
    """Replays a run with a new version of its workflows."""

    def __init__(self, old: Program, new: Program) -> None:
        self._old = old
        self._new = new
        self._state = State()

    def replay(self, event: Event, now: int) -> str:
        """Apply the next event; return the first difference, or an empty text."""
        if isinstance(event, RunStarted):
            difference = self._start(event)
        elif isinstance(event, StepStarted | StepPassed):
            difference = self._step(event)
        else:
            difference = ""
        if not difference:
            self._state, _ = advance(self._new, self._state, event, now)
        return difference

    def _start(self, event: RunStarted) -> str:
        if self._new.root != self._old.root:
            return f"it is workflow {self._new.root!r}, and the run is of {self._old.root!r}"
        names = [str(each.get("name")) for each in self._new.graphs[self._new.root].inputs]
        added = next((name for name in names if name not in event.inputs), None)
        return f"the run has no input {added!r}" if added is not None else ""

    def _step(self, event: StepStarted | StepPassed) -> str:
        step = self._state.steps.get(event.path)
        if step is None:
            return f"it does not lead to step {event.path!r}"
        graph = self._state.frames[step.frame].graph
        was, now = self._old.graphs.get(graph), self._new.graphs[graph]
        return _node_difference(was, now, step.node) if was else f"workflow {graph!r} is new"


def _node_difference(was: Graph, now: Graph, name: str) -> str:
    if was.globals != now.globals:
        return f"the globals of workflow {now.id!r} differ"
    old, new = was.nodes.get(name), now.nodes[name]
    if old is None or (old.type, old.config) != (new.type, new.config):
        return f"node {name!r} is defined otherwise"
    return ""
