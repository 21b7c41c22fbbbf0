"""Forks processes that drive runs until they are killed; see test_crash.py.

A child takes up every interrupted run, or starts a new one from its number. It says each event that
it has seen durable, and `done` when all its runs are over (see forking).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infloop.model.events import Output, event_type, step_path
from support.forking import fork_for_each_line, import_all, say
from support.random_workflows import generate
from support.runs import World, world


async def acknowledge(here: World, run_id: str) -> None:
    async for batch in here.service.listen(run_id):
        for item in batch:
            if not isinstance(item.event, Output):
                say(f"ack {run_id} {item.seq} {event_type(item.event)} {step_path(item.event)}")


async def work(folder: Path, seed: int) -> None:
    async with world(folder) as here:
        runs = (await here.service.recover()).resumable
        for run_id in runs:
            await here.service.resume(run_id)
        if not runs:
            root, called = generate(seed, f"w{seed}", size=4, depth=2)
            runs = [await here.start(root, *called, inputs={"run": f"run{seed}"})]
            say(f"began {runs[0]} {seed}")
        async with asyncio.TaskGroup() as tasks:
            for run_id in runs:
                tasks.create_task(acknowledge(here, run_id))
    say("done")


if __name__ == "__main__":
    import_all("infloop.cli", "infloop.mcp_server", "infloop.providers.acp.agent", "infloop.web")
    fork_for_each_line(work)
