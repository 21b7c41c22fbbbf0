"""LangGraph doing N steps: a node that leads back to itself, kept by its SQLite saver.

The saver's connection is its own default: WAL mode and `synchronous=FULL`. With
`durability="sync"` a step's checkpoint is committed before the next step begins; each step is two
commits (the writes of the node, then the checkpoint with the whole state), some four rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, TypedDict

from benchmark import Sample, stopwatch


class State(TypedDict):
    """Small and of constant size, as the scope of our loop is."""

    count: int
    limit: int
    text: str


def measure_cycle(steps: int, folder: Path) -> Sample:
    """Run `steps` trivial steps after a short warm-up."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    def step(state: State) -> dict[str, Any]:
        return {"count": state["count"] + 1, "text": "ok"}

    def onward(state: State) -> str:
        return END if state["count"] >= state["limit"] else "step"

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", onward)

    with (
        tempfile.TemporaryDirectory(dir=folder) as here,
        SqliteSaver.from_conn_string(str(Path(here, "langgraph.db"))) as saver,
    ):
        app = graph.compile(checkpointer=saver)

        def run(count: int, thread: str) -> None:
            config = {"configurable": {"thread_id": thread}, "recursion_limit": count + 10}
            begin = {"count": 0, "limit": count, "text": ""}
            result = app.invoke(begin, config, durability="sync")  # type: ignore[call-overload]
            if result["count"] != count:
                raise RuntimeError(f"LangGraph did {result['count']} steps of {count}")

        run(20, "warm-up")
        with stopwatch(steps) as sample:
            run(steps, "measured")
    return sample
