"""What every store promises about refused firings; the fixtures are in `conftest`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from infloop.store.interfaces.refusals import MAX_REFUSALS, RefusedFiring
from support.stores import OpenStore

REFUSED = RefusedFiring("f1", "ci", "webhook", "w", "not-found", "it is missing", "cid_1", 10)


async def test_equal_refusals_are_one_record_and_the_oldest_are_deleted(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        refusals = store.refusals
        await refusals.note(REFUSED)
        await refusals.note(replace(REFUSED, at=12, message="still missing", correlation_id="c2"))
        await refusals.note(replace(REFUSED, at=11, reason="queue-full", workflow_id="v"))
    async with open_store(tmp_path) as store:
        refusals = store.refusals
        first, second = await refusals.newest()
        assert (first.count, first.first_at, first.at) == (2, 10, 12)
        assert (first.message, first.correlation_id) == ("still missing", "c2")
        assert (second.reason, second.count) == ("queue-full", 1)
        assert await refusals.newest(workflow_id="v") == [second]
        assert await refusals.newest(limit=1) == [first]
        for number in range(MAX_REFUSALS):
            await refusals.note(replace(REFUSED, trigger=f"g{number}", at=100 + number))
        found = await refusals.newest(limit=2 * MAX_REFUSALS)
        assert len(found) == MAX_REFUSALS
        assert {each.trigger for each in found}.isdisjoint({"f1"})
