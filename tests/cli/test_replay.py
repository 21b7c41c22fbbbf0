"""The view of a run: rebuilt from a checkpoint, it is the same as from the first event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from infloop.application.runs.labels import Labels
from infloop.application.runs.replay import view_from_checkpoint, whole_view
from infloop.application.runs.view import RunView
from infloop.cli.view.outline import outline
from infloop.model.events import Recorded, StepStarted
from support.runs import World, scripted, world
from support.workflows import agent, edges, node, workflow

ROUNDS = 1_700


def deep() -> tuple[dict[str, Any], dict[str, Any]]:
    """A loop around a call around a parallel around a long loop, and beside the call an agent."""
    unmet = node(
        "c", "condition", kind="sentinel", against="", sentinel={"pattern": "x", "isRegex": False}
    )
    long = node("long", "loop", [unmet], maxIterations=ROUNDS)
    parallel = node("p", "parallel", [agent("quick"), long])
    child = workflow(
        [node("s", "start"), agent("first"), parallel], edges("s next first next p"), id="child"
    )
    call = node("call", "subworkflow", workflowId="child")
    around = node("l", "loop", [call, agent("hold")], maxIterations=3)
    return workflow([node("s", "start"), around], edges("s next l", "call next hold")), child


async def run_until_waiting(here: World, folder: Path) -> str:
    """Go on until the agent waits in the second round."""
    spends = [{"text": "ok"}, {"cost": 0.01}]
    turns = [{"node": "hold", "do": spends}, {"node": "hold", "do": [{"delayMs": 600_000}]}]
    scripted(folder / "data/providers", "fake", *turns, {"do": spends})
    run_id = await here.start(*deep())
    async with asyncio.timeout(60):
        async for batch in here.service.listen(run_id):
            paths = [r.event.path for r in batch if isinstance(r.event, StepStarted)]
            if "l[2]/hold" in paths:
                return run_id
    raise AssertionError("the run ended")


def present(view: RunView) -> dict[str, Any]:
    """What a person is shown of a run while it goes on."""
    return {
        "at": [(step.path, step.node, step.node_type) for step in view.positions()],
        "in": [
            [(loop.path, current, loop.rounds, loop.max_rounds) for loop, current in s.loops()]
            for s in view.positions()
        ],
        "frames": {path: len(step.frames) for path, step in view.active.items()},
        "done": view.steps_done,
        "cost": round(view.steps_cost_usd or 0, 6),
        "began": view.started_at,
    }


async def every_event(here: World, run_id: str) -> list[Recorded]:
    found: list[Recorded] = []
    while batch := await here.service.store.run_log.events(
        run_id, found[-1].seq if found else 0, include_output=False
    ):
        found += batch
    return found


async def test_a_long_run_rebuilt_from_a_checkpoint_has_the_same_view_as_from_all_its_events(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, max_run_node_executions=0) as here:
        store = here.service.store
        run_id = await run_until_waiting(here, tmp_path)
        items = await every_event(here, run_id)
        whole = RunView()
        compared = 0
        for number, item in enumerate(items, 1):
            whole.apply(item)
            if number % 97 and number != len(items):
                continue
            loaded = await store.run_log.load(run_id, until_seq=item.seq)
            rebuilt = await view_from_checkpoint(store.run_log, loaded, Labels(loaded.definition))
            assert present(rebuilt) == present(whole)
            compared += loaded.checkpoint is not None
    assert compared > 10
    assert present(whole)["in"] == [[("l", 2, 2, 3)]]


async def test_steps_before_the_checkpoint_are_counted_in_the_outline(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, max_run_node_executions=0) as here:
        store = here.service.store
        run_id = await run_until_waiting(here, tmp_path)
        loaded = await store.run_log.load(run_id)
        rebuilt = await view_from_checkpoint(store.run_log, loaded, Labels(loaded.definition))
        whole = await whole_view(store, run_id)
    first, *lines = outline(rebuilt)
    assert first == f"  … {rebuilt.steps_not_listed} earlier steps"
    assert 0 < rebuilt.steps_not_listed < rebuilt.steps_done
    assert lines[:3] == ["  ◌ l  loop  round 2 of 3", "    … 1 more rounds", "    round 2"]
    assert lines[-7:] == outline(whole)[-7:]
