"""What calls cost: counted before, during and after, whatever happens, and never past a cap."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import count
from math import inf, nan
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from infloop.application import costs
from infloop.cli.commands.costs import WIDTH, bar, table
from infloop.errors import BudgetError, StepError
from infloop.model.events import BudgetExceeded, RunFinished, StepStarted
from infloop.policy.spending import Budget, Window, used_up, window_start
from infloop.providers.base import AnswerPart, Cost, Done, Request, Text, Usage
from infloop.runtime.clock import SetClock
from infloop.runtime.spending.ledger import Ledger, abandon_dead_calls, window_start_ms
from infloop.runtime.spending.metered_provider import MeteredProvider
from infloop.store.interfaces.ledger import Bill, CallFilter, NewCall, Spending
from infloop.store.interfaces.store import Store
from infloop.store.sqlite.store import DATABASE_FILE
from support import forkserver
from support.children.ledger_caller import CALL_USD, CALLERS, CAP_USD, TURN
from support.eventually import eventually_async
from support.forking import forker
from support.playbook import Playbook
from support.runs import World, scripted, world
from support.stores import store_in
from support.workflows import agent, edges, node, workflow

START = node("s", "start")
END = node("e", "end", outcome="succeeded")
FAR_USD = 1e9
BILLION = 1_000_000_000
PATIENCE = 30.0


# -- a ledger by itself ----------------------------------------------------------------------------


CAPPED = Budget(1_000_000.0)
"""A cap that nothing here reaches: with one, everything is durable at once."""


class Playing:
    """A provider that plays parts, and does what a test wants in between."""

    id = "fake"

    def __init__(self, *parts: AnswerPart | BaseException | Callable[[], Any]) -> None:
        self._parts = parts

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        for part in self._parts:
            if isinstance(part, BaseException):
                raise part
            if callable(part):
                answer = part()
                if asyncio.iscoroutine(answer):
                    await answer
            else:
                yield part


@dataclass
class Books:
    """A ledger, and a second pair of eyes on its table: only what is durable can be seen."""

    folder: Path
    store: Store
    instance: str
    clock: SetClock

    def ledger(self, budget: Budget | None = None) -> Ledger:
        return Ledger(self.store.ledger, self.instance, self.clock, budget or CAPPED)

    def metered(
        self, *parts: Any, budget: Budget | None = None, run_usd: float = 0.0
    ) -> MeteredProvider:
        return MeteredProvider(Playing(*parts), self.ledger(budget), "w", run_usd)

    async def ask(self, *parts: Any, budget: Budget | None = None, **more: Any) -> list[AnswerPart]:
        run_usd = more.pop("run_usd", 0.0)
        provider = self.metered(*parts, budget=budget, run_usd=run_usd)
        return [part async for part in provider.ask(request(**more))]

    def rows(self) -> list[dict[str, Any]]:
        connection = sqlite3.connect(f"file:{self.folder / DATABASE_FILE}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute("SELECT * FROM call ORDER BY id")]
        finally:
            connection.close()

    def row(self) -> dict[str, Any]:
        (row,) = self.rows()
        return row


def request(**more: Any) -> Request:
    return msgspec.structs.replace(
        Request("go", "/", run_id="r", path="a", attempt=2, model="m-1"), **more
    )


@asynccontextmanager
async def books(folder: Path) -> AsyncIterator[Books]:
    clock = SetClock()
    async with store_in(folder, clock.now_ms) as store:
        instance = await store.liveness.register()
        yield Books(folder, store, instance.id, clock)
        await instance.close()


async def test_a_reservation_is_durable_before_the_provider_is_asked(tmp_path: Path) -> None:
    async with books(tmp_path) as here:
        seen: list[dict[str, Any]] = []
        await here.ask(lambda: seen.append(here.row()), Cost(0.5), Done(0))
        (row,) = seen
    assert row == {
        "id": 1, "run": "r", "workflow": "w", "path": "a", "attempt": 2, "provider": "fake",
        "model": "m-1", "kind": "agent", "instance": here.instance,
        "reserved_at": here.clock.now_ms(), "cost": 0, "cost_known": 0, "input_tokens": 0,
        "output_tokens": 0, "cached_tokens": 0, "settled_at": None, "outcome": None,
        "held": 0,
    }  # fmt: skip


async def test_a_cost_is_durable_before_anybody_hears_of_it(tmp_path: Path) -> None:
    async with books(tmp_path) as here:
        parts = here.metered(Cost(0.25), Cost(0.5), Done(0)).ask(request())
        assert await anext(parts) == Cost(0.25)
        assert here.row()["cost"] == 0.25 * BILLION
        assert await anext(parts) == Cost(0.5)
        assert here.row()["cost"] == 0.75 * BILLION
        assert await anext(parts) == Done(0)
        assert (here.row()["outcome"], here.row()["cost_known"]) == ("settled", 1)
        with pytest.raises(StopAsyncIteration):
            await anext(parts)


async def test_tokens_are_durable_while_the_call_goes_on(tmp_path: Path) -> None:
    async with books(tmp_path) as here:

        async def written() -> None:
            await eventually_async(lambda: here.row()["input_tokens"] == 12)

        used = (Usage(10, 5, 3), Usage(2, 1, 1, model="m-2"))
        await here.ask(*used, written, Text("still here"), Done(0))
        row = here.row()
    counted = [row[f"{kind}_tokens"] for kind in ("input", "output", "cached")]
    assert (counted, row["model"]) == ([12, 6, 4], "m-2")


ENDINGS: dict[str, tuple[list[Any], float, bool]] = {
    "it said what it cost": ([Cost(0.5), Done(0)], 0.5, True),
    "it cost nothing and said so": ([Cost(0.0), Done(0)], 0.0, True),
    "it failed and said what it cost": ([Cost(0.5), Done(1, error="no")], 0.5, True),
    "it never said": ([Text("hi"), Done(0)], 0.0, False),
    "it only said tokens": ([Usage(900, 40), Done(0)], 0.0, False),
    "it ended without a result": ([Text("hi")], 0.0, False),
    "it could not be asked at all": ([StepError("no such program")], 0.0, True),
    "it broke after it had begun": ([Text("hi"), StepError("gone")], 0.0, False),
    "it broke after it had cost": ([Cost(0.5), StepError("gone")], 0.5, False),
    "it has a defect": ([ZeroDivisionError()], 0.0, False),
    "it gave money back": ([Cost(0.5), Cost(-0.2), Done(0)], 0.5, False),
    "its cost is no number": ([Cost(nan), Cost(0.5), Done(0)], 0.5, False),
    "its cost is infinite": ([Cost(inf), Done(0)], 0.0, False),
    "its cost is out of all bounds": ([Cost(1e300), Done(0)], 0.0, False),
    "its tokens are out of all bounds": ([Usage(10**30, -5), Cost(0.5), Done(0)], 0.5, True),
    "its model's name is no text": ([Usage(1, 1, model="\ud800"), Cost(0.5), Done(0)], 0.5, True),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_call_is_settled_however_it_ends_and_unknown_is_not_nothing(
    tmp_path: Path, ending: str
) -> None:
    parts, usd, known = ENDINGS[ending]
    async with books(tmp_path) as here:
        with suppress(StepError, ZeroDivisionError):
            await here.ask(*parts)
        spent = await here.store.ledger.total()
        assert (here.row()["outcome"], here.row()["cost"]) == ("settled", usd * BILLION)
    assert (spent.calls, spent.usd, spent.unknown) == (1, usd, 0 if known else 1)
    assert bool(spent.incomplete) != known


@pytest.mark.parametrize("way", ["cancelled", "timed out", "left alone"])
async def test_a_call_that_is_interrupted_is_settled_with_what_it_had_cost(
    tmp_path: Path, way: str
) -> None:
    async with books(tmp_path) as here:
        provider = here.metered(Cost(0.5), Usage(7), Text("hm"), lambda: asyncio.Event().wait())
        heard = asyncio.Event()

        async def listen() -> None:
            async with (
                asyncio.timeout(PATIENCE) as limit,
                aclosing(cast("Any", provider.ask(request()))) as parts,
            ):
                async for part in parts:
                    if isinstance(part, Text):
                        heard.set()
                        if way == "left alone":
                            return
                        if way == "timed out":
                            limit.reschedule(0)

        task = asyncio.create_task(listen())
        await heard.wait()
        if way == "cancelled":
            task.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            await task
        row = here.row()
    assert (row["outcome"], row["cost"], row["cost_known"]) == ("settled", 0.5 * BILLION, 0)
    assert row["input_tokens"] == 7


async def test_a_caller_that_is_cancelled_while_it_reserves_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    async with books(tmp_path) as here:
        asked: list[str] = []
        provider = here.metered(lambda: asked.append("asked"), Done(0))

        async def ask() -> None:
            async for _ in provider.ask(request()):
                pass

        task = asyncio.create_task(ask())
        await asyncio.sleep(0)  # it has handed its reservation in, and waits
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not asked
        spent = await here.store.ledger.total()
    assert (spent.calls, spent.incomplete) == (1, 0)


async def test_sums_are_exact_and_never_go_down(tmp_path: Path) -> None:
    async with books(tmp_path) as here:
        for _ in range(30):
            await here.ask(Cost(0.1), Cost(0.2), Cost(0.0000001), Done(0))
        assert (await here.store.ledger.total()).usd == 9.000003
        await here.store.ledger.charge(1, Bill(0.1, 5))
        await here.store.ledger.settle(1, Bill(0.05, 2), known=True, time=1)
        row = here.rows()[0]
        assert (row["cost"], row["input_tokens"]) == (300_000_100, 5)
        assert (await here.store.ledger.total()).usd == 9.000003


def amounts(rows: list[Spending]) -> dict[str, float]:
    return {row.key: row.usd for row in rows}


# -- caps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "limit", "answer"),
    [(0.0, 0.0, False), (FAR_USD, 0.0, False), (0.0, 1.0, False), (0.999999999, 1.0, False),
     (1.0, 1.0, True), (1.5, 1.0, True)],
)  # fmt: skip
def test_a_cap_is_used_up_when_what_was_spent_reaches_it(
    spent: float, limit: float, answer: bool
) -> None:
    assert used_up(spent, limit) is answer


@pytest.mark.parametrize(
    ("window", "today", "began"),
    [
        ("process", date(2026, 7, 1), None),
        ("day", date(2026, 7, 1), date(2026, 7, 1)),
        ("week", date(2026, 7, 1), date(2026, 6, 29)),
        ("week", date(2026, 6, 29), date(2026, 6, 29)),
        ("week", date(2026, 7, 5), date(2026, 6, 29)),
        ("week", date(2027, 1, 1), date(2026, 12, 28)),
        ("month", date(2026, 7, 31), date(2026, 7, 1)),
        ("month", date(2028, 2, 29), date(2028, 2, 1)),
    ],
)
def test_a_window_begins_with_a_day(window: Window, today: date, began: date | None) -> None:
    assert window_start(window, today) == began


@pytest.mark.parametrize(
    ("zone", "now", "window", "began"),
    [
        ("UTC", "2026-07-01T00:00:00+00:00", "day", "2026-07-01T00:00:00+00:00"),
        ("Europe/Berlin", "2026-07-01T00:30:00+02:00", "day", "2026-07-01T00:00:00+02:00"),
        ("Europe/Berlin", "2026-07-01T00:30:00+02:00", "month", "2026-07-01T00:00:00+02:00"),
        ("America/New_York", "2026-07-01T03:00:00+00:00", "month", "2026-06-01T00:00:00-04:00"),
        # The clock was put forward in the night to Sunday, and back in the other.
        ("Europe/Berlin", "2026-03-29T12:00:00+02:00", "day", "2026-03-29T00:00:00+01:00"),
        ("Europe/Berlin", "2026-03-29T12:00:00+02:00", "week", "2026-03-23T00:00:00+01:00"),
        ("Europe/Berlin", "2026-10-31T12:00:00+01:00", "month", "2026-10-01T00:00:00+02:00"),
    ],
)
def test_a_window_begins_at_local_midnight(
    monkeypatch: pytest.MonkeyPatch, zone: str, now: str, window: Window, began: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        started = window_start_ms(window, in_ms(now))
    time.tzset()
    assert started == in_ms(began)


def in_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


async def test_nothing_more_is_asked_once_the_cap_is_reached(tmp_path: Path) -> None:
    budget = Budget(1.0, "day")
    async with books(tmp_path) as here:
        for _ in range(2):
            await here.ask(Cost(0.5), Done(0), budget=budget)
        asked: list[str] = []
        with pytest.raises(BudgetError, match=r"spent \$1\.0000, and the limit is \$1\.0000"):
            await here.ask(lambda: asked.append("asked"), Done(0), budget=budget)
        with pytest.raises(BudgetError, match="wait for tomorrow or raise"):
            await here.ledger(budget).check_budget()
        assert not asked
        assert (await here.store.ledger.total()).calls == 2


async def test_a_call_in_flight_goes_on_and_a_cap_is_passed_by_no_more_than_that(
    tmp_path: Path,
) -> None:
    budget = Budget(1.0, "day")
    async with books(tmp_path) as here:
        all_asked = asyncio.Barrier(4)
        for _ in range(3):
            await here.ask(Cost(0.3), Done(0), budget=budget)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(here.ask(all_asked.wait, Cost(0.3), Done(0), budget=budget))
        with pytest.raises(BudgetError):
            await here.ask(Done(0), budget=budget)
        assert (await here.store.ledger.total()).usd == 2.1


@pytest.mark.parametrize(
    ("window", "days"), [("day", 1), ("week", 7), ("month", 31), ("process", None)]
)
async def test_a_new_window_begins_with_nothing_spent(
    tmp_path: Path, window: Window, days: int | None
) -> None:
    budget = Budget(1.0, window)
    async with books(tmp_path) as here:
        ledger = here.ledger(budget)
        await here.ask(Cost(1.0), Done(0), budget=budget)
        with pytest.raises(BudgetError):
            await ledger.check_budget()
        here.clock.forward((days or 400) * 86_400_000)
        if days is None:  # time does not matter to it, only another process does
            with pytest.raises(BudgetError):
                await ledger.check_budget()
            here.instance = "another"
        await here.ledger(budget).check_budget()
        await here.ask(Cost(1.0), Done(0), budget=budget)


async def test_a_run_may_not_ask_for_more_than_its_own_cap(tmp_path: Path) -> None:
    async with books(tmp_path) as here:
        await here.ask(Cost(1.0), Done(0), run_usd=1.0)
        with pytest.raises(BudgetError, match=r"the run spent \$1\.0000, interrupted steps incl"):
            await here.ask(Done(0), run_usd=1.0)
        await here.ask(Cost(1.0), Done(0), run_usd=1.0, run_id="another")


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        ([Cost(0.1), Done(0)], ""),
        ([Done(0)], r"'fake' \(m-1\) did not report the cost of a call, and INFLOOP_REQUIRE"),
        ([Usage(5), Done(1, error="boom")], "the cost of a call (it failed: boom)"),
        ([Text("hi")], "it failed: it ended without a result"),
        ([Cost(nan), Done(0)], "did not report"),
    ],
)
async def test_a_call_of_unknown_cost_can_be_refused_once_it_shows(
    tmp_path: Path, parts: list[Any], refused: str
) -> None:
    budget = Budget(require_known_cost=True)
    async with books(tmp_path) as here:
        if not refused:
            await here.ask(*parts, budget=budget)
            return
        with pytest.raises(BudgetError) as raised:
            await here.ask(*parts, budget=budget)
        assert refused.replace("\\", "") in str(raised.value)
        assert here.row()["outcome"] == "settled"


# -- runs ------------------------------------------------------------------------------------------


async def test_agents_judges_and_judging_conditions_are_on_the_books(tmp_path: Path) -> None:
    verdict = '{"winner_index": 0, "scores": [9, 1]}'
    scripted(
        tmp_path / "data/providers", "fake",
        {"node": "a", "do": [{"cost": 0.1}, {"tokens": {"input": 5, "output": 2}}]},
        {"node": "j", "contains": "could not be read", "do": [{"text": verdict}, {"cost": 0.01}]},
        {"node": "j", "do": [{"text": "hm"}, {"cost": 0.02}]},
        {"node": "c", "do": [{"text": "MET"}, {"cost": 0.5}]},
    )  # fmt: skip
    judge = node("j", "judge", providerId="fake", criteria="x", candidates=["one", "two"])
    check = node(
        "c", "condition", kind="judge", against="x", judge={"rubric": "r", "providerId": "fake"}
    )
    tree = workflow([START, agent("a"), judge, check], edges("s next a next j next c"))
    async with world(tmp_path) as here:
        done = await here.run(tree)
        spent = await here.service.store.ledger.total(CallFilter(run_id=done.run_id))
        by_workflow = await here.service.store.ledger.totals("workflow")
    assert done.status == "succeeded", done.result
    assert (spent.calls, spent.usd, spent.incomplete) == (4, 0.63, 0)
    assert (spent.input_tokens, spent.output_tokens) == (5, 2)
    assert amounts(by_workflow) == {"w": 0.63}
    assert kinds(tmp_path) == ["a agent", "j judge", "j judge", "c judge"]


def kinds(tmp_path: Path) -> list[str]:
    connection = sqlite3.connect(tmp_path / "data" / DATABASE_FILE)
    try:
        rows = connection.execute("SELECT path, kind FROM call ORDER BY id").fetchall()
    finally:
        connection.close()
    return [f"{path} {kind}" for path, kind in rows]


async def test_money_stays_spent_when_its_run_is_forgotten_and_is_not_copied_by_a_rewind(
    tmp_path: Path,
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 0.5}]})
    tree = workflow([START, agent("a"), agent("b")], edges("s next a next b"))
    async with world(tmp_path, run_history_limit=1) as here:
        first = await here.run(tree)
        again = await here.service.rewind(first.run_id, "b")
        await here.service.wait(again)
    async with world(tmp_path, run_history_limit=1) as here:
        assert await here.service.store.run_log.count() == 1
        spent = await here.service.store.ledger.totals("run")
    assert amounts(spent) == {first.run_id: 1.0, again: 0.5}


async def test_past_the_cap_no_run_begins_goes_on_or_is_rewound(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 1.5}]})
    tree = workflow([START, agent("a")], edges("s next a"))
    async with world(tmp_path, max_total_cost_usd=1.0) as here:
        done = await here.run(tree)
        assert done.status == "succeeded"
        for refused in (
            here.start(workflow([START, END], edges("s next e"))),
            here.service.resume(done.run_id),
            here.service.rewind(done.run_id, "a"),
        ):
            with pytest.raises(BudgetError, match="all runs of this process together have spent"):
                await refused
        assert await here.service.store.run_log.count() == 1


COSTED = {
    "agent": agent("b"),
    "judge": node("b", "judge", providerId="fake", criteria="x", candidates=["one", "two"]),
    "condition": node(
        "b", "condition", kind="judge", against="x", judge={"rubric": "r", "providerId": "fake"}
    ),
}


@pytest.mark.claim("I50")
@pytest.mark.parametrize("kind", COSTED)
async def test_a_run_under_way_ends_at_its_next_step_that_costs_something(
    tmp_path: Path, kind: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "MET"}, {"cost": 0.6}]})
    wait = 'while [ ! -e go ]; do sleep 0.02; done; echo "{{a.costUsd}}" > seen'
    free = node("free", "condition", kind="command", command={"cmd": wait})
    tree = workflow(
        [START, agent("a"), free, COSTED[kind], agent("rescue"), END],
        edges("s next a next free met b next e", "b met e", "b not_met e", "b error rescue next e"),
    )
    async with world(tmp_path, max_total_cost_usd=1.0) as here:
        run_id = await here.start(tree)
        await begun(here, run_id, "free")
        other = await here.run(workflow([START, agent("a")], edges("s next a"), id="other"))
        assert other.status == "succeeded"
        (here.folder / "go").touch()
        done = await here.finish(run_id)
        spent = await here.service.store.ledger.total()
    assert done.status == "failed"
    assert done.result.error.startswith("budget: all runs of this process together have spent $1.2")
    assert (here.folder / "seen").read_text().strip() == "0.6"
    assert [type(event) for event in done.events].count(BudgetExceeded) == 1
    assert not any(isinstance(e, StepStarted) and e.path == "rescue" for e in done.events)
    assert (spent.calls, spent.usd) == (2, 1.2)


async def begun(here: World, run_id: str, path: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for batch in here.service.listen(run_id):
            if any(isinstance(r.event, StepStarted) and r.event.path == path for r in batch):
                return


@pytest.mark.parametrize(("window", "goes_on"), [("process", True), ("month", False)])
async def test_a_restart_begins_the_count_anew_only_for_the_process_window(
    tmp_path: Path, window: Window, goes_on: bool
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 1.0}]})
    tree = workflow([START, agent("a")], edges("s next a"))
    settings: dict[str, Any] = {"max_total_cost_usd": 1.0, "cost_window": window}
    async with world(tmp_path, **settings) as here:
        await here.run(tree)
    async with world(tmp_path, **settings) as here:
        if goes_on:
            assert (await here.run(tree)).status == "succeeded"
        else:
            with pytest.raises(BudgetError, match="all runs of this month together"):
                await here.run(tree)


@pytest.mark.parametrize(("window", "status"), [("process", "succeeded"), ("month", "failed")])
async def test_another_process_counts_only_where_the_window_is_shared(
    tmp_path: Path, window: Window, status: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 0.6}]})
    settings: dict[str, Any] = {"max_total_cost_usd": 1.0, "cost_window": window}
    twice = workflow([START, agent("a"), agent("b")], edges("s next a next b"))
    async with world(tmp_path, **settings) as one, world(tmp_path, **settings) as two:
        await one.run(workflow([START, agent("a")], edges("s next a")))
        assert (await two.run(twice)).status == status


async def test_an_attempt_that_a_crash_cut_off_counts_towards_the_runs_own_limit(
    tmp_path: Path,
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 0.9}, {"delayMs": 600_000}]})
    tree = workflow([START, agent("a"), agent("b")], edges("s next a next b"))

    async def paid(here: World, usd: float) -> None:
        async def is_spent() -> bool:
            return (await here.service.store.ledger.total()).usd >= usd

        await eventually_async(is_spent)

    async with world(tmp_path, max_run_cost_usd=1.5) as here:
        run_id = await here.start(tree)
        await paid(here, 0.9)
    async with world(tmp_path, max_run_cost_usd=1.5) as here:
        await here.service.resume(run_id)
        await paid(here, 1.8)
    async with world(tmp_path, max_run_cost_usd=1.5) as here:
        await here.service.resume(run_id)
        finished = await here.service.wait(run_id)
    assert finished.status == "failed"
    assert "the run spent $1.8000, interrupted steps included" in finished.error


async def test_a_run_fails_when_an_agent_does_not_say_what_it_cost_and_it_must(
    tmp_path: Path,
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "hm"}]})
    tree = workflow([START, agent("a"), END], edges("s next a next e", "a error e"))
    async with world(tmp_path, require_known_cost=True) as here:
        strict = await here.run(tree)
    async with world(tmp_path) as here:
        lenient = await here.run(tree)
    assert strict.status == "failed"
    assert "provider 'fake' did not report the cost of a call" in strict.result.error
    assert strict.said() == "hm"
    assert lenient.status == "succeeded"


def test_a_refused_step_ends_every_branch_and_replays_to_the_same_state() -> None:
    team = node("p", "parallel", [agent("one"), agent("two")])
    play = Playbook(
        workflow([START, team, END], edges("s next p all_done e", "p error e"))
    ).settle()
    assert set(play.waiting) == {"p{one}/one", "p{two}/two"}
    play.record(BudgetExceeded("budget: enough"))
    play.settle()
    assert play.result == RunFinished("failed", "budget: enough")
    assert set(play.interrupted) == {"p{one}/one", "p{two}/two"}


async def test_an_open_call_is_closed_as_it_is_once_its_process_is_found_dead(
    tmp_path: Path,
) -> None:
    async with books(tmp_path) as here:
        for instance in ("i-dead", here.instance):
            call = NewCall("r", "w", "a", 1, "p", "", "agent", instance, here.clock.now_ms())
            made = await here.store.ledger.reserve(call)
            assert isinstance(made, int)
            await here.store.ledger.charge(made, Bill(0.5))
        before = await here.store.ledger.total()
        await abandon_dead_calls(here.store.ledger, here.store.liveness, here.clock)
        after = await here.store.ledger.total()
        assert [row["outcome"] for row in here.rows()] == ["abandoned", None]
        # It was only frozen, wakes up, and what it has spent meanwhile counts too.
        await here.store.ledger.settle(1, Bill(0.7), known=True, time=here.clock.now_ms())
        awake = await here.store.ledger.total()
    assert (before.usd, before.open, before.abandoned) == (1.0, 2, 0)
    assert (after.usd, after.open, after.abandoned, after.incomplete) == (1.0, 1, 1, 2)
    assert (awake.usd, awake.incomplete) == (1.2, 1)


async def test_a_start_after_a_crash_closes_the_calls_of_the_dead(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        ledger = here.service.store.ledger
        for instance in ("i-dead", here.service.instance.id):
            made = await ledger.reserve(NewCall("r", "w", "a", 1, "p", "", "agent", instance, 1))
            assert isinstance(made, int)
        await here.service.recover()
        spent = await ledger.total()
    assert (spent.open, spent.abandoned) == (1, 1)


# -- kill -9 ---------------------------------------------------------------------------------------

KILLS = 10
"""At least; on a quiet machine there are many more."""


@dataclass
class Heard:
    """What the killed processes said before they died."""

    asked: set[str] = field(default_factory=set)
    costs: dict[str, float] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)

    def hear(self, words: list[str]) -> None:
        match words:
            case ["asked", path]:
                self.asked.add(path)
            case ["heard", path, usd]:
                self.costs[path] = self.costs.get(path, 0.0) + float(usd)
            case ["finished", path]:
                self.finished.add(path)


async def test_killed_at_random_points_over_a_thousand_calls_no_money_is_lost_or_made_up(
    tmp_path: Path,
) -> None:
    (tmp_path / "fake.turns.json").write_text(json.dumps({"turns": [TURN]}))
    chance = random.Random(7)
    heard = Heard()
    total = 0.0
    with forker("ledger_caller.py", tmp_path) as children:
        for number in count():
            all_is_spent = children.run(number, chance.randint(1, 80), heard.hear)
            total = never_less(total, tmp_path)
            if all_is_spent:
                break
    assert children.kills >= KILLS
    async with books(tmp_path) as here:
        rows = {row["path"]: row for row in here.rows()}
        spent = await here.store.ledger.total()
    assert len(rows) >= 1000
    assert heard.asked <= set(rows), "a provider was asked without a reservation"
    for path, row in rows.items():
        assert row["cost"] in (0, 0.01 * BILLION, CALL_USD * BILLION)
        assert row["cost"] >= round(heard.costs.get(path, 0.0) * BILLION), path
        if path in heard.finished:
            assert (row["outcome"], row["cost_known"]) == ("settled", 1)
            assert row["cost"] == CALL_USD * BILLION
    cut_off = [row["cost"] / BILLION for path, row in rows.items() if path not in heard.finished]
    assert spent.usd == pytest.approx(len(heard.finished) * CALL_USD + sum(cut_off), abs=1e-9)
    assert (spent.open, spent.unknown) == (0, 0)
    assert spent.abandoned > 0
    assert CAP_USD <= spent.usd < CAP_USD + CALLERS * CALL_USD


def never_less(before: float, folder: Path) -> float:
    connection = sqlite3.connect(f"file:{folder / DATABASE_FILE}?mode=ro", uri=True)
    try:
        now: float = connection.execute("SELECT total(cost) FROM call").fetchone()[0] / BILLION
    except sqlite3.OperationalError:  # killed before it had made the table
        now = 0.0
    finally:
        connection.close()
    assert now >= before
    return now


# -- infloop costs ---------------------------------------------------------------------------------


def infloop(
    tmp_path: Path, *arguments: str, code: int = 0, env: dict[str, str] | None = None
) -> str:
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "INFLOOP_DATA_DIR": str(tmp_path / "data"),
        **(env or {}),
    }
    done = forkserver.run(arguments, tmp_path, variables, 60)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


async def some_history(tmp_path: Path) -> list[str]:
    """Two workflows, two providers, one of which does not say what it costs."""
    cheap = {"do": [{"cost": 0.25}, {"tokens": {"input": 1500, "output": 20}}]}
    scripted(tmp_path / "data/providers", "cheap", cheap)
    scripted(tmp_path / "data/providers", "silent", {"do": [{"text": "hm"}]})

    def asks(*providers: str) -> dict[str, Any]:
        asked = [
            node(f"a{n}", "agent", providerId=name, prompt="x") for n, name in enumerate(providers)
        ]
        chain = " next ".join(["s", *(each["id"] for each in asked)])
        return workflow([START, *asked], edges(chain), id=f"ask-{'-'.join(providers)}")

    async with world(tmp_path) as here:
        return [
            (await here.run(asks("cheap", "cheap"))).run_id,
            (await here.run(asks("cheap", "silent"))).run_id,
        ]


async def test_costs_are_printed_as_a_table_with_bars(tmp_path: Path) -> None:
    runs = await some_history(tmp_path)
    by_workflow = infloop(tmp_path, "costs", "--by", "workflow").splitlines()
    assert [line.split() for line in by_workflow] == [
        ["workflow", "calls", "tok", "in", "tok", "out", "cost"],
        ["ask-cheap-cheap", "2", "3.0k", "40", "$0.50", "█" * 30],
        ["ask-cheap-silent", "2", "1.5k", "20", "$0.25", "+", "█" * 15],
        ["total", "4", "4.5k", "60", "$0.75", "+"],
        [],
        ["+", "incomplete:"],
        ["1", "call", "did", "not", "report", "its", "cost"],
    ]
    by_run = infloop(tmp_path, "costs", "--by", "run")
    assert [line.split()[0] for line in by_run.splitlines()[1:3]] == [run[:8] for run in runs]
    by_provider = infloop(tmp_path, "costs", "--by", "provider")
    assert [line.split()[:2] for line in by_provider.splitlines()[1:3]] == [
        ["cheap", "3"],
        ["silent", "1"],
    ]
    by_day = infloop(tmp_path, "costs").splitlines()
    assert date.fromisoformat(by_day[1].split()[0]) <= datetime.now(UTC).astimezone().date()


async def test_costs_are_printed_for_programs(tmp_path: Path) -> None:
    await some_history(tmp_path)
    printed = json.loads(infloop(tmp_path, "costs", "--by", "provider", "--json"))
    assert printed["by"] == "provider"
    assert printed["rows"][1] == {
        "key": "silent", "calls": 1, "costUsd": 0.0, "complete": False, "unknown": 1, "open": 0,
        "abandoned": 0, "tokens": {"input": 0, "output": 0, "cached": 0},
    }  # fmt: skip
    assert (printed["total"]["costUsd"], printed["total"]["complete"]) == (0.75, False)
    later = infloop(tmp_path, "costs", "--since", "2999-01-01", "--json")
    assert json.loads(later)["rows"] == []
    since = infloop(tmp_path, "costs", "--since", "2020-01-01", "--json")
    assert json.loads(since)["total"]["calls"] == 4


async def test_costs_say_how_much_is_left(tmp_path: Path) -> None:
    await some_history(tmp_path)
    limit = {"INFLOOP_MAX_TOTAL_COST_USD": "5", "INFLOOP_COST_WINDOW": "month"}
    assert "limit $5.00 a month: $4.25 left" in infloop(tmp_path, "costs", env=limit)
    limit["INFLOOP_COST_WINDOW"] = "process"
    assert "limit" not in infloop(tmp_path, "costs", env=limit)


def test_costs_of_nothing_are_nothing(tmp_path: Path) -> None:
    assert infloop(tmp_path, "costs") == ""
    assert json.loads(infloop(tmp_path, "costs", "--json"))["total"]["calls"] == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "0001-01-01", "9999-12-31", ""])
def test_a_date_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    assert "is not a date such as 2026-07-01" in infloop(tmp_path, "costs", "--since", text, code=2)


def test_a_run_that_may_not_begin_says_why(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 2.0}]})
    file = tmp_path / "w.workflow.json"
    file.write_text(json.dumps(workflow([START, agent("a")], edges("s next a"))))
    env = {"INFLOOP_MAX_TOTAL_COST_USD": "1", "INFLOOP_COST_WINDOW": "month"}
    infloop(tmp_path, "run", str(file), env=env)
    said = infloop(tmp_path, "run", str(file), code=2, env=env)
    assert "infloop: budget: all runs of this month together have spent $2.0000" in said


@pytest.mark.parametrize(
    ("share", "width", "drawn"),
    [(0.0, 10, ""), (0.001, 10, "▏"), (0.5, 10, "█" * 5), (0.25, 10, "██▌"), (1.0, 10, "█" * 10)],
)
def test_a_bar_shows_a_share(share: float, width: int, drawn: str) -> None:
    assert bar(share, width) == drawn


def test_a_table_fits_on_a_terminal() -> None:
    def row(key: str) -> costs.Cost:
        return costs.Cost(
            key=key,
            calls=123_456,
            cost_usd=98_765.4321,
            complete=False,
            unknown=1,
            open=1,
            abandoned=1,
            tokens=costs.Tokens(input=10**12, output=10**12, cached=0),
        )

    lines = list(table("workflow", [row("w" * 200), row("\x1b[2J")], row("")))
    assert max(map(len, lines)) <= WIDTH
    assert not any("\x1b" in line for line in lines)
    assert all("█" in line for line in lines[1:3])


async def test_without_a_cap_a_call_is_on_the_books_when_its_step_ends(
    tmp_path: Path,
) -> None:
    turn = {"do": [{"cost": 0.5}, {"tokens": {"input": 3, "output": 2}}, {"text": "hi"}]}
    scripted(tmp_path / "data/providers", "fake", turn)
    tree = workflow([node("s", "start"), agent("a")], edges("s next a"))
    async with world(tmp_path) as here:
        done = await here.run(tree)
        assert done.status == "succeeded"
        spent = await here.service.store.ledger.total(CallFilter(run_id=done.run_id))
    assert (spent.calls, spent.usd, spent.input_tokens, spent.open) == (1, 0.5, 3, 0)


# -- exactly the limit, and what is not money ------------------------------------------------------


@pytest.mark.claim("I48")
@pytest.mark.parametrize("cap", ["max_run_cost_usd", "max_total_cost_usd"])
@pytest.mark.parametrize("on_budget", ["fail", "pause"])
async def test_a_run_may_spend_exactly_its_limit_and_then_nothing_more(
    tmp_path: Path, on_budget: str, cap: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 0.25}]})
    more = workflow([START, agent("a"), agent("b"), END], edges("s next a next b next e"))
    once = workflow([START, agent("a"), END], edges("s next a next e"))
    pausing = {"onBudget": on_budget}
    async with world(tmp_path, snapshots=False, **{cap: 0.25}) as here:
        ended = await here.run({**once, **pausing})
    assert ended.status == "succeeded", ended.result
    (tmp_path / "again").mkdir()
    scripted(tmp_path / "again/data/providers", "fake", {"do": [{"cost": 0.25}]})
    async with world(tmp_path / "again", snapshots=False, **{cap: 0.25}) as here:
        ended = await here.run({**more, **pausing})
        spent = await here.settled(1)
    assert ended.status == {"fail": "failed", "pause": "paused"}[on_budget]
    assert "$0.2500" in ended.result.error
    assert (spent.calls, spent.usd) == (1, 0.25)


@pytest.mark.parametrize("value", ["5", "5.0", "'5'", "-5", "1e300"])
async def test_what_a_script_calls_its_cost_is_not_money(tmp_path: Path, value: str) -> None:
    code = f"def run():\n    return {{'costUsd': {value}, 'tokens': {{'input': 9}}}}\n"
    script = node("n", "script", language="py", code=code, outputs=["costUsd", "tokens"])
    tree = workflow([START, script, {**script, "id": "m"}, END], edges("s next n next m next e"))
    async with world(tmp_path, snapshots=False, max_run_cost_usd=1.0) as here:
        ended = await here.run(tree)
        spent = await here.service.store.ledger.total()
    assert ended.status == "succeeded", ended.result
    assert ended.scope["n"]["costUsd"], "it is an output as any other"
    assert (spent.calls, spent.usd) == (0, 0.0)
