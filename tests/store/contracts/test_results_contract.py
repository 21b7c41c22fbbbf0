"""What every store promises about results; the fixtures are in `conftest`."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from infloop.errors import Fenced, NotFound, StoreError
from infloop.store.interfaces import results as interface
from support.stores import OpenStore, new_run, settled, started


async def test_packs_are_kept_in_order_byte_for_byte_and_deleted_with_their_run(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "PART_BYTES", 1000)
    large = bytes(range(256)) * 10
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run("r1"))
        await settled(store.run_log, new_run("r2"))
        first = await store.results.save("r1", 1, large)
        await store.results.save("r1", 1, b"PACK\0")
        await store.results.save("r2", 1, b"other")
        assert (first.number, first.size) == (1, len(large))
    async with open_store(tmp_path) as store:
        found = await store.results.packs("r1")
        assert [await store.results.read("r1", each) for each in found] == [large, b"PACK\0"]
        assert await store.results.packs("nobody") == []
        damaged = replace(found[0], digest="0" * 64)
        with pytest.raises(StoreError, match="damaged"):
            await store.results.read("r1", damaged)
        assert await store.run_log.prune(new_run().workflow_id, 0) == 2
        assert await store.results.packs("r1") == []
        with pytest.raises(StoreError, match="damaged"):
            await store.results.read("r1", found[0])


async def test_only_the_owner_of_a_run_stores_results_and_not_too_large_ones(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        epoch = await store.run_log.create_run(new_run(), started())
        ownership = await store.run_log.take_over("r1", "another", force=True)
        with pytest.raises(Fenced):
            await store.results.save("r1", epoch, b"late")
        with pytest.raises(NotFound):
            await store.results.save("nobody", 1, b"x")
        monkeypatch.setattr(interface, "MAX_PACK_BYTES", 10)
        monkeypatch.setattr(interface, "MAX_RUN_BYTES", 15)
        with pytest.raises(StoreError, match="too large"):
            await store.results.save("r1", ownership.epoch, b"x" * 11)
        await store.results.save("r1", ownership.epoch, b"x" * 10)
        with pytest.raises(StoreError, match="too large"):
            await store.results.save("r1", ownership.epoch, b"x" * 6)
        assert [each.size for each in await store.results.packs("r1")] == [10]
