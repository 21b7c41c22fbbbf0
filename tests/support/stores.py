"""Every implementation of the store, and runs and events to put into one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from infloop.model.events import (
    Event,
    Output,
    Recorded,
    RunFinished,
    RunStarted,
    StepFinished,
    StepPassed,
)
from infloop.store import opening
from infloop.store.interfaces.run_log import OUTPUT_CAP, NewRun, RunLog, definition_hash
from infloop.store.interfaces.store import Store
from infloop.store.sqlite.store import DATABASE_FILE, open_sqlite_store
from support.paths import TESTS

NOW = 1_700_000_000_000


def at_now() -> int:
    """A clock that stands still."""
    return NOW


class OpenStore(Protocol):
    """Opens the store of a folder; opened twice, it is shared like between two processes."""

    def __call__(
        self, folder: Path, *, clock: Callable[[], int] = at_now, output_cap: int = OUTPUT_CAP
    ) -> AbstractAsyncContextManager[Store]: ...


@asynccontextmanager
async def _sqlite(
    folder: Path, *, clock: Callable[[], int] = at_now, output_cap: int = OUTPUT_CAP
) -> AsyncIterator[Store]:
    async with await open_sqlite_store(
        folder, clock, synchronous="NORMAL", output_cap=output_cap
    ) as store:
        yield store


@asynccontextmanager
async def _sqlite_one_run(
    folder: Path, *, clock: Callable[[], int] = at_now, output_cap: int = OUTPUT_CAP
) -> AsyncIterator[Store]:
    """SQLite as it commits while a process drives one run alone: where it is called."""
    async with _sqlite(folder, clock=clock, output_cap=output_cap) as store:
        store.run_log.expect_runs(1)
        yield store


@asynccontextmanager
async def _postgresql(
    folder: Path, *, clock: Callable[[], int] = at_now, output_cap: int = OUTPUT_CAP
) -> AsyncIterator[Store]:
    """PostgreSQL; a folder stands for a database, and the clock is the server's."""
    from infloop.store.postgresql.store import open_postgresql_store
    from support.postgresql import database_for

    async with await open_postgresql_store(database_for(folder), output_cap=output_cap) as store:
        yield store


IMPLEMENTATIONS: Mapping[str, OpenStore] = {
    "sqlite": _sqlite,
    "sqlite-one-run": _sqlite_one_run,
    "postgresql": _postgresql,
}
"""Every implementation that the contract suites run against."""


class FakeTime:
    """A clock that a test sets.

    PostgreSQL has a clock of its own. There time passes because the signs of life become older.
    """

    def __init__(self, implementation: str, folder: Path) -> None:
        self._implementation = implementation
        self._folder = folder
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now

    def passes(self, milliseconds: int) -> None:
        self.now += milliseconds
        if self._implementation == "postgresql":
            from support.postgresql import execute

            execute(
                self._folder,
                f"UPDATE infloop.instance SET beat_at = beat_at - interval '{milliseconds} ms',"
                f" held_at = held_at - interval '{milliseconds} ms',"
                f" excused_at = excused_at - interval '{milliseconds} ms'",
            )


def start_child(
    script: str, implementation: str, folder: Path, *args: str
) -> subprocess.Popen[str]:
    """Start a process that executes `script` with the names of `_CHILD`."""
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD + script, implementation, str(folder), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )


_CHILD = """
import asyncio, sys
from pathlib import Path
from support.stores import IMPLEMENTATIONS
open_store, folder, args = IMPLEMENTATIONS[sys.argv[1]], Path(sys.argv[2]), sys.argv[3:]
"""


@asynccontextmanager
async def store_in(folder: Path, clock: Callable[[], int] = at_now) -> AsyncIterator[Store]:
    """Open the store of a data directory as infloop does."""
    async with await opening.open_store(folder, clock) as store:
        yield store


DEFINITION = b'{"id":"w"}'


def new_run(run_id: str = "r1", **changes: Any) -> NewRun:
    facts: dict[str, Any] = {
        "workflow_id": "w",
        "workflow_name": "The workflow",
        "definition": DEFINITION,
        "owner": "me",
        "started_at": 1000,
        "correlation_id": "cid_1",
    }
    return NewRun(run_id, **(facts | changes))


def started(run_id: str = "r1", **inputs: Any) -> Recorded:
    event = RunStarted("w", "The workflow", definition_hash(DEFINITION), inputs, "/work")
    return at(1, event, run_id)


def at(seq: int, event: Event | Output, run_id: str = "r1", time: int = 5000) -> Recorded:
    return Recorded(run_id, seq, time + seq, "cid_1", event)


def passed(path: str = "branch-1", **outputs: Any) -> StepPassed:
    return StepPassed(path, "branch-1", "branch", {"lhs": "a"}, "true", outputs)


def finished(path: str = "agent-1", **outputs: Any) -> StepFinished:
    return StepFinished(path, "agent-1", "agent", "next", outputs, 12)


def said(text: str, path: str = "agent-1") -> Output:
    return Output(path, "agent-1", text)


async def read_all(run_log: RunLog, run_id: str = "r1", limit: int = 1000) -> list[Recorded]:
    found: list[Recorded] = []
    while page := await run_log.events(run_id, found[-1].seq if found else 0, limit=limit):
        found += page
    return found


async def settled(run_log: RunLog, run: NewRun, *items: Recorded, error: str = "") -> None:
    """Store a run that began, did `items` and finished."""
    first = started(run.id)
    seq = items[-1].seq + 1 if items else 2
    finish = at(seq, RunFinished("failed" if error else "succeeded", error), run.id)
    await run_log.create_run(run, first)
    await run_log.append(run.id, 1, [*items, finish], scope={"inputs": {}})


def blob_bytes(directory: Path) -> int:
    with sqlite3.connect(directory / DATABASE_FILE) as connection:
        (size,) = connection.execute("SELECT coalesce(sum(length(body)), 0) FROM blob_part")
    connection.close()
    return int(size[0])
