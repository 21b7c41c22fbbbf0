"""Steps with an effect, one after another, each durable before the next begins.

The effect is trivial and happens in the process, so that what is measured is what durability costs.
Everybody does the same number of steps on the same disk after a warm-up (Prefect, which is slower,
does fewer). What each of them keeps of a step:

- infloop: that it began, with its configuration, before the effect; then its text output, its
  outcome and all its outputs; one commit a step (`synchronous=FULL`), which holds the end of one
  step and the beginning of the next. The effect is a provider in the process that says one word.
- LangGraph with its SQLite saver: see `langgraph_cycle`; two commits a step (FULL).
- DBOS on SQLite: the result of the step, one commit a step (FULL), in the rollback-journal mode it
  ships with; and, as it would fare with a database file that we put into WAL mode first.
- Prefect, with the local server that it starts itself: the state changes of the task, sent to the
  server (`synchronous=NORMAL`, so less durable), no result. Its CPU figure leaves the server out.
- bare SQLite: one row of 200 bytes, one commit (WAL, FULL). This is the ceiling.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from application import agent, loop, run_to_end
from benchmark import Benchmark, Contender, Sample, Target, each, rate, ratio, stopwatch
from deltas import Talker, talking
from infloop.app import run_async
from langgraph_cycle import measure_cycle

WARM_UP = 20
PREFECT_STEPS = 60


def measure_infloop(steps: int, folder: Path) -> Sample:
    """Run a loop with one agent in it."""
    return run_async(_measure_infloop(steps, folder))


async def _measure_infloop(steps: int, folder: Path) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        async with talking(here, Talker(1, gives_way=False)) as service:
            await run_to_end(service, loop([agent("a")], "next", WARM_UP), here)
            with stopwatch(steps) as sample:
                run_id = await run_to_end(service, loop([agent("a")], "next", steps), here)
            row = await service.store.run_log.run(run_id)
            if row.steps < steps:
                raise RuntimeError(f"the journal has {row.steps} steps of {steps}")
    return sample


def measure_dbos(steps: int, folder: Path) -> Sample:
    """Run a DBOS workflow of trivial steps."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        return _measure_dbos(steps, Path(here, "dbos.db"))


def measure_dbos_wal(steps: int, folder: Path) -> Sample:
    """Run the same with a database that is already in WAL mode, which SQLite remembers."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        path = Path(here, "dbos.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE made_in_wal_mode (id)")
        return _measure_dbos(steps, path)


def _measure_dbos(steps: int, path: Path) -> Sample:
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
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
        with stopwatch(steps) as sample:
            flow(steps)
        with closing(sqlite3.connect(path)) as connection:
            ((kept,),) = connection.execute("SELECT count(*) FROM operation_outputs").fetchall()
        if kept < steps:
            raise RuntimeError(f"DBOS kept {kept} steps of {steps}")
    finally:
        DBOS.destroy()
    return sample


def measure_prefect(steps: int, folder: Path) -> Sample:
    """Run a Prefect flow of trivial tasks; its database is made once for all rounds."""
    os.environ.update(
        PREFECT_HOME=str(folder / "prefect"),
        PREFECT_LOGGING_LEVEL="CRITICAL",
        PREFECT_LOGGING_TO_API_ENABLED="false",
        PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        DO_NOT_TRACK="1",
    )
    from prefect import flow, task

    @task
    def step(number: int) -> str:
        return "ok"

    @flow
    def steps_in_a_row(count: int) -> None:
        for number in range(count):
            step(number)

    steps_in_a_row(5)
    count = min(steps, PREFECT_STEPS)
    with stopwatch(count) as sample:
        steps_in_a_row(count)
    return sample


def measure_sqlite(steps: int, folder: Path) -> Sample:
    """Insert rows, each in a transaction of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        path = Path(here, "bare.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, body TEXT)")
            insert = "INSERT INTO event (body) VALUES (?)"
            for _ in range(WARM_UP):
                connection.execute(insert, ("x" * 200,))
            with stopwatch(steps) as sample:
                for _ in range(steps):
                    connection.execute(insert, ("x" * 200,))
    return sample


OURS, LANGGRAPH, DBOS_AS_IS = "infloop", "LangGraph, SQLite saver", "DBOS, SQLite"

BENCHMARK = Benchmark(
    title="Journaled effect steps, synchronous=FULL",
    unit="step",
    contenders=(
        Contender(OURS, measure_infloop),
        Contender(LANGGRAPH, measure_cycle),
        Contender(DBOS_AS_IS, measure_dbos),
        Contender("DBOS, SQLite in WAL mode", measure_dbos_wal),
        Contender("bare SQLite", measure_sqlite),
        Contender("Prefect", measure_prefect, most_rounds=2, optional=True),
    ),
    targets=(
        Target("steps a second", each(OURS, rate), 1000, "/s", at_least=True),
        Target("rate, to LangGraph's", ratio(OURS, LANGGRAPH, rate), 3, "times", at_least=True),
        Target("rate, to DBOS's", ratio(OURS, DBOS_AS_IS, rate), 5, "times", at_least=True),
    ),
    size=1_000,
    quick_size=200,
    rounds=9,
)
