"""The contract of every ledger: calls are counted once, exactly, and caps hold."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infloop.errors import NotFound
from infloop.store.interfaces.ledger import (
    Bill,
    CallFilter,
    Cap,
    CapReached,
    NewCall,
    Spending,
)
from infloop.store.interfaces.store import Store
from support.stores import NOW, OpenStore, start_child

CALL = NewCall(
    run_id="r1",
    workflow_id="w",
    path="a",
    attempt=1,
    provider="fake",
    model="m-1",
    kind="agent",
    instance="me",
    reserved_at=NOW,
)
DAY_MS = 86_400_000
ALL = CallFilter()


def call(**changes: Any) -> NewCall:
    return msgspec.structs.replace(CALL, **changes)


async def reserved(store: Store, **changes: Any) -> int:
    made = await store.ledger.reserve(call(**changes))
    assert isinstance(made, int)
    return made


def spending(
    usd: float = 0.0,
    tokens: tuple[int, int, int] = (0, 0, 0),
    open: int = 0,
) -> Spending:
    """Return what one call cost; `tokens` are input, output and cached."""
    used = dict(zip(("input_tokens", "output_tokens", "cached_tokens"), tokens, strict=True))
    return Spending(key="", calls=1, usd=usd, unknown=0, open=open, abandoned=0, **used)


def amounts(rows: list[Spending]) -> dict[str, float]:
    return {row.key: row.usd for row in rows}


async def test_a_call_is_open_until_it_is_settled(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        made = await reserved(store)
        assert await store.ledger.total() == spending(open=1)
        assert await store.ledger.owners() == ["me"]
        await store.ledger.charge(made, Bill(0.25, 10, 5, 3))
        assert await store.ledger.total() == spending(0.25, (10, 5, 3), open=1)
        await store.ledger.settle(made, Bill(0.5, 12, 6, 4), known=True, time=NOW + 1)
        assert await store.ledger.total() == spending(0.5, (12, 6, 4))
        assert await store.ledger.owners() == []


async def test_a_call_that_did_not_report_its_full_cost_is_counted_as_unknown(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.ledger.settle(await reserved(store), Bill(0.1), known=False, time=NOW)
        total = await store.ledger.total()
        assert (total.usd, total.unknown, total.incomplete) == (0.1, 1, 1)


async def test_sums_are_exact_and_amounts_never_go_down(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for _ in range(30):
            await store.ledger.charge(await reserved(store), Bill(0.3000001))
        assert (await store.ledger.total()).usd == 9.000003
        made = await reserved(store, run_id="r2")
        await store.ledger.charge(made, Bill(0.3, 5))
        await store.ledger.settle(made, Bill(0.05, 2), known=True, time=NOW)
        spent = await store.ledger.total(CallFilter(run_id="r2"))
        assert (spent.usd, spent.input_tokens) == (0.3, 5)


async def test_a_call_that_is_not_in_the_ledger_cannot_be_charged(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        with pytest.raises(NotFound, match="no call 7"):
            await store.ledger.charge(7, Bill(1.0))


async def test_calls_are_grouped_by_day_workflow_provider_and_run(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for day, workflow_id, provider, run_id, usd in (
            (0, "w1", "p1", "r1", 1.0),
            (0, "w1", "p2", "r2", 2.0),
            (3, "w2", "p1", "r3", 4.0),
        ):
            made = await reserved(
                store,
                run_id=run_id,
                workflow_id=workflow_id,
                provider=provider,
                reserved_at=NOW + day * DAY_MS,
            )
            await store.ledger.settle(made, Bill(usd), known=True, time=NOW)
        days = [
            str(datetime.fromtimestamp((NOW + day * DAY_MS) / 1000, UTC).astimezone().date())
            for day in (0, 3)
        ]
        ledger, later = store.ledger, CallFilter(since=NOW + DAY_MS)
        assert amounts(await ledger.totals("day")) == dict(zip(days, (3.0, 4.0), strict=True))
        assert amounts(await ledger.totals("workflow")) == {"w1": 3.0, "w2": 4.0}
        assert amounts(await ledger.totals("provider")) == {"p1": 5.0, "p2": 2.0}
        assert amounts(await ledger.totals("run")) == {"r1": 1.0, "r2": 2.0, "r3": 4.0}
        assert amounts(await ledger.totals("workflow", later)) == {"w2": 4.0}
        some = CallFilter(run_ids=("r1", "r3", "r9"))
        assert amounts(await ledger.totals("run", some)) == {"r1": 1.0, "r3": 4.0}
        assert (await ledger.total(CallFilter(run_id="r2"))).usd == 2.0
        assert amounts(await ledger.totals("run", CallFilter(workflow_id="w2"))) == {"r3": 4.0}
        assert (await ledger.total(CallFilter(instance="another"))).calls == 0


async def test_a_used_up_cap_refuses_the_call_and_says_what_was_spent(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        of_run, of_all = Cap(CallFilter(run_id="r1"), 1.0), Cap(ALL, 0.0)
        made = await store.ledger.reserve(call(), [of_all, of_run])
        assert isinstance(made, int)
        await store.ledger.charge(made, Bill(1.25))
        assert await store.ledger.reserve(call(), [of_all, of_run]) == CapReached(of_run, 1.25)
        assert isinstance(await store.ledger.reserve(call(run_id="r2"), [of_all]), int)
        assert (await store.ledger.total()).calls == 2


async def test_a_cap_holds_for_all_processes_together(
    open_store: OpenStore, tmp_path: Path
) -> None:
    cap = Cap(ALL, 1.0)

    async def spend(store: Store) -> int:
        count = 0
        while isinstance(made := await store.ledger.reserve(call(), [cap]), int):
            await store.ledger.settle(made, Bill(0.25), known=True, time=NOW)
            count += 1
        return count

    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        made = await asyncio.gather(spend(store), spend(other))
        assert 4 <= sum(made) <= 5, "at most one call of the other may be under way"
        assert (await store.ledger.total()).calls == sum(made)


async def test_money_that_is_held_counts_for_a_cap_until_it_is_released(
    open_store: OpenStore, tmp_path: Path
) -> None:
    of_run, of_all = Cap(CallFilter(run_id="r1"), 1.0), Cap(ALL, 2.0)
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        made, second = await reserved(store), await reserved(other, instance="other")
        assert await store.ledger.hold(made, 0.75, [of_all, of_run]) is None
        assert await other.ledger.hold(second, 0.75, [of_all, of_run]) is None
        full = CapReached(of_run, 0.0, 1.5)
        assert await store.ledger.hold(made, 0.01, [of_all, of_run]) == full
        assert await store.ledger.reserve(call(), [of_run], 0.01) == full
        assert isinstance(await store.ledger.reserve(call(), [of_run]), int), "it holds nothing"
        third = await store.ledger.reserve(call(run_id="r2"), [of_all], 0.75)
        assert isinstance(third, int)
        await store.ledger.settle(third, Bill(0.25), known=True, time=NOW)
        await store.ledger.charge(made, Bill(0.5), 0.75)
        assert await other.ledger.hold(second, 0.25, [of_all, of_run]) == CapReached(
            of_run, 0.5, 0.75
        )
        await other.ledger.settle(second, Bill(0.1), known=True, time=NOW)
        assert await store.ledger.hold(made, 5.0, [of_all, of_run]) is None
        await store.ledger.charge(made, Bill(1.0))
        spent = CapReached(of_run, 1.1)
        assert await store.ledger.hold(made, 0.01, [of_all, of_run]) == spent
        assert (await store.ledger.total()).usd == pytest.approx(1.35)


async def test_a_cap_that_is_spent_goes_before_one_that_is_held(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        held, spent = Cap(ALL, 1.0), Cap(CallFilter(run_id="r1"), 0.5)
        made = await store.ledger.reserve(call(run_id="r2"), [], 5.0)
        assert isinstance(made, int)
        await store.ledger.charge(await reserved(store), Bill(0.5))
        assert await store.ledger.reserve(call(), [held, spent], 0.1) == CapReached(spent, 0.5)


async def test_an_ended_call_holds_nothing_and_cannot_hold_more(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        made = await reserved(store)
        assert await store.ledger.hold(made, 5.0, []) is None
        await store.ledger.settle(made, Bill(0.5), known=True, time=NOW)
        assert isinstance(await store.ledger.reserve(call(), [Cap(ALL, 1.0)], 0.1), int)
        with pytest.raises(NotFound, match="no open call"):
            await store.ledger.hold(made, 0.1, [])


HOLDING_CHILD = """
from infloop.store.interfaces.ledger import Bill, NewCall

