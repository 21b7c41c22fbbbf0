"""A whole infloop in a folder, and small workflows for it to run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from infloop.app.runs import open_service
from infloop.engine.graph import Definition
from infloop.runtime.runs.service import RunService
from infloop.settings import Settings

PROVIDER = "scripted"

Node = dict[str, Any]


def settings(folder: Path) -> Settings:
    """Return settings that keep everything in `folder` and set no limits."""
    return Settings(
        data_dir=folder / "data",
        max_run_node_executions=0,
        max_run_duration_ms=0,
        run_history_limit=1_000_000,
    )


@asynccontextmanager
async def application(folder: Path, **chosen: Any) -> AsyncIterator[RunService]:
    """Open infloop as its own commands do: the journal in WAL mode with `synchronous=FULL`.

    `chosen` are other settings.
    """
    (folder / "work").mkdir(parents=True, exist_ok=True)
    async with open_service(settings(folder).model_copy(update=chosen)) as service:
        yield service


async def run_to_end(service: RunService, tree: Node, folder: Path, **inputs: Any) -> str:
    """Run a workflow until it is settled, indexed and pruned; return the run's id."""
    run_id = await begin(service, tree, folder, **inputs)
    finished = await service.wait(run_id)
    if finished.status != "succeeded":
        raise RuntimeError(f"the run {finished.status}: {finished.error}")
    return run_id


async def begin(service: RunService, tree: Node, folder: Path, **inputs: Any) -> str:
    """Start a workflow and return the run's id."""
    definition = Definition(tree["id"], {tree["id"]: tree})
    return await service.start(definition, inputs, workdir=str(folder / "work"))


def script(folder: Path, *actions: Node) -> None:
    """Say what the scripted provider does whenever it is asked."""
    directory = folder / "data/providers"
    directory.mkdir(parents=True, exist_ok=True)
    turns = {"turns": [{"do": list(actions)}]}
    (directory / f"{PROVIDER}.turns.json").write_text(json.dumps(turns))
    manifest = {
        "id": PROVIDER,
        "label": "Scripted",
        "description": "Plays a file of turns.",
        "transport": "scripted",
        "script": f"{PROVIDER}.turns.json",
    }
    (directory / f"{PROVIDER}.json").write_text(json.dumps(manifest))


def node(name: str, kind: str, children: list[Node] | None = None, /, **config: Any) -> Node:
    """Return a node."""
    made: Node = {"id": name, "type": kind, "position": {"x": 0, "y": 0}, "config": config}
    if children is not None:
        made["children"] = children
    return made


def agent(name: str) -> Node:
    """Return a step that asks the scripted provider."""
    return node(name, "agent", providerId=PROVIDER, prompt="go")


def edge(source: str, handle: str, target: str) -> Node:
    """Return an edge."""
    return {"id": f"{source}-{handle}", "source": source, "sourceHandle": handle, "target": target}


def chain(steps: list[Node], handle: str) -> list[Node]:
    """Return the edges that lead from each step to the next by the same handle."""
    return [edge(one["id"], handle, two["id"]) for one, two in pairwise(steps)]


def line(steps: list[Node], handle: str) -> Node:
    """Return a workflow of steps in a row."""
    edges = [
        edge("start", "next", steps[0]["id"]),
        *chain(steps, handle),
        edge(steps[-1]["id"], handle, "end"),
    ]
    return workflow(steps, edges)


def loop(steps: list[Node], handle: str, rounds: int, *after: Node) -> Node:
    """Return a workflow that does the steps in rounds, and then those in `after`."""
    rest = [node("loop", "loop", steps, maxIterations=rounds), *after]
    edges = [
        edge("start", "next", "loop"),
        *chain(steps, handle),
        *chain([*rest, node("end", "end")], "next"),
    ]
    return workflow(rest, edges)


def workflow(nodes: list[Node], edges: list[Node]) -> Node:
    """Return a workflow of nodes between a start and an end."""
    return {
        "id": "bench",
        "name": "bench",
        "version": 1,
        "inputs": [{"name": "mode", "type": "string"}],
        "nodes": [node("start", "start"), *nodes, node("end", "end", outcome="succeeded")],
        "edges": edges,
    }
