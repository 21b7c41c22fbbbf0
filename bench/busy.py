"""Answers of `infloop serve` while its children take all the CPU time that they can get.

Fifty runs, each with a child that does nothing but count, at level `host`. Two clients ask for the
list of runs, one request after another. The same is measured without runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path

from application import line, node
from benchmark import Benchmark, Contender, Sample, Target, each, slow
from http_load import ask_all, get, post
from program import INFLOOP
from proxy import cpu_of
from server import PATIENCE_S, Server, child, expect, measure, put

CHILDREN = 50
CLIENTS = 2
WARM_UP = 20
COUNTING = "echo >> counting; while :; do :; done"


@contextmanager
def server(folder: Path, size: int) -> Iterator[Server]:
    """Give a server that runs all the children at the same time."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        counting = node("count", "condition", kind="command", command={"cmd": COUNTING})
        put(here / "data/workflows/bench.json", line([counting], "met"))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": name,
            "INFLOOP_DATA_DIR": str(here / "data"),
            "INFLOOP_ISOLATION": "host",
            "INFLOOP_MAX_CONCURRENT_RUNS": str(CHILDREN),
            "INFLOOP_QUEUE_LIMIT": str(CHILDREN),
        }
        with child([INFLOOP, "serve", "--port", "0"], here, environment, size) as made:
            yield made


async def answers(server: Server, children: int) -> Sample:
    """Ask for the list of runs while so many children count."""
    body = json.dumps({"workflowId": "bench", "inputs": {"mode": "fast"}}).encode()
    starts = repeat(post(server.port, "/api/run", body), children)
    if children:
        expect(await ask_all(server.port, starts, 1), 202, children)
    await all_count(server, children)
    request = get(server.port, "/api/runs")
    await ask_all(server.port, repeat(request, WARM_UP), CLIENTS)
    before, began = cpu_of(server.process), time.perf_counter()
    got = await ask_all(server.port, repeat(request, server.size), CLIENTS)
    sample = Sample(server.size, time.perf_counter() - began, cpu_of(server.process) - before)
    expect(got, 200, server.size)
    sample.slow = got.slowest_hundredth()
    return sample


async def all_count(server: Server, children: int) -> None:
    """Wait until every child has begun; each writes a line first."""
    lines = Path(f"/proc/{server.process}/cwd/counting")
    deadline = time.perf_counter() + PATIENCE_S
    while children and (not lines.exists() or len(lines.read_text()) < children):
        if time.perf_counter() > deadline:
            raise RuntimeError("the children did not begin")
        await asyncio.sleep(0.1)


ALONE, BUSY = "infloop, no children", f"infloop, {CHILDREN} children that count"

BENCHMARK = Benchmark(
    title="Answers beside busy children",
    unit="answer",
    contenders=(
        Contender(ALONE, partial(measure, server, partial(answers, children=0))),
        Contender(BUSY, partial(measure, server, partial(answers, children=CHILDREN))),
    ),
    targets=(Target("slowest hundredth of the answers", each(BUSY, slow, 1e3), 100, "ms"),),
    size=500,
    quick_size=200,
    rounds=3,
)
