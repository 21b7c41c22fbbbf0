"""A store that moves from SQLite to PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infloop.model.events import Recorded
from infloop.store.interfaces.store import Store
from infloop.store.moving import move
from infloop.store.postgresql.store import open_postgresql_store
from support.postgresql import database_for, drop_databases, running_server
from support.stores import (
    NOW,
    at,
    at_now,
    finished,
    new_run,
    passed,
    read_all,
    said,
    settled,
    started,
    store_in,
)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty database."""
    running_server()
    yield database_for(tmp_path)
    drop_databases()


async def everything(store: Store) -> list[tuple[object, list[Recorded]]]:
    return [(row, await read_all(store.run_log, row.id)) for row in await store.run_log.runs()]


async def test_runs_are_the_same_after_they_moved_and_go_on_from_where_they_were(
    target: str, tmp_path: Path
) -> None:
    async with store_in(tmp_path / "data") as store:
        await settled(store.run_log, new_run("old"), at(2, finished(text="x" * 90_000), "old"))
        await store.run_log.create_run(new_run("open"), started("open"))
        for seq in range(2, 30, 2):
            items = [at(seq, passed(f"p{seq}"), "open"), at(seq + 1, said("hello"), "open")]
            await store.run_log.append("open", 1, items)
        await store.run_log.checkpoint("open", 1, 5, b"state")
        saved = await store.results.save("open", 1, b"pack")
        before = await everything(store)
        fork = await store.run_log.fork("open", 9, new_run("fork"))
        forked = await store.run_log.run("fork")
        await store.run_log.take_over("fork", "me", force=True)
        await store.run_log.append("fork", 2, [at(99, passed(), "fork")])
        last = await store.run_log.run("fork")

    await move(tmp_path / "data", at_now, target)

    async with await open_postgresql_store(target) as store:
        moved = [each for each in await everything(store) if each[0] != last]
        assert moved == before
        assert await store.run_log.run("fork") == last
        assert await store.results.packs("open") == [saved]
        assert await store.results.read("open", saved) == b"pack"
        assert await store.run_log.fork("open", 9, new_run("again")) == fork
        again = await store.run_log.run("again")
        totals = (forked.last_seq, forked.events, forked.steps, forked.output_bytes)
        assert (again.last_seq, again.events, again.steps, again.output_bytes) == totals
        taken = await store.run_log.take_over("open", "another", expect_dead="me")
        assert (taken.epoch, taken.last_seq) == (2, 29)
        await store.run_log.append("open", 2, [at(30, passed(), "open", NOW)])
        assert len(await store.run_log.search("hello")) >= 1
