"""Workers that share PostgreSQL: how much more runs several do than one, and how soon they start.

Each measurement has a server of its own, as in `postgresql`, and workers that are processes of
their own (`infloop worker`), with data directories of their own. Runs are put into the queue held,
through the store as `infloop serve` does it, and released together. They are counted when they have
settled. CPU is that of the workers and of PostgreSQL together.

- Waiting runs: each waits `WAIT_MS` in an agent that is played inside the worker, and each worker
  has `CAPACITY` of them at a time. Such a run costs 30 ms of CPU, so the wait is long enough for
  eight workers to leave two cores mostly idle: 11 runs a second need a third of one core. What is
  measured is whether workers hinder each other, not how much CPU there is.
- Instant runs: a start, a branch and an end. Here the cores are busy.
- Start: a run every 50 ms, for two workers that have nothing else to do. The delay is from its
  place in the queue to its first event, in milliseconds of the machine's clock.
- DBOS: workflows of one step in a queue, in as many processes with the same concurrency. It looks
  for new ones every second, unless told otherwise; that is left as it is.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from application import Node, agent, line, node, script
from benchmark import Benchmark, Contender, Sample, Target, each, rate, ratio, wall
from infloop.app import run_async
from infloop.engine.graph import Definition
from infloop.runtime.runs.definitions import PreparedDefinition, prepare
from infloop.store.interfaces.changes import QUEUE
from infloop.store.interfaces.queue import QueuedRun, RunQueue
from infloop.store.postgresql.changes import ALL_CHANNEL
from infloop.store.postgresql.store import open_postgresql_store
from postgresql import server
from program import INFLOOP
from proxy import cpu_of

CAPACITY = 4
WAIT_MS = 3_000
TURNS = 2  # so often each worker fills its capacity
INSTANT_WORKERS = 4
STARTS = 60
EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
DBOS_SHARE = 6  # it looks for work once a second, so fewer instant workflows are enough
QUEUE_LIMIT = 1_000_000

WAITING: Node = {**line([agent("wait")], "next"), "id": "waiting", "inputs": []}
INSTANT: Node = {
    **line([node("same", "branch", lhs="a", op="==", rhs="a")], "true"),
    "id": "instant",
    "inputs": [],
}


# -- processes -------------------------------------------------------------------------------------


@contextmanager
def workers(number: int, address: str) -> Iterator[list[int]]:
    """Run workers, ready to take runs; return the ids of their processes."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="infloop-bench-")))
        started = []
        for name in range(number):
            folder = home / str(name)
            (folder / "work").mkdir(parents=True)
            script(folder, {"delayMs": WAIT_MS}, {"text": "ok"})
            started.append(stack.enter_context(_worker(folder, address)))
        for process in started:
            assert process.stdout
            if not process.stdout.readline():
                raise RuntimeError("a worker did not start")
        yield [process.pid for process in started]


@contextmanager
def _worker(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "INFLOOP_DATA_DIR": str(folder / "data"),
        "INFLOOP_DATABASE": address,
        "INFLOOP_ISOLATION": "host",
    }
    argv = [INFLOOP, "worker", "--capacity", str(CAPACITY)]
    with _child(argv, folder / "work", environment) as process:
        yield process


