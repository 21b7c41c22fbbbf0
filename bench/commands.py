"""`command` conditions that run `true`, one after another, journaled, at the sandbox level `host`.

Ours: each condition is a durable step whose child has a process group, captured output, a time
limit and an owner that ends whatever it leaves behind. The floor is the least that Python can do
for the same command line: `posix_spawn` of `/bin/sh -c true` and `waitpid`, nothing captured.
CPU counts the children, and for ours the processes that own them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import original
from application import Node, application, line, node, run_to_end
from benchmark import (
    Benchmark,
    Contender,
    Sample,
    Target,
    children_cpu,
    each,
    ratio,
    stopwatch,
    wall,
)
from infloop.app import run_async

if TYPE_CHECKING:
    from benchmark import Rounds

WARM_UP = 20
ARGV = ["/bin/sh", "-c", "true"]


def conditions(count: int) -> list[Node]:
    """Return steps that are met when `true` succeeds."""
    return [
        node(f"check-{number}", "condition", kind="command", command={"cmd": "true"})
        for number in range(count)
    ]


def measure_infloop(count: int, folder: Path) -> Sample:
    """Run conditions in a row."""
    return run_async(_measure_infloop(count, folder))


async def _measure_infloop(count: int, folder: Path) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        children = children_cpu()
        async with application(here, isolation="host") as service:
            await run_to_end(service, line(conditions(WARM_UP), "met"), here)
            tree = line(conditions(count), "met")
            with stopwatch(count) as sample:
                run_id = await run_to_end(service, tree, here)
            row = await service.store.run_log.run(run_id)
            if row.steps < count:
                raise RuntimeError(f"the journal has {row.steps} steps of {count}")
        # Only now are the owners of the children gone and counted; the warm-up goes out pro rata.
        sample.cpu += (children_cpu() - children) * count / (count + WARM_UP)
    return sample


def measure_spawn(count: int, folder: Path) -> Sample:
    """Spawn and wait, nothing else."""
    for _ in range(WARM_UP):
        _spawn_and_wait()
    children = children_cpu()
    with stopwatch(count) as sample:
        for _ in range(count):
            _spawn_and_wait()
    sample.cpu += children_cpu() - children
    return sample


def _spawn_and_wait() -> None:
    pid = os.posix_spawn(ARGV[0], ARGV, {"PATH": "/usr/bin:/bin"})
    os.waitpid(pid, 0)


OURS, FLOOR = "infloop", "posix_spawn and wait"

BENCHMARK = Benchmark(
    title="Command conditions running `true`, journaled",
    unit="command",
    contenders=(Contender(OURS, measure_infloop), Contender(FLOOR, measure_spawn)),
    targets=(Target("time, to posix_spawn and wait", ratio(OURS, FLOOR, wall), 2.5, "times"),),
    size=100,
    quick_size=100,
    rounds=27,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [original.row(original.COMMAND_CONDITION, each(OURS, wall, 1e3)(rounds))]
