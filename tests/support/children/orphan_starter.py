"""Forks processes whose runs start children that try to outlive them; see test_orphans.py.

A process records what was interrupted, says so, and then drives runs whose children detach in
every way, each with its number among its arguments. It never stops saying `tick`, so that it can be
killed at any moment, however little happens at that moment (see forking).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.forking import fork_for_each_line, import_all, say
from support.runs import World, world
from support.workflows import edges, node, workflow

FIRST_TICKS_S, TICK_S = 0.01, 0.002
"""Before there are children, and from then on: most are killed with children."""

# Each ends by itself after some minutes: a test that is killed cannot clean up.
# What each writes is thrown away: with the pipes open, its step would wait for it.
ASLEEP = "sh -c '{deaf}sleep {time} & wait' </dev/null >/dev/null 2>&1"
DEAF = 'trap "" HUP INT TERM; '
WAYS = (
    "sleep {time}",
    "sleep {time} & sleep {time} & sleep {time}",
    "(sh -c 'sleep {time} & sleep {time} & exit' &) ; sleep {time}",
    f"setsid -f {ASLEEP}; sleep {{time}}",
    f"(setsid setsid -f {ASLEEP} &) ; exit 0",
    f"{{deaf}}(setsid -f {ASLEEP} &) ; sleep {{time}}",
    "n=0; while test $((n += 1)) -lt 2000; do sleep 0.02; (sleep {time} &) ; done",
)


def line(number: int) -> str:
    """A shell line whose processes are to outlive everything; each has the number in its name."""
    deaf = DEAF if number % 3 == 0 else ""
    return WAYS[number % len(WAYS)].format(time=f"300.{number}", deaf=deaf)


async def work(folder: Path, number: int) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    tempfile.tempdir = str(folder / "tmp")
    say(f"process {os.getpid()}")
    began = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick(began))
        async with world(folder, **settings) as here:
            recovered = await here.service.recover()
            say(f"recovered {' '.join(recovered.failed)}")
            if number:
                await drive(here, number, began)
        ticking.cancel()
    say("done")


def shell(id: str, cmd: str) -> dict[str, Any]:
    return node(id, "condition", kind="command", command={"cmd": cmd})


async def drive(here: World, number: int, began: asyncio.Event) -> None:
    """Drive two runs whose children live until somebody ends them."""
    steps = [node("start", "start"), shell("one", "true"), shell("two", line(number))]
    root = workflow(steps, edges("start next one met two"))
    runs = [await here.start({**root, "id": f"w{at}"}) for at in range(2)]
    say(f"began {' '.join(runs)}")
    began.set()
    for run_id in runs:
        await here.finish(run_id)


async def tick(began: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(TICK_S if began.is_set() else FIRST_TICKS_S)
        say("tick")


if __name__ == "__main__":
    import_all("infloop.cli", "infloop.mcp_server", "infloop.providers.acp.agent", "infloop.web")
    fork_for_each_line(work)