@contextmanager
def _child(
    argv: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def cpu_of_all(pids: Sequence[int], address: str) -> float:
    """Return the CPU seconds of processes and of the server at an address."""
    folder = parse_qs(urlsplit(address).query)["host"][0]
    postmaster = int(Path(folder, "data/postmaster.pid").read_text().split()[0])
    used = sum(map(cpu_of, (*pids, postmaster)))
    for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # its client has gone
            used += cpu_of(int(child))
    return used


# -- infloop ---------------------------------------------------------------------------------------


def measure_together(number: int, tree: Node, count: int) -> Sample:
    """Release `count` runs at once and wait until all have settled."""
    with server() as address:
        prepared = prepare(Definition(tree["id"], {tree["id"]: tree}))
        run_async(_fill(address, prepared, count))
        with workers(number, address) as pids, psycopg.connect(address, autocommit=True) as sql:
            used = cpu_of_all(pids, address)
            began = time.perf_counter()
            _release(address)
            _settled(sql, began)
            sample = Sample(count, time.perf_counter() - began)
            sample.cpu = cpu_of_all(pids, address) - used
    return sample


async def _fill(address: str, prepared: PreparedDefinition, count: int) -> None:
    async with await open_postgresql_store(address) as store:
        await asyncio.gather(*(_put(store.queue, prepared) for _ in range(count)))
    with psycopg.connect(address, autocommit=True) as sql:
        sql.execute("UPDATE infloop.queued SET held = true")
        sql.execute("UPDATE infloop.procrastinate_jobs SET queue_name = 'later'")


async def _put(queue: RunQueue, prepared: PreparedDefinition) -> str:
    """Queue a run; return its id."""
    name = str(uuid.uuid4())
    run = QueuedRun(
        id=f"q-{name}",
        run_id=name,
        workflow_id=prepared.root,
        inputs={},
        correlation_id=name,
        queued_at=time.time_ns() // 1_000_000,
        definition=prepared.hash,
        extra={"workdir": "/", "isDefaultWorkdir": True, "machine": "bench"},
    )
    await queue.put(run, limit=QUEUE_LIMIT, definition=prepared.data)
    return name


def _release(address: str) -> None:
    """Let all runs be taken, and say so as the store does."""
    with psycopg.connect(address) as sql:
        sql.execute("UPDATE infloop.queued SET held = false")
        sql.execute(
            "UPDATE infloop.procrastinate_jobs SET queue_name = queue"
            " FROM infloop.queued WHERE queued.job = procrastinate_jobs.id"
        )
        sql.execute("SELECT pg_notify(%s, %s)", (ALL_CHANNEL, QUEUE))


def _settled(sql: psycopg.Connection[tuple[Any, ...]], began: float) -> None:
    """Wait until nothing waits and nothing runs; raise if a run did not succeed."""
    left = (
        "SELECT (SELECT count(*) FROM infloop.queued WHERE state IN ('waiting', 'taken'))"
        " + (SELECT count(*) FROM infloop.run WHERE status = 'running')"
    )
    while sql.execute(left).fetchone() != (0,):
        if time.perf_counter() - began > PATIENCE_SECONDS:
            raise RuntimeError(f"the runs did not settle within {PATIENCE_SECONDS} s")
        time.sleep(0.01)
    failed = "SELECT count(*), min(error) FROM infloop.run WHERE status <> 'succeeded'"
    number, error = sql.execute(failed).fetchone() or (0, "")
    if number:
        raise RuntimeError(f"{number} runs did not succeed: {error}")


def measure_waiting(number: int, size: int, folder: Path) -> Sample:
    """Let workers do runs that wait."""
    return measure_together(number, WAITING, number * CAPACITY * TURNS)


def measure_instant(size: int, folder: Path) -> Sample:
    """Let workers do runs that end at once."""
    return measure_together(INSTANT_WORKERS, INSTANT, size)


def measure_start(size: int, folder: Path) -> Sample:
    """Queue a run from time to time; `wall` is half of the delays, `slow` nearly all of them."""
    with server() as address:
        prepared = prepare(Definition("instant", {"instant": INSTANT}))
        run_async(_fill(address, prepared, 0))
        with workers(2, address) as pids, psycopg.connect(address, autocommit=True) as sql:
            run_async(_put_slowly(address, prepared, 5))  # what is done once
            used = cpu_of_all(pids, address)
            names = run_async(_put_slowly(address, prepared, STARTS))
            _settled(sql, time.perf_counter())
            rows = sql.execute(
                "SELECT run.started_at - queued_at FROM infloop.queued"
                " JOIN infloop.run ON run.id = queued.run WHERE run.id = ANY(%s)",
                (names,),
            )
            delays = sorted(milliseconds / 1000 for (milliseconds,) in rows.fetchall())
            cpu = cpu_of_all(pids, address) - used
    middle, slow = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
    return Sample(STARTS, wall=middle * STARTS, cpu=cpu, slow=slow)


async def _put_slowly(address: str, prepared: PreparedDefinition, count: int) -> list[str]:
    names = []
    async with await open_postgresql_store(address) as store:
        for _ in range(count):
            names.append(await _put(store.queue, prepared))
            await asyncio.sleep(EVERY_SECONDS)
    return names


# -- DBOS ------------------------------------------------------------------------------------------


def measure_dbos_waiting(number: int, size: int, folder: Path) -> Sample:
    """Let DBOS's processes do workflows that wait."""
    return measure_dbos(number, "waiting", number * CAPACITY * TURNS)


def measure_dbos_instant(size: int, folder: Path) -> Sample:
    """Let DBOS's processes do workflows that end at once."""
    return measure_dbos(INSTANT_WORKERS, "instant", size // DBOS_SHARE)


def measure_dbos(number: int, workflow: str, count: int) -> Sample:
    """Queue workflows for DBOS's processes, and wait until all are done."""
    from dbos import DBOSClient

    with server() as address, ExitStack() as stack:
        argv = [sys.executable, __file__, address]
        started = [
            stack.enter_context(_child(argv, Path.cwd(), {**os.environ})) for _ in "x" * number
        ]
        for process in started:
            assert process.stdout
            if not process.stdout.readline():
                raise RuntimeError("DBOS did not start")
        client = DBOSClient(system_database_url=address)
        stack.callback(client.destroy)
        pids = [process.pid for process in started]
        used, began = cpu_of_all(pids, address), time.perf_counter()
        for _ in range(count):
            client.enqueue({"queue_name": "bench", "workflow_name": workflow})
        with psycopg.connect(address, autocommit=True) as sql:
            done = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
            while sql.execute(done).fetchone() != (count,):
                if time.perf_counter() - began > PATIENCE_SECONDS:
                    raise RuntimeError(f"DBOS was not done within {PATIENCE_SECONDS} s")
                time.sleep(0.01)
        sample = Sample(count, time.perf_counter() - began)
        sample.cpu = cpu_of_all(pids, address) - used
    return sample


def serve_dbos(address: str) -> None:
    """Run workflows of a queue until killed."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": address,
            "application_version": "1",
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )

    @DBOS.step()
    def step(seconds: float) -> str:
        time.sleep(seconds)
        return "ok"

    @DBOS.workflow(name="waiting")
    def waiting() -> None:
        step(WAIT_MS / 1000)

    @DBOS.workflow(name="instant")
    def instant() -> None:
        step(0)

    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=CAPACITY)
    print("ready", flush=True)
    time.sleep(600)


# -- the benchmark ---------------------------------------------------------------------------------


def named(number: int) -> str:
    """Return what a measurement with so many workers is called."""
    return f"waiting runs, {number} worker{'s' if number > 1 else ''}"


ONE, TWO, FOUR, EIGHT = map(named, (1, 2, 4, 8))
INSTANT_RUNS = f"instant runs, {INSTANT_WORKERS} workers"
START = "start, 2 idle workers"
DBOS_ONE, DBOS_EIGHT, DBOS_INSTANT = (f"DBOS, {name}" for name in (ONE, EIGHT, INSTANT_RUNS))

BENCHMARK = Benchmark(
    title="Workers on PostgreSQL",
    unit="run",
    contenders=(
        Contender(ONE, partial(measure_waiting, 1)),
        Contender(TWO, partial(measure_waiting, 2)),
        Contender(FOUR, partial(measure_waiting, 4)),
        Contender(EIGHT, partial(measure_waiting, 8)),
        Contender(INSTANT_RUNS, measure_instant),
        Contender(START, measure_start),
        Contender(DBOS_ONE, partial(measure_dbos_waiting, 1), optional=True),
        Contender(DBOS_EIGHT, partial(measure_dbos_waiting, 8), optional=True),
        Contender(DBOS_INSTANT, measure_dbos_instant, optional=True),
    ),
    targets=(
        Target("2 workers, to one", ratio(TWO, ONE, rate), 2 * 0.85, "times", at_least=True),
        Target("4 workers, to one", ratio(FOUR, ONE, rate), 4 * 0.85, "times", at_least=True),
        Target("8 workers, to one", ratio(EIGHT, ONE, rate), 8 * 0.85, "times", at_least=True),
        Target("instant runs", each(INSTANT_RUNS, rate), 150, "/s", at_least=True),
        Target("start, half of them", each(START, wall, 1e3), 30, "ms"),
    ),
    size=600,
    quick_size=200,
    rounds=1,
    quick_rounds=1,
    alike=False,
)


if __name__ == "__main__":
    serve_dbos(sys.argv[1])
