"""Journaled steps on PostgreSQL, each durable before the next begins.

Everybody uses a server of the same kind, which this makes: Debian's, with its default settings, so
a commit waits for the disk; reached through a Unix socket. What each of them keeps of a step:

- infloop's run log: that it began, with its configuration, before the effect; then its text output,
  its outcome and its outputs. One commit a step, which holds the end of one step and the beginning
  of the next, and checks that this process still owns the run.
- DBOS: the result of the step.
- bare PostgreSQL: one row of 200 bytes, one commit. This is the ceiling of one step at a time.

Those with 16 runs do the same number of steps in each of 16 runs at the same time.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmark import Benchmark, Contender, Sample, Target, each, rate, ratio, stopwatch
from infloop.app import run_async
from infloop.model.events import Event, Output, Recorded, RunStarted, StepFinished, StepStarted
from infloop.store.interfaces.run_log import NewRun, RunLog, definition_hash
from infloop.store.postgresql.store import open_postgresql_store

WARM_UP = 20
RUNS = 16
SHARE = 4  # with many runs at once each does a quarter of the steps
DEFINITION = b'{"id":"bench"}'


@contextmanager
def server() -> Iterator[str]:
    """Run a server in a temporary directory; return the address of an empty database."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    folder = Path(tempfile.mkdtemp(prefix="infloop-bench-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = str(folder / "data")
    initdb = [programs / "initdb", "-D", data, "-U", "bench", "-A", "trust", "-N"]
    subprocess.run(["setpriv", *as_user, *initdb], check=True, capture_output=True)
    postgres = [programs / "postgres", "-D", data, "-k", str(folder), "-clisten_addresses="]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "INT", *as_user, *postgres],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _create_database(f"postgresql://bench@/postgres?host={folder}")
        yield f"postgresql://bench@/bench?host={folder}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shutil.rmtree(folder)


def _create_database(address: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("CREATE DATABASE bench")
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


# -- infloop ---------------------------------------------------------------------------------------


def measure_infloop(steps: int, folder: Path) -> Sample:
    """Append the steps of one run."""
    return run_async(_measure_infloop(1, steps))


def measure_infloop_runs(steps: int, folder: Path) -> Sample:
    """Append the steps of many runs at once."""
    return run_async(_measure_infloop(RUNS, steps // SHARE))


async def _measure_infloop(runs: int, steps: int) -> Sample:
    with server() as address:
        async with await open_postgresql_store(address) as store:
            log = store.run_log
            await _steps(log, "warm-up", WARM_UP)
            with stopwatch(runs * steps) as sample:
                await asyncio.gather(*(_steps(log, f"run-{n}", steps) for n in range(runs)))
            for number in range(runs):
                row = await log.run(f"run-{number}")
                if row.steps != steps:
                    raise RuntimeError(f"the journal has {row.steps} steps of {steps}")
    return sample


async def _steps(log: RunLog, run_id: str, steps: int) -> None:
    def at(seq: int, event: Event | Output) -> Recorded:
        return Recorded(run_id, seq, 1_700_000_000_000 + seq, "cid", event)

    name = definition_hash(DEFINITION)
    run = NewRun(run_id, "bench", "Bench", DEFINITION, "me", 1, "cid")
    begin = RunStarted("bench", "Bench", name, {}, "/")
    await log.create_run(run, at(1, begin))
    await log.append(run_id, 1, [at(2, _started(0))])
    for number in range(steps):
        seq = 3 * (number + 1)
        path = f"loop[{number}]/a"
        done = StepFinished(path, "a", "agent", "next", {"stdout": "ok"}, 1)
        items = [at(seq, Output(path, "a", "ok")), at(seq + 1, done)]
        await log.append(run_id, 1, [*items, at(seq + 2, _started(number + 1))])


def _started(number: int) -> StepStarted:
    return StepStarted(f"loop[{number}]/a", "a", "agent", {"prompt": "Say ok."}, number)


# -- DBOS ------------------------------------------------------------------------------------------


def measure_dbos(steps: int, folder: Path) -> Sample:
    """Run a DBOS workflow of trivial steps."""
    return _measure_dbos(1, steps)


def measure_dbos_runs(steps: int, folder: Path) -> Sample:
    """Run many DBOS workflows at once."""
    return _measure_dbos(RUNS, steps // SHARE)


def _measure_dbos(runs: int, steps: int) -> Sample:
    from dbos import DBOS

    with server() as address:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": address,
                "log_level": "ERROR",
                "enable_otlp": False,
            }
        )

        @DBOS.step()
        def step(number: int) -> str:
            return "ok"

        @DBOS.workflow()
        def flow(count: int) -> None:
            for number in range(count):
                step(number)

        DBOS.launch()
        try:
            flow(WARM_UP)
            with stopwatch(runs * steps) as sample:
                if runs == 1:
                    flow(steps)
                else:
                    for handle in [DBOS.start_workflow(flow, steps) for _ in range(runs)]:
                        handle.get_result()
            with psycopg.connect(address) as connection:
                counted = connection.execute("SELECT count(*) FROM dbos.operation_outputs")
                kept = counted.fetchone()
            if kept is None or kept[0] < runs * steps:
                raise RuntimeError(f"DBOS kept {kept} steps of {runs * steps}")
        finally:
            DBOS.destroy()
    return sample


def measure_postgresql(steps: int, folder: Path) -> Sample:
    """Insert rows, each in a transaction of its own."""
    with server() as address, psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE event (seq bigserial PRIMARY KEY, body text)")
        insert = "INSERT INTO event (body) VALUES (%s)"
        for _ in range(WARM_UP):
            connection.execute(insert, ("x" * 200,))
        with stopwatch(steps) as sample:
            for _ in range(steps):
                connection.execute(insert, ("x" * 200,))
    return sample


OURS, DBOS_ONE = "infloop, PostgreSQL", "DBOS, PostgreSQL"
OURS_MANY, DBOS_MANY = f"{OURS}, {RUNS} runs", f"{DBOS_ONE}, {RUNS} runs"

BENCHMARK = Benchmark(
    title="Journaled steps on PostgreSQL",
    unit="step",
    contenders=(
        Contender(OURS, measure_infloop),
        Contender(DBOS_ONE, measure_dbos),
        Contender("bare PostgreSQL", measure_postgresql),
        Contender(OURS_MANY, measure_infloop_runs),
        Contender(DBOS_MANY, measure_dbos_runs),
    ),
    targets=(
        Target("rate, to DBOS's", ratio(OURS, DBOS_ONE, rate), 3, "times", at_least=True),
        Target(
            f"the same with {RUNS} runs at once",
            ratio(OURS_MANY, DBOS_MANY, rate),
            3,
            "times",
            at_least=True,
        ),
        Target("steps a second", each(OURS, rate), 300, "/s", at_least=True),
    ),
    size=1_000,
    quick_size=200,
    rounds=5,
)