async def main():
    async with open_store(folder) as store:
        made = await store.ledger.reserve(NewCall("r1", "w", "a", 1, "fake", "", "agent", "me", 1))
        await store.ledger.charge(made, Bill(0.25))
        await store.ledger.hold(made, 0.5, [])
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_killed_process_held_is_not_lost(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    with start_child(HOLDING_CHILD, implementation, tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        child.kill()
    cap = Cap(ALL, 0.7)
    async with open_store(tmp_path) as store:
        assert await store.ledger.reserve(call(), [cap], 0.1) == CapReached(cap, 0.25, 0.5)
        assert await store.ledger.abandon("me", NOW) == 1
        assert (await store.ledger.total()).usd == 0.75
        assert await store.ledger.reserve(call(), [cap], 0.1) == CapReached(cap, 0.75)


async def test_the_open_calls_of_a_dead_process_are_closed_as_they_are(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for instance in ("dead", "dead", "alive"):
            await store.ledger.charge(await reserved(store, instance=instance), Bill(0.5))
        await store.ledger.settle(
            await reserved(store, instance="dead"), Bill(1.0), known=True, time=NOW
        )
        assert sorted(await store.ledger.owners()) == ["alive", "dead"]
        assert await store.ledger.abandon("dead", NOW) == 2
        assert await store.ledger.abandon("dead", NOW) == 0
        assert await store.ledger.owners() == ["alive"]
        spent = await store.ledger.total(CallFilter(instance="dead"))
        assert (spent.usd, spent.open, spent.abandoned, spent.incomplete) == (2.0, 0, 2, 2)


async def test_a_tracked_call_is_counted_once_however_often_it_is_charged(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        tracked = store.ledger.track(call())
        assert await store.ledger.owners() == ["me"]
        tracked.charge(Bill(0.0, 3))
        tracked.charge(Bill(0.25, 7, model="m-2"))
        assert (await store.ledger.total()).usd == 0.25
        tracked.charge(Bill(0.5, 9))
        tracked.settle(Bill(0.75, 9), known=True, time=NOW)
        assert await store.ledger.total() == spending(0.75, (9, 0, 0))
    async with open_store(tmp_path) as store:
        assert await store.ledger.total() == spending(0.75, (9, 0, 0))


async def test_many_tracked_calls_are_each_counted_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async def make(store: Store, number: int) -> None:
        tracked = store.ledger.track(call(run_id=f"r{number}"))
        for cents in range(1, 6):
            tracked.charge(Bill(cents / 100, cents))
            await asyncio.sleep(0)
            if cents % 2:
                await store.ledger.reserve(call(run_id="other", instance="other"))
        tracked.settle(Bill(0.06, 6), known=True, time=NOW)

    async with open_store(tmp_path) as store:
        await asyncio.gather(*(make(store, number) for number in range(40)))
        spent = await store.ledger.total(CallFilter(instance="me"))
        assert (spent.calls, spent.usd, spent.input_tokens) == (40, 2.4, 240)
        assert spent.incomplete == 0
        assert {row.calls for row in await store.ledger.totals("run")} == {1, 120}


async def test_closing_writes_what_is_tracked(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        store.ledger.track(call()).charge(Bill(0.25))
    async with open_store(tmp_path) as store:
        spent = await store.ledger.total()
        assert (spent.usd, spent.open) == (0.25, 1)


SPENDING_CHILD = """
from infloop.store.interfaces.ledger import Bill, NewCall
from support.stores import at, new_run, passed, started

async def main():
    async with open_store(folder) as store:
        await store.run_log.create_run(new_run(), started())
        tracked = store.ledger.track(NewCall("r1", "w", "a", 1, "fake", "", "agent", "me", 1))
        seq = 1
        while True:
            tracked.charge(Bill(float(seq), seq))
            seq += 1
            await store.run_log.append("r1", 1, [at(seq, passed())])
            print(seq - 1, flush=True)

asyncio.run(main())
"""


async def test_tracked_money_is_durable_with_the_next_append(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    with start_child(SPENDING_CHILD, implementation, tmp_path) as child:
        assert child.stdout is not None
        for _ in range(20):
            assert child.stdout.readline()
        child.kill()
    async with open_store(tmp_path) as store:
        spent = await store.ledger.total()
        assert spent.usd >= 20
        assert (spent.calls, spent.open) == (1, 1)
