"""20,000 pieces of token output to ten listeners in the process, with the output persisted.

Measured from `start()` until every listener has seen the run's last event, which is durable, as is
then all output before it. Each listener must have got the text of every delta; deltas that come
within a few milliseconds are one piece of output. "Streamed" gives way to the listeners after each
delta. "Burst" never does, as a provider whose whole answer is already there.

The same with 1 to 1,000 listeners and as many deliveries shows how the cost of one grows.

The orientation is the least that asyncio can do: a queue for each listener, nothing persisted.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from application import agent, begin, line, settings
from benchmark import Benchmark, Contender, Sample, Target, cpu, each, rate, stopwatch
from growth import Growth
from infloop.app import run_async
from infloop.app.storage import open_store
from infloop.model.events import Output, RunBudget
from infloop.providers.base import AnswerPart, Done, Request, Text
from infloop.runtime.clock import SystemClock
from infloop.runtime.runs.dependencies import RunDependencies
from infloop.runtime.runs.service import RunService
from infloop.sandbox.levels.host import HostSandbox

LISTENERS = 10
SIZES = (1, 10, 100, 1_000)
DELTA = "token "


class Talker:
    """A provider that says the same word many times."""

    id = "talker"

    def __init__(self, deltas: int, *, gives_way: bool) -> None:
        self._deltas = deltas
        self._gives_way = gives_way

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Say it."""
        for _ in range(self._deltas):
            yield Text(DELTA)
            if self._gives_way:
                await asyncio.sleep(0)
        yield Done(0)


@asynccontextmanager
async def talking(folder: Path, talker: Talker) -> AsyncIterator[RunService]:
    """Open infloop with one provider that is not made from a file."""
    (folder / "work").mkdir(parents=True)
    async with open_store(settings(folder)) as store:
        sandbox = HostSandbox()
        instance = await store.liveness.register()
        dependencies = RunDependencies(
            sandbox=sandbox,
            environment=lambda extra=None: dict(extra or {}),
            find_provider=lambda name, services: talker,
            limits=RunBudget(0, 0),
        )
        try:
            async with RunService(store, instance, SystemClock(), dependencies) as service:
                yield service
        finally:
            await sandbox.close()
            await instance.close()


def measure_streamed(deltas: int, folder: Path) -> Sample:
    """Let the listeners in after each delta."""
    return run_async(_measure(folder, deltas, LISTENERS, gives_way=True))


def measure_burst(deltas: int, folder: Path) -> Sample:
    """Say everything at once."""
    return run_async(_measure(folder, deltas, LISTENERS, gives_way=False))


def measure_listeners(listeners: int) -> Callable[[int, Path], Sample]:
    """Return how so many listeners are measured; deliveries are the same for any number."""

    def measure(deltas: int, folder: Path) -> Sample:
        return run_async(_measure(folder, deltas // listeners, listeners, gives_way=True))

    return measure


async def _measure(folder: Path, deltas: int, listeners: int, *, gives_way: bool) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        async with talking(here, Talker(deltas, gives_way=gives_way)) as service:
            with stopwatch(deltas * listeners) as sample:
                run_id = await begin(service, line([agent("a")], "next"), here)
                async with asyncio.TaskGroup() as group:
                    heard = [group.create_task(_listen(service, run_id)) for _ in range(listeners)]
            await service.store.run_log.flush()
            row = await service.store.run_log.run(run_id)
    if any(task.result() != deltas for task in heard):
        raise RuntimeError(f"the listeners got {[task.result() for task in heard]} deltas")
    if row.status != "succeeded" or row.output_bytes < deltas * len(DELTA):
        raise RuntimeError(f"the run {row.status} with {row.output_bytes} bytes of output")
    return sample


async def _listen(service: RunService, run_id: str) -> int:
    got = 0
    async for batch in service.listen(run_id):
        for item in batch:
            if type(item.event) is Output:  # it can hold several deltas
                got += len(item.event.text) // len(DELTA)
    return got


def measure_queues(deltas: int, folder: Path) -> Sample:
    """Hand every delta to ten queues."""
    return run_async(_measure_queues(deltas))


async def _measure_queues(deltas: int) -> Sample:
    queues: list[asyncio.Queue[str | None]] = [asyncio.Queue() for _ in range(LISTENERS)]

    async def listen(queue: asyncio.Queue[str | None]) -> int:
        got = 0
        while await queue.get() is not None:
            got += 1
        return got

    with stopwatch(deltas * LISTENERS) as sample:
        async with asyncio.TaskGroup() as group:
            for queue in queues:
                group.create_task(listen(queue))
            for _ in range(deltas):
                for queue in queues:
                    queue.put_nowait(DELTA)
                await asyncio.sleep(0)
            for queue in queues:
                queue.put_nowait(None)
    return sample


def contender(listeners: int) -> str:
    """Return the name of the measurement with so many listeners."""
    return f"infloop, {listeners:,} listeners"


STREAMED, BURST = "infloop, streamed", "infloop, burst"

GROWTH = (Growth("a delivery, CPU", "listeners", {size: contender(size) for size in SIZES}, cpu),)

BENCHMARK = Benchmark(
    title="Deltas to 10 listeners, output persisted",
    unit="delivery",
    contenders=(
        Contender(STREAMED, measure_streamed),
        Contender(BURST, measure_burst),
        Contender("asyncio queues, nothing kept", measure_queues),
        *(Contender(contender(size), measure_listeners(size), most_rounds=3) for size in SIZES),
    ),
    targets=(
        Target(
            "deliveries a second, streamed",
            each(STREAMED, rate),
            100_000,
            "/s",
            at_least=True,
        ),
        Target(
            "deliveries a second, burst",
            each(BURST, rate),
            100_000,
            "/s",
            at_least=True,
        ),
    ),
    size=20_000,
    quick_size=20_000,
    rounds=7,
)
