"""Runs that are pruned from the database, exported and imported."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from infloop.errors import UsageError
from infloop.model.events import (
    Notice,
    Output,
    RunFinished,
    StepFinished,
    StepStarted,
    TemplateWarning,
)
from infloop.store import run_records as record
from infloop.store.run_records import export_record, import_record
from infloop.store.sqlite.database import open_for_writing
from infloop.store.sqlite.pruning import delete_runs, prunable_runs
from infloop.store.sqlite.store import DATABASE_FILE
from support.stores import (
    OpenStore,
    at,
    blob_bytes,
    finished,
    new_run,
    read_all,
    said,
    settled,
    started,
    store_in,
)


async def test_a_run_that_is_resumed_while_old_runs_are_pruned_is_kept(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        for run_id in ("resumed", "old"):
            await settled(store.run_log, new_run(run_id))
        await store.run_log.flush()
        connection = open_for_writing(tmp_path / DATABASE_FILE, "NORMAL")
        try:
            chosen = prunable_runs(connection, "w", 0)
            assert sorted(chosen) == ["old", "resumed"]
            await store.run_log.take_over("resumed", "another", force=True)
            with connection:
                assert delete_runs(connection, chosen) == 1
        finally:
            connection.close()
        (left,) = await store.run_log.runs()
        assert (left.id, left.status, left.owner) == ("resumed", "running", "another")
        assert await read_all(store.run_log, "resumed")


@pytest.mark.claim("I76")
async def test_forgetting_runs_leaves_nothing_of_them_and_gives_the_disk_back(
    tmp_path: Path,
) -> None:
    shared = os.urandom(50_000).hex()
    file = tmp_path / DATABASE_FILE

    def size() -> int:
        return file.stat().st_size

    async with store_in(tmp_path) as store:
        for number in range(6):
            run_id = f"r{number}"
            await settled(
                store.run_log,
                new_run(run_id, started_at=number),
                at(2, finished(own=os.urandom(500_000).hex(), shared=shared), run_id),
                at(3, said(os.urandom(300_000).hex()), run_id),
            )
            await store.run_log.checkpoint(run_id, 1, 4, os.urandom(200_000))
            await store.run_log.index_runs(run_id)
        await store.run_log.flush()
        _empty_log(file)
        full, blobs = size(), blob_bytes(tmp_path)

        assert await store.run_log.prune("w", 1) == 5
        assert size() < full / 2
        assert 0 < blob_bytes(tmp_path) < blobs / 3
        assert (await read_all(store.run_log, "r5"))[1].event.outputs["shared"] == shared  # type: ignore[union-attr]

        await store.run_log.prune("w", 0)
        assert size() < full / 10

    connection = sqlite3.connect(file)
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%words%'"
        )
        if name not in ("schema", "instance", "sqlite_sequence")
    ]
    left = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in names}
    connection.close()
    assert set(left.values()) == {(0,)}, left
    assert {"run", "stretch", "blob", "blob_part", "definition", "document"} <= set(left)


def _empty_log(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


# -- records ---------------------------------------------------------------------------------


def sample(run_id: str = "42367605-d63d-49a6-bcb1-3c5eca1d6ada", **changes: Any) -> dict[str, Any]:
    """Return a record as Infinite Loop writes it: no times, ends that name only their node."""
    result = {"stdout": "tok0 tok1 ", "exitCode": 0, "timedOut": False, "stderr": None}
    scope: dict[str, Any] = {"inputs": {"title": "café"}, "a1": result}
    facts: dict[str, Any] = {
        "runId": run_id,
        "workflowId": "p-agent",
        "workflowName": "agent in a loop",
        "status": "failed",
        "startedAt": 1794767582475,
        "finishedAt": 1794767582500,
        "durationMs": 25,
        "scope": scope,
        "errorMessage": "unknown node type: mystery",
        "events": [
            {
                "type": "run_started", "workflowId": "p-agent", "workflowName": "agent in a loop",
            },
            {
                "type": "node_started", "nodeId": "start-1", "nodeType": "start",
                "resolvedConfig": {},
            },
            {
                "type": "node_finished", "nodeId": "start-1", "nodeType": "start",
                "branch": "next", "outputs": {}, "durationMs": 0,
            },
            {"type": "trigger_started", "queueId": "q-1", "triggerId": "t", "runId": "x"},
            {"type": "template_warning", "nodeId": "a1", "field": "prompt", "missingKey": "x.y"},
            {
                "type": "node_started", "nodeId": "a1", "nodeType": "agent",
                "resolvedConfig": {"prompt": "do it"}, "loopIteration": 1,
            },
            {"type": "stdout_chunk", "nodeId": "a1", "line": "tok0 ", "loopIteration": 1},
            {"type": "stdout_chunk", "nodeId": "a1", "line": "tok1 ", "loopIteration": 1},
            {"type": "error", "nodeId": "a1", "message": "exit 1"},
            {
                "type": "node_finished", "nodeId": "a1", "nodeType": "agent", "branch": "error",
                "outputs": result, "durationMs": 25,
            },
            {
                "type": "node_started", "nodeId": "s1/c1", "nodeType": "condition",
                "resolvedConfig": {"kind": "sentinel"}, "loopIteration": 1,
            },
            {
                "type": "node_finished", "nodeId": "s1/c1", "nodeType": "condition",
                "branch": "met", "outputs": {"met": True, "detail": "matched"}, "durationMs": 0,
            },
            {"type": "condition_checked", "nodeId": "s1/c1", "met": True, "detail": "matched"},
            {"type": "error", "message": "unknown node type: mystery"},
            {"type": "run_finished", "status": "failed", "scope": scope},
        ],
    }  # fmt: skip
    return facts | changes


async def test_a_record_is_imported_as_a_run_like_any_other(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        row = await import_record(store.run_log, sample())
        assert [r.id for r in await store.run_log.runs(workflow_id="p-agent")] == [row.id]
        assert (row.status, row.error) == ("failed", "unknown node type: mystery")
        assert (row.started_at, row.finished_at) == (1794767582475, 1794767582500)
        assert row.cause.kind == "import"
        assert await store.run_log.scope(row.id) == sample()["scope"]

        events = [item.event for item in await read_all(store.run_log, row.id)]
        assert StepStarted("a1[1]", "a1", "agent", {"prompt": "do it"}, 1) in events
        assert Output("a1[1]", "a1", "tok1 ", "stdout", 1) in events
        assert TemplateWarning("a1", "a1", "prompt", "x.y") in events
        (end,) = (e for e in events if isinstance(e, StepFinished) and e.node == "a1")
        assert (end.path, end.handle, end.error) == ("a1[1]", "error", "exit 1")
        assert not any(isinstance(event, Notice) for event in events)
        assert isinstance(events[-1], RunFinished)

        (hit,) = await store.run_log.search("cafe")
        assert (hit.run.id, hit.kind) == (row.id, "input")


async def test_an_imported_record_is_exported_with_the_same_events(
    open_store: OpenStore, tmp_path: Path
) -> None:
    original = sample()
    async with open_store(tmp_path) as store:
        await import_record(store.run_log, original)
        exported: Any = await export_record(store.run_log, original["runId"])
    assert json.loads(json.dumps(exported)) == exported
    assert {k: v for k, v in exported.items() if k != "events"} == {
        k: v for k, v in original.items() if k != "events"
    }
    wanted = [event for event in original["events"] if event["type"] != "trigger_started"]
    found = [
        {name: value for name, value in event.items() if name in before}
        for event, before in zip(exported["events"], wanted, strict=True)
    ]
    assert found == wanted
    assert all(
        event["runId"] == original["runId"] and event["seq"] and event["time"]
        for event in exported["events"]
    )


async def test_our_own_record_survives_the_way_out_and_in(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path / "here") as here, open_store(tmp_path / "there") as there:
        path = "loop-1[2]/agent-1"
        await settled(
            here.run_log,
            new_run("r1"),
            at(2, StepStarted(path, "agent-1", "agent", {"prompt": "p"}, 2)),
            at(3, Output(path, "agent-1", "warn\n", "stderr", 2)),
            at(4, Notice("look", path, level="warning")),
            at(
                5,
                StepFinished(
                    path=path,
                    node="agent-1",
                    node_type="agent",
                    handle="next",
                    outputs={"stdout": "s"},
                    duration_ms=7,
                    error="odd",
                ),
            ),
            error="it broke",
        )
        exported = await export_record(here.run_log, "r1")
        await import_record(there.run_log, exported)
        before = [(i.time, i.event) for i in await read_all(here.run_log)]
        after = [(i.time, i.event) for i in await read_all(there.run_log)]
        assert after[1:-1] == before[1:-1]
        again = await export_record(there.run_log, "r1")
        assert {k: v for k, v in again.items() if k != "events"} == {
            k: v for k, v in exported.items() if k != "events"
        }


async def test_a_record_keeps_only_the_last_events_of_a_long_run(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MAX_EVENTS", 20)
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), *(at(seq, said("x")) for seq in range(2, 40)))
        exported: Any = await export_record(store.run_log, "r1")
    assert exported["truncated"] is True
    assert len(exported["events"]) == 20
    assert exported["events"][-1]["type"] == "run_finished"


async def test_a_run_in_flight_has_no_record_yet(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        with pytest.raises(UsageError, match="has not finished"):
            await export_record(store.run_log, "r1")


async def test_a_record_is_imported_once(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await import_record(store.run_log, sample())
        with pytest.raises(UsageError, match="exists already"):
            await import_record(store.run_log, sample())
        assert await store.run_log.count() == 1


def without(name: str) -> dict[str, Any]:
    record = sample()
    del record[name]
    return record


NO_RECORDS: list[tuple[object, str]] = [
    (None, "not a run record"),
    ([], "not a run record"),
    ({}, "runId"),
    (without("scope"), "scope"),
    (without("events"), "events"),
    (sample(status="running"), "status"),
    (sample(startedAt="yesterday"), "startedAt"),
    (sample(events={}), "events"),
    (sample(events=["text"]), "events"),
    (sample(events=[{"nodeId": "no type"}]), "event 0"),
    (sample(events=[{"type": "node_started", "resolvedConfig": 5}]), "event 0"),
    (sample(run_id="../../etc/passwd"), "not a plain name"),
    (sample(run_id=""), "not a plain name"),
    (sample(run_id=".hidden"), "not a plain name"),
    (sample(run_id="x" * 1000), "not a plain name"),
    (sample(workflowId="a/b"), "not a plain name"),
]


async def test_what_is_no_record_is_refused_with_the_reason(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for bad, complaint in NO_RECORDS:
            with pytest.raises(UsageError, match=complaint):
                await import_record(store.run_log, bad)
            assert await store.run_log.count() == 0, bad


CUT: list[list[dict[str, Any]]] = [
    [],
    [{"type": "run_finished", "status": "failed"}],
    [{"type": "node_finished", "nodeId": "never-started", "nodeType": "x"}],
    [{"type": "stdout_chunk", "nodeId": "never-started", "line": "x"}],
    [{"type": "from_the_future", "payload": [1]}],
    [{"type": "node_started", "nodeId": "a"}, {"type": "error", "nodeId": "a", "message": "m"}],
]


async def test_a_cut_or_newer_record_is_imported_as_far_as_it_goes(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for number, events in enumerate(CUT):
            row = await import_record(store.run_log, sample(f"r{number}", events=events))
            found = [item.event for item in await read_all(store.run_log, row.id)]
            assert isinstance(found[-1], RunFinished), events
            texts = [event.message for event in found if isinstance(event, Notice)]
            assert texts == [event["message"] for event in events if "message" in event]
