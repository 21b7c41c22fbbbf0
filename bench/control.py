"""Control nodes: steps that decide and do nothing, with the journal on.

Measured from `start()` until `wait()` returns: the definition is encoded, hashed and compiled,
every step is a durable event (SQLite, `synchronous=FULL`), the run has settled, and its texts are
indexed for the search. CPU counts all threads, so the journal's writer too. A node is a branch that
compares an input with a text. Once as a loop of five branches, once as 10,000 branches in a row,
and once more as a loop with one listener, for whom every event is encoded as for an event stream.

The same loop of 100 to 100,000 rounds shows how the cost of one grows.

There is no durable peer whose control flow costs nothing but a decision. LangGraph's cycle of a
plain Python function with its SQLite saver is shown as an orientation: to it, every node is a step.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import original
from application import Node, application, begin, line, loop, node, run_to_end
from benchmark import Benchmark, Contender, Sample, Target, cpu, each, stopwatch, wall
from growth import Growth
from infloop.app import run_async
from infloop.web.streams import Frames
from langgraph_cycle import measure_cycle

if TYPE_CHECKING:
    from benchmark import Rounds
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.service import RunService

BRANCHES = 5
MOST_NODES = 10_000  # a workflow file may have no more
LANGGRAPH_STEPS = 1_000
SIZES = (100, 1_000, 10_000, 100_000)


def branches(count: int) -> list[Node]:
    """Return nodes that look at an input and go on."""
    return [
        node(f"branch-{number}", "branch", lhs="{{inputs.mode}}", op="==", rhs="fast")
        for number in range(count)
    ]


def measure_loop(nodes: int, folder: Path) -> Sample:
    """Run rounds of five branches."""
    return run_async(_measure(loop(branches(BRANCHES), "true", nodes // BRANCHES), nodes, folder))


def measure_rounds(rounds: int) -> Callable[[int, Path], Sample]:
    """Return how so many rounds of one branch are measured."""
    tree = loop(branches(1), "true", rounds)
    return lambda _, folder: run_async(_measure(tree, rounds, folder))


def measure_chain(nodes: int, folder: Path) -> Sample:
    """Run branches in a row."""
    count = min(nodes, MOST_NODES - 2)  # the start and the end are nodes too
    return run_async(_measure(line(branches(count), "true"), count, folder))


async def _measure(tree: Node, nodes: int, folder: Path) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        async with application(here) as service:
            await run_to_end(service, loop(branches(BRANCHES), "true", 50), here, mode="fast")
            with stopwatch(nodes) as sample:
                run_id = await run_to_end(service, tree, here, mode="fast")
            row = await service.store.run_log.run(run_id)
            if row.steps < nodes:
                raise RuntimeError(f"the journal has {row.steps} steps of {nodes}")
    return sample


def measure_heard(nodes: int, folder: Path) -> Sample:
    """Run rounds of five branches while one listener gets every event."""
    return run_async(_measure_heard(nodes, folder))


async def _measure_heard(nodes: int, folder: Path) -> Sample:
    tree = loop(branches(BRANCHES), "true", nodes // BRANCHES)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        async with application(here) as service:
            await run_to_end(service, loop(branches(BRANCHES), "true", 50), here, mode="fast")
            with stopwatch(nodes) as sample:
                run_id = await begin(service, tree, here, mode="fast")
                heard = asyncio.create_task(_listen(service, run_id))
                await service.wait(run_id)
                if (got := await heard) < nodes:
                    raise RuntimeError(f"the listener got {got} events of {nodes} nodes")
    return sample


async def _listen(service: RunService, run_id: str) -> int:
    """Encode every event of a run as an event stream does; return their number."""

    async def scope(run_id: str) -> JsonObject:
        return await service.store.run_log.scope(run_id) or {}

    frames, got = Frames(scope), 0
    async for batch in service.listen(run_id):
        b"".join([await frames.of_run(item) for item in batch])
        got += len(batch)
    return got


def measure_langgraph(nodes: int, folder: Path) -> Sample:
    """Run fewer steps, for they take longer; the figures are per step."""
    return measure_cycle(min(nodes, LANGGRAPH_STEPS), folder)


def contender(rounds: int) -> str:
    """Return the name of the measurement with so many rounds."""
    return f"infloop, {rounds:,} rounds of one branch"


GROWTH = (Growth("a round, CPU", "rounds", {size: contender(size) for size in SIZES}, cpu),)

LOOP, CHAIN, HEARD = "infloop, loop", "infloop, chain", "infloop, loop, one listener"

BENCHMARK = Benchmark(
    title="Control nodes, journal on",
    unit="node",
    contenders=(
        Contender(LOOP, measure_loop),
        Contender(CHAIN, measure_chain),
        Contender(HEARD, measure_heard),
        Contender("LangGraph, cycle", measure_langgraph),
        *(Contender(contender(size), measure_rounds(size), most_rounds=3) for size in SIZES),
    ),
    targets=(
        Target("CPU a node, loop", each(LOOP, cpu, 1e6), 15, "µs"),
        Target("CPU a node, one listener", each(HEARD, cpu, 1e6), 25, "µs"),
        Target("CPU a node, chain", each(CHAIN, cpu, 1e6), 40, "µs"),
        Target("10,000 nodes, loop", each(LOOP, wall, 1e4), 0.5, "s"),
        Target("10,000 nodes, chain", each(CHAIN, wall, 1e4), 0.5, "s"),
    ),
    size=10_000,
    quick_size=10_000,
    rounds=7,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [
        original.row(original.CONTROL_NODES, each(LOOP, cpu, 1e6)(rounds)),
        original.row(original.CONTROL_NODES_HEARD, each(HEARD, cpu, 1e6)(rounds)),
    ]
