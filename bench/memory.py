"""What a run takes while its child works: memory of infloop and of all that it keeps for the run.

Runs go on side by side, each with a child that sleeps behind its own proxy (an egress allowlist).
Counted is the memory of this process and of its descendants, keepers and bubblewraps included, each
shared page in equal parts (PSS), without the sleeping children themselves; the difference that the
runs make, for each of them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from application import begin, line, node, settings
from benchmark import Benchmark, Contender, Sample, Target, each, memory
from infloop.app import run_async
from infloop.app.runs import open_service
from infloop.runtime.runs.service import RunService

PATIENCE_S = 60.0
MEGABYTE = 1 << 20
CHILD = "sleep"


def level(isolation: str) -> Callable[[int, Path], Sample]:
    """Return how a level is measured."""
    return lambda runs, _: run_async(_measure(isolation, runs))


async def _measure(isolation: str, runs: int) -> Sample:
    with tempfile.TemporaryDirectory(prefix="infloop-memory-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "work").mkdir(mode=0o777)
        (folder / "work").chmod(0o777)
        chosen = settings(folder).model_copy(
            update={
                "isolation": isolation,
                "egress_enforce": True,
                "service_user": "nobody" if os.geteuid() == 0 else "",
            }
        )
        async with open_service(chosen) as service:
            await _sleeping(service, folder, 1)  # what the first one needs is kept for all
            before, began = _used(), time.perf_counter()
            await _sleeping(service, folder, runs)
            sample = Sample(runs, time.perf_counter() - began)
            sample.memory = (_used() - before) / runs
            for run_id in service.live():
                await service.stop(run_id, "measured")
                await service.wait(run_id)
    return sample


async def _sleeping(service: RunService, folder: Path, runs: int) -> None:
    """Begin so many more runs, and wait until their children sleep."""
    wanted = _children() + runs
    check = node("a", "condition", kind="command", command={"cmd": f"exec {CHILD} 600"})
    for _ in range(runs):
        await begin(service, line([check], "met"), folder)
    deadline = time.perf_counter() + PATIENCE_S
    while _children() < wanted:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{_children()} children of {wanted} have begun")
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)


def _children() -> int:
    return sum(_name(pid) == CHILD for pid in _descendants(os.getpid()))


def _used() -> int:
    ours = [os.getpid(), *(pid for pid in _descendants(os.getpid()) if _name(pid) != CHILD)]
    return sum(map(_memory, ours))


def _descendants(pid: int) -> Iterator[int]:
    for task in _read(Path(f"/proc/{pid}/task"), "*/children"):
        for child in map(int, task.split()):
            yield child
            yield from _descendants(child)


def _read(folder: Path, pattern: str) -> Iterator[str]:
    for path in list(folder.glob(pattern)):
        try:
            yield path.read_text()
        except OSError:  # it has just ended
            continue


def _name(pid: int) -> str:
    return next(_read(Path(f"/proc/{pid}"), "comm"), "").strip()


def _memory(pid: int) -> int:
    for text in _read(Path(f"/proc/{pid}"), "smaps_rollup"):
        for row in text.splitlines():
            if row.startswith("Pss:"):
                return int(row.split()[1]) * 1024
    return 0


BENCHMARK = Benchmark(
    title="Memory of a run whose child works behind its proxy",
    unit="run",
    contenders=(
        Contender("host", level("host")),
        Contender("guard", level("guard")),
        Contender("sandbox", level("sandbox")),
    ),
    targets=tuple(
        Target(f"memory a run, {name}", each(name, memory, 1 / MEGABYTE), 5, "MB")
        for name in ("host", "guard", "sandbox")
    ),
    size=20,
    quick_size=10,
    rounds=3,
    alike=False,
)
