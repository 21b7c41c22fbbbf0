"""The contract of every run log: listing, forking and pruning."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from infloop.errors import NotFound, StoreError
from infloop.model.events import (
    Cause,
    Output,
    RunFinished,
)
from infloop.store.interfaces.run_log import (
    Checkpoint,
    Ownership,
    RunLog,
    RunRow,
    StoredStatus,
)
from support.stores import (
    OpenStore,
    at,
    finished,
    new_run,
    passed,
    read_all,
    said,
    settled,
    started,
)
from support.thorough import amount

# -- listing ---------------------------------------------------------------------------------


async def every_page(run_log: RunLog, size: int, **filters: Any) -> list[RunRow]:
    rows: list[RunRow] = []
    while page := await run_log.runs(
        limit=size, before=rows[-1].cursor if rows else None, **filters
    ):
        rows += page
    return rows


@pytest.mark.thorough
async def test_thousands_of_runs_are_listed_newest_first_by_page_and_filter(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    number_of_runs = amount(1_000, thorough=2_000 if implementation == "postgresql" else 10_000)
    chance = random.Random(7)
    expected = []
    async with open_store(tmp_path) as store:

        async def add(number: int) -> None:
            run_id, workflow = f"run-{number:05}", f"w{number % 7}"
            begun = chance.randrange(number_of_runs // 3)  # many runs begin in the same millisecond
            await store.run_log.create_run(
                new_run(run_id, workflow_id=workflow, started_at=begun), started(run_id)
            )
            status = "running"
            if number % 3:
                status = "failed" if number % 2 else "succeeded"
                await store.run_log.append(run_id, 1, [at(2, RunFinished(status), run_id)])  # type: ignore[arg-type]
            expected.append((begun, run_id, workflow, status))

        await asyncio.gather(*map(add, range(number_of_runs)))
        expected.sort(reverse=True)

        rows = await every_page(store.run_log, 97)
        assert [(r.started_at, r.id, r.workflow_id, r.status) for r in rows] == expected
        assert await store.run_log.count() == number_of_runs
        filters: list[tuple[str | None, StoredStatus | None]] = [
            ("w3", None), (None, "failed"), ("w3", "running"),
        ]  # fmt: skip
        for workflow, status in filters:
            wanted = [
                run_id
                for _, run_id, its_workflow, its_status in expected
                if workflow in (None, its_workflow) and status in (None, its_status)
            ]
            rows = await every_page(store.run_log, 50, workflow_id=workflow, status=status)
            assert [row.id for row in rows] == wanted
            assert await store.run_log.count(workflow_id=workflow, status=status) == len(wanted)
        assert await store.run_log.runs(workflow_id="no such workflow") == []


# -- forking ---------------------------------------------------------------------------------


async def test_a_fork_begins_with_everything_before_its_point(
    open_store: OpenStore, tmp_path: Path
) -> None:
    large = "L" * 100_000
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
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
        await store.run_log.append("r1", 1, items)
        await store.run_log.checkpoint("r1", 1, 3, b"at three")
        await store.run_log.checkpoint("r1", 1, 7, b"at seven")

        for before, kept in ((6, items[:4]), (8, items[:6]), (100, items), (3, items[:1])):
            copy = new_run(f"fork-{before}", correlation_id="cid_9", cause=Cause("rewind"))
            last_seq = kept[-1].seq
            assert await store.run_log.fork("r1", before, copy) == Ownership(1, last_seq)
            found = await read_all(store.run_log, copy.id)
            assert [item.event for item in found] == [i.event for i in [started(), *kept]]
            assert [item.seq for item in found] == [1, *(i.seq for i in kept)]
            assert {(item.run_id, item.correlation_id) for item in found} == {(copy.id, "cid_9")}
            row = await store.run_log.run(copy.id)
            kinds = [type(item.event) is Output for item in kept]
            assert (row.last_seq, row.events) == (last_seq, 1 + kinds.count(False))
            assert (row.status, row.cause.kind) == ("running", "rewind")

        assert (await store.run_log.load("fork-3")).checkpoint is None
        assert (await store.run_log.load("fork-6")).checkpoint == Checkpoint(3, b"at three")
        assert (await store.run_log.load("fork-8")).checkpoint == Checkpoint(7, b"at seven")
        await store.run_log.append("fork-6", 1, [at(6, passed("another way"), "fork-6")])
        assert len(await read_all(store.run_log)) == 9, "the source is as it was"


async def test_a_fork_outlives_its_source(open_store: OpenStore, tmp_path: Path) -> None:
    large = "L" * 100_000
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), at(2, finished(stdout=large)), at(3, passed()))
        await store.run_log.fork("r1", 3, new_run("r2"))
        assert await store.run_log.prune("w", 0) == 1
        with pytest.raises(NotFound):
            await store.run_log.run("r1")
        assert (await read_all(store.run_log, "r2"))[1].event == finished(stdout=large)
        assert (await store.run_log.load("r2")).definition == new_run().definition


async def test_a_fork_of_nothing_is_refused(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        with pytest.raises(StoreError, match="nothing before sequence 1"):
            await store.run_log.fork("r1", 1, new_run("r2"))
        assert await store.run_log.count() == 1


# -- forgetting ------------------------------------------------------------------------------


@pytest.mark.claim("I76")
async def test_the_newest_finished_runs_of_a_workflow_are_kept(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for run_id, begun in (("a", 5), ("b", 9), ("c", 9), ("d", 7), ("e", 1)):
            await settled(store.run_log, new_run(run_id, started_at=begun))
        await store.run_log.create_run(
            new_run("still-running", started_at=0), started("still-running")
        )
        await settled(store.run_log, new_run("other", workflow_id="w2", started_at=0))

        assert await store.run_log.prune("w", 5) == 0
        assert await store.run_log.prune("w", 2) == 3
        assert [row.id for row in await store.run_log.runs()] == [
            "c",
            "b",
            "still-running",
            "other",
        ]
        assert await store.run_log.prune("w", 2) == 0
        assert await store.run_log.prune("w", 1) == 1
        assert [row.id for row in await store.run_log.runs(workflow_id="w")] == [
            "c",
            "still-running",
        ]


@pytest.mark.claim("I76")
async def test_runs_can_be_appended_to_while_others_are_forgotten(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for number in range(30):
            run_id = f"old-{number}"
            await settled(
                store.run_log,
                new_run(run_id, started_at=number),
                at(2, finished(x=os.urandom(60_000).hex()), run_id),
            )
        await store.run_log.create_run(new_run("live"), started("live"))
        pruning = asyncio.create_task(store.run_log.prune("w", 3))
        seq = 1
        while not pruning.done():
            seq += 1
            await store.run_log.append("live", 1, [at(seq, passed(), "live")])
        assert await pruning == 27
        assert len(await read_all(store.run_log, "live")) == seq
        assert await store.run_log.count() == 4
