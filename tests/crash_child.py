"""Forks processes that drive runs until they are killed; see test_crash.py.

Reads lines `SEED` on stdin. For each, forks a child and prints `pid N` for it. On a line `go` the
child takes up every interrupted run, or starts a new one from the seed. It writes a line for each
event it has seen durable; when all its runs are over it writes `done` and ends. Everything is
imported before the first fork, so a child starts within milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import infloop.catalog
import infloop.runtime.service
import infloop.sandbox.host
import infloop.store.sqlite  # noqa: F401
from generate import generate
from infloop.model.events import Output, event_type, step_path
from world import World, world


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


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


def main(folder: Path) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.read(0, 16)  # until the test holds a handle on this process
            try:
                asyncio.run(work(folder, int(line)))
                os._exit(0)
            except BaseException as error:  # the parent must hear of it
                import traceback

                say(f"error {error!r} {traceback.format_exc()!r}")
                os._exit(1)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
