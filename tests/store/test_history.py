"""Runs as a history: listed, forked, forgotten, exported and imported."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import NotFound, StoreError, UsageError
from infloop.model.events import (
    Cause,
    Notice,
    Output,
    RunFinished,
    StepFinished,
    StepStarted,
    TemplateWarning,
)
from infloop.store import run_records as record
from infloop.store.base import Checkpoint, Journal, Ownership
from infloop.store.run_records import export_record, import_record
from infloop.store.sqlite.journal import JOURNAL_FILE, open_journal
from support.journals import (
    at,
    blob_bytes,
    every_journal,
    finished,
    new_run,
    passed,
    read_all,
    said,
    settled,
    started,
)

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.store.base import RunRow


# -- listing ---------------------------------------------------------------------------------


async def every_page(journal: Journal, size: int, **filters: Any) -> list[RunRow]:
    rows: list[RunRow] = []
    while page := await journal.runs(
        limit=size, before=rows[-1].cursor if rows else None, **filters
    ):
        rows += page
    return rows


@every_journal
async def test_ten_thousand_runs_are_listed_newest_first_by_page_and_filter(
    opening: Any, tmp_path: Path
) -> None:
    chance = random.Random(7)
    expected = []
    async with await opening(tmp_path) as journal:

        async def add(number: int) -> None:
            run_id, workflow = f"run-{number:05}", f"w{number % 7}"
            begun = chance.randrange(3_000)  # many runs begin in the same millisecond
            await journal.create_run(
                new_run(run_id, workflow_id=workflow, started_at=begun), started(run_id)
            )
            status = "running"
            if number % 3:
                status = "failed" if number % 2 else "succeeded"
                await journal.append(run_id, 1, [at(2, RunFinished(status), run_id)])  # type: ignore[arg-type]
            expected.append((begun, run_id, workflow, status))

        await asyncio.gather(*map(add, range(10_000)))
        expected.sort(reverse=True)

        rows = await every_page(journal, 997)
        assert [(r.started_at, r.id, r.workflow_id, r.status) for r in rows] == expected
        assert await journal.count() == 10_000
        for workflow, status in (("w3", None), (None, "failed"), ("w3", "running")):
            wanted = [
                run_id
                for _, run_id, its_workflow, its_status in expected
                if workflow in (None, its_workflow) and status in (None, its_status)
            ]
            rows = await every_page(journal, 500, workflow_id=workflow, status=status)
            assert [row.id for row in rows] == wanted
            assert await journal.count(workflow_id=workflow, status=status) == len(wanted)
        assert await journal.runs(workflow_id="no such workflow") == []


# -- forking ---------------------------------------------------------------------------------


@every_journal
async def test_a_fork_begins_with_everything_before_its_point(opening: Any, tmp_path: Path) -> None:
    large = "L" * 100_000
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        items = [
            at(2, finished("a", stdout=large)),
            at(3, passed("b")),
            at(4, said("one ")),
            at(5, said("two ")),
            at(6, said("three")),
            at(7, passed("c")),
            at(8, passed("d")),
            at(9, passed("e")),
        ]
        await journal.append("r1", 1, items)
        await journal.checkpoint("r1", 1, 3, b"at three")
        await journal.checkpoint("r1", 1, 7, b"at seven")

        for before, kept in ((6, items[:4]), (8, items[:6]), (100, items), (3, items[:1])):
            copy = new_run(f"fork-{before}", correlation_id="cid_9", cause=Cause("rewind"))
            last_seq = kept[-1].seq
            assert await journal.fork("r1", before, copy) == Ownership(1, last_seq)
            found = await read_all(journal, copy.id)
            assert [item.event for item in found] == [i.event for i in [started(), *kept]]
            assert [item.seq for item in found] == [1, *(i.seq for i in kept)]
            assert {(item.run_id, item.correlation_id) for item in found} == {(copy.id, "cid_9")}
            row = await journal.run(copy.id)
            kinds = [type(item.event) is Output for item in kept]
            assert (row.last_seq, row.events) == (last_seq, 1 + kinds.count(False))
            assert (row.status, row.cause.kind) == ("running", "rewind")

        assert (await journal.load("fork-3")).checkpoint is None
        assert (await journal.load("fork-6")).checkpoint == Checkpoint(3, b"at three")
        assert (await journal.load("fork-8")).checkpoint == Checkpoint(7, b"at seven")
        await journal.append("fork-6", 1, [at(6, passed("another way"), "fork-6")])
        assert len(await read_all(journal)) == 9, "the source is as it was"


@every_journal
async def test_a_fork_outlives_its_source(opening: Any, tmp_path: Path) -> None:
    large = "L" * 100_000
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), at(2, finished(stdout=large)), at(3, passed()))
        await journal.fork("r1", 3, new_run("r2"))
        assert await journal.prune("w", 0) == 1
        with pytest.raises(NotFound):
            await journal.run("r1")
        assert (await read_all(journal, "r2"))[1].event == finished(stdout=large)
        assert (await journal.load("r2")).definition == new_run().definition


@every_journal
async def test_a_fork_of_nothing_is_refused(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        with pytest.raises(StoreError, match="nothing before sequence 1"):
            await journal.fork("r1", 1, new_run("r2"))
        assert await journal.count() == 1


# -- forgetting ------------------------------------------------------------------------------


@pytest.mark.claim("I76")
@every_journal
async def test_the_newest_finished_runs_of_a_workflow_are_kept(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        for run_id, begun in (("a", 5), ("b", 9), ("c", 9), ("d", 7), ("e", 1)):
            await settled(journal, new_run(run_id, started_at=begun))
        await journal.create_run(new_run("still-running", started_at=0), started("still-running"))
        await settled(journal, new_run("other", workflow_id="w2", started_at=0))

        assert await journal.prune("w", 5) == 0
        assert await journal.prune("w", 2) == 3
        assert [row.id for row in await journal.runs()] == ["c", "b", "still-running", "other"]
        assert await journal.prune("w", 2) == 0
        assert await journal.prune("w", 1) == 1
        assert [row.id for row in await journal.runs(workflow_id="w")] == ["c", "still-running"]


@pytest.mark.claim("I76")
async def test_forgetting_runs_leaves_nothing_of_them_and_gives_the_disk_back(
    tmp_path: Path,
) -> None:
    shared = os.urandom(50_000).hex()
    file = tmp_path / JOURNAL_FILE

    def size() -> int:
        return file.stat().st_size

    async with await open_journal(tmp_path, synchronous="NORMAL") as journal:
        for number in range(6):
            run_id = f"r{number}"
            await settled(
                journal,
                new_run(run_id, started_at=number),
                at(2, finished(own=os.urandom(500_000).hex(), shared=shared), run_id),
                at(3, said(os.urandom(300_000).hex()), run_id),
            )
            await journal.checkpoint(run_id, 1, 4, os.urandom(200_000))
            await journal.index_run(run_id)
        await journal.flush()
        await journal._writer.submit(_empty_log, bare=True)
        full, blobs = size(), blob_bytes(tmp_path)

        assert await journal.prune("w", 1) == 5
        assert size() < full / 2
        assert 0 < blob_bytes(tmp_path) < blobs / 3
        assert (await read_all(journal, "r5"))[1].event.outputs["shared"] == shared  # type: ignore[union-attr]

        await journal.prune("w", 0)
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


def _empty_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@pytest.mark.claim("I76")
@every_journal
async def test_runs_can_be_appended_to_while_others_are_forgotten(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        for number in range(30):
            run_id = f"old-{number}"
            await settled(
                journal,
                new_run(run_id, started_at=number),
                at(2, finished(x=os.urandom(60_000).hex()), run_id),
            )
        await journal.create_run(new_run("live"), started("live"))
        pruning = asyncio.create_task(journal.prune("w", 3))
        seq = 1
        while not pruning.done():
            seq += 1
            await journal.append("live", 1, [at(seq, passed(), "live")])
        assert await pruning == 27
        assert len(await read_all(journal, "live")) == seq
        assert await journal.count() == 4


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


@every_journal
async def test_a_record_is_imported_as_a_run_like_any_other(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        row = await import_record(journal, sample())
        assert [r.id for r in await journal.runs(workflow_id="p-agent")] == [row.id]
        assert (row.status, row.error) == ("failed", "unknown node type: mystery")
        assert (row.started_at, row.finished_at) == (1794767582475, 1794767582500)
        assert row.cause.kind == "import"
        assert await journal.scope(row.id) == sample()["scope"]

        events = [item.event for item in await read_all(journal, row.id)]
        assert StepStarted("a1[1]", "a1", "agent", {"prompt": "do it"}, 1) in events
        assert Output("a1[1]", "a1", "tok1 ", "stdout", 1) in events
        assert TemplateWarning("a1", "a1", "prompt", "x.y") in events
        (end,) = (e for e in events if isinstance(e, StepFinished) and e.node == "a1")
        assert (end.path, end.handle, end.error) == ("a1[1]", "error", "exit 1")
        assert not any(isinstance(event, Notice) for event in events)
        assert isinstance(events[-1], RunFinished)

        (hit,) = await journal.search("cafe")
        assert (hit.run.id, hit.kind) == (row.id, "input")


@every_journal
async def test_an_imported_record_is_exported_with_the_same_events(
    opening: Any, tmp_path: Path
) -> None:
    original = sample()
    async with await opening(tmp_path) as journal:
        await import_record(journal, original)
        exported: Any = await export_record(journal, original["runId"])
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


@every_journal
async def test_our_own_record_survives_the_way_out_and_in(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path / "here") as here, await opening(tmp_path / "there") as there:
        path = "loop-1[2]/agent-1"
        await settled(
            here,
            new_run("r1"),
            at(2, StepStarted(path, "agent-1", "agent", {"prompt": "p"}, 2)),
            at(3, Output(path, "agent-1", "warn\n", "stderr", 2)),
            at(4, Notice("look", path, level="warning")),
            at(5, StepFinished(path, "agent-1", "agent", "next", {"stdout": "s"}, 7, "odd")),
            error="it broke",
        )
        exported = await export_record(here, "r1")
        await import_record(there, exported)
        before = [(i.time, i.event) for i in await read_all(here)]
        after = [(i.time, i.event) for i in await read_all(there)]
        assert after[1:-1] == before[1:-1]
        again = await export_record(there, "r1")
        assert {k: v for k, v in again.items() if k != "events"} == {
            k: v for k, v in exported.items() if k != "events"
        }


@every_journal
async def test_a_record_keeps_only_the_last_events_of_a_long_run(
    opening: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MAX_EVENTS", 20)
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), *(at(seq, said("x")) for seq in range(2, 40)))
        exported: Any = await export_record(journal, "r1")
    assert exported["truncated"] is True
    assert len(exported["events"]) == 20
    assert exported["events"][-1]["type"] == "run_finished"


@every_journal
async def test_a_run_in_flight_has_no_record_yet(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        with pytest.raises(UsageError, match="has not finished"):
            await export_record(journal, "r1")


@every_journal
async def test_a_record_is_imported_once(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await import_record(journal, sample())
        with pytest.raises(UsageError, match="already there"):
            await import_record(journal, sample())
        assert await journal.count() == 1


def without(name: str) -> dict[str, Any]:
    record = sample()
    del record[name]
    return record


@every_journal
@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (None, "no run record"),
        ([], "no run record"),
        ({}, "runId"),
        (without("scope"), "scope"),
        (without("events"), "events"),
        (sample(status="running"), "status"),
        (sample(startedAt="yesterday"), "startedAt"),
        (sample(events={}), "events"),
        (sample(events=["text"]), "events"),
        (sample(events=[{"nodeId": "no type"}]), "event 0"),
        (sample(events=[{"type": "node_started", "resolvedConfig": 5}]), "event 0"),
        (sample(run_id="../../etc/passwd"), "no plain name"),
        (sample(run_id=""), "no plain name"),
        (sample(run_id=".hidden"), "no plain name"),
        (sample(run_id="x" * 1000), "no plain name"),
        (sample(workflowId="a/b"), "no plain name"),
    ],
)
async def test_what_is_no_record_is_refused_with_the_reason(
    opening: Any, tmp_path: Path, bad: object, complaint: str
) -> None:
    async with await opening(tmp_path) as journal:
        with pytest.raises(UsageError, match=complaint):
            await import_record(journal, bad)
        assert await journal.count() == 0


@every_journal
@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"type": "run_finished", "status": "failed"}],
        [{"type": "node_finished", "nodeId": "never-started", "nodeType": "x"}],
        [{"type": "stdout_chunk", "nodeId": "never-started", "line": "x"}],
        [{"type": "from_the_future", "payload": [1]}],
        [{"type": "node_started", "nodeId": "a"}, {"type": "error", "nodeId": "a", "message": "m"}],
    ],
)
async def test_a_cut_or_newer_record_is_imported_as_far_as_it_goes(
    opening: Any, tmp_path: Path, events: list[Any]
) -> None:
    async with await opening(tmp_path) as journal:
        row = await import_record(journal, sample(events=events))
        found = [item.event for item in await read_all(journal, row.id)]
        assert isinstance(found[-1], RunFinished)
        texts = [event.message for event in found if isinstance(event, Notice)]
        assert texts == [event["message"] for event in events if "message" in event]
