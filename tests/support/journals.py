"""Journals, and runs and events to put into them."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infloop.model.events import (
    Event,
    Output,
    Recorded,
    RunFinished,
    RunStarted,
    StepFinished,
    StepPassed,
)
from infloop.store.base import Journal, NewRun, definition_hash
from infloop.store.sqlite.journal import JOURNAL_FILE, open_journal


async def open_alone(data_dir: Path, **options: Any) -> Journal:
    """Open a journal that commits where it is called, as with one run alone."""
    journal = await open_journal(data_dir, synchronous="NORMAL", **options)
    journal.expect(1)
    return journal


# Tests that take `opening` are the contract: they run against every implementation.
every_journal = pytest.mark.parametrize(
    "opening",
    [
        pytest.param(partial(open_journal, synchronous="NORMAL"), id="sqlite"),
        pytest.param(open_alone, id="sqlite-alone"),
    ],
)
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


async def read_all(journal: Journal, run_id: str = "r1", limit: int = 1000) -> list[Recorded]:
    found: list[Recorded] = []
    while page := await journal.events(run_id, found[-1].seq if found else 0, limit=limit):
        found += page
    return found


async def settled(journal: Journal, run: NewRun, *items: Recorded, error: str = "") -> None:
    """Store a run that began, did `items` and finished."""
    first = started(run.id)
    seq = items[-1].seq + 1 if items else 2
    finish = at(seq, RunFinished("failed" if error else "succeeded", error), run.id)
    await journal.create_run(run, first)
    await journal.append(run.id, 1, [*items, finish], scope={"inputs": {}})


def blob_bytes(directory: Path) -> int:
    with sqlite3.connect(directory / JOURNAL_FILE) as connection:
        (size,) = connection.execute("SELECT coalesce(sum(length(body)), 0) FROM blob_part")
    connection.close()
    return int(size[0])
