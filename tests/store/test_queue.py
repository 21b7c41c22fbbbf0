"""What every run queue promises: each acknowledged entry becomes one run, in order."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import Cause, Recorded, RunFinished, RunStarted
from infloop.store.base import Journal, NewRun, definition_hash
from infloop.store.instances import Instances
from infloop.store.queue import (
    REMEMBERED_MS,
    Full,
    Queue,
    Queued,
    QueuedRun,
    QueueEntry,
    return_from_the_dead,
)
from infloop.store.sqlite.journal import JOURNAL_FILE, open_journal
from support.forking import forker

NOW = 1_700_000_000_000
DEFINITION = b'{"id":"w"}'


@dataclass(frozen=True)
class Store:
    """A queue and the journal that its entries become runs in."""

    queue: Queue
    journal: Journal


class Opening(Protocol):
    def __call__(self, folder: Path) -> AbstractAsyncContextManager[Store]: ...


@asynccontextmanager
async def sqlite_store(folder: Path) -> AsyncIterator[Store]:
    async with await open_journal(folder, synchronous="NORMAL") as journal:
        yield Store(journal.queue, journal)


# Tests that take `opening` are the contract: they run against every implementation.
every_queue = pytest.mark.parametrize("opening", [pytest.param(sqlite_store, id="sqlite")])


def run(name: str, **changes: Any) -> QueuedRun:
    return replace(QueuedRun(name, f"run-{name}", "w", {"n": name}, "cid_1", NOW), **changes)


async def put(store: Store, *names: str, limit: int = 100, **changes: Any) -> list[int]:
    """Add entries; return their positions."""
    answers = [await store.queue.put(run(name, **changes), limit=limit) for name in names]
    assert all(isinstance(answer, Queued) for answer in answers)
    return [answer.position for answer in answers if isinstance(answer, Queued)]


async def take_all(store: Store, owner: str = "me") -> list[str]:
    taken: list[str] = []
    while entry := await store.queue.take(owner):
        taken.append(entry.run.id)
    return taken


async def waiting(store: Store) -> list[str]:
    return [entry.run.id for entry in await store.queue.entries() if entry.state == "waiting"]


def to_start(entry: QueueEntry, owner: str = "me") -> tuple[str, NewRun, Recorded]:
    """What `start` takes."""
    queued = entry.run
    event = RunStarted(
        "w", "W", definition_hash(DEFINITION), queued.inputs, "/", cause=queued.cause
    )
    new = NewRun(
        queued.run_id, "w", "W", DEFINITION, owner, NOW, queued.correlation_id, queued.cause
    )
    return queued.id, new, Recorded(queued.run_id, 1, NOW, queued.correlation_id, event)


async def taken(store: Store, owner: str = "me") -> QueueEntry:
    entry = await store.queue.take(owner)
    assert entry is not None
    return entry


# -- order -----------------------------------------------------------------------------------------


@every_queue
async def test_several_are_handed_out_together_as_far_as_there_is_room(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b", "c", workflow_id="two")
        await put(store, "d", "e", workflow_id="unknown")
        await put(store, "f", workflow_id="full")
        await put(store, "g", "h", workflow_id="many")
        room = {"two": 2, "full": 0, "many": 9}
        entries = await store.queue.take_some("me", 4, room=room)
        assert [entry.run.id for entry in entries] == ["a", "b", "d", "g"]
        assert {entry.state for entry in entries} == {"taken"}
        assert await waiting(store) == ["c", "e", "f", "h"]
        assert await store.queue.take_some("me", 0, room={}) == []


@every_queue
async def test_the_first_come_first_and_each_is_told_its_place(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        assert await put(store, "a", "b", "c") == [1, 2, 3]
        assert await take_all(store) == ["a", "b", "c"]


@every_queue
async def test_a_higher_priority_goes_first_and_pushes_nobody_aside_within_it(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        assert await put(store, "a", "b") == [1, 2]
        assert await put(store, "x", "y", priority=5) == [1, 2]
        assert await put(store, "low", priority=-1) == [5]
        assert await put(store, "c") == [5]
        listed = [(entry.run.id, entry.position) for entry in await store.queue.entries()]
        assert listed == [("x", 1), ("y", 2), ("a", 3), ("b", 4), ("c", 5), ("low", 6)]
        assert (await store.queue.entry("low")).position == 6
        assert await take_all(store) == ["x", "y", "a", "b", "c", "low"]


@every_queue
async def test_an_entry_comes_out_as_it_went_in(opening: Opening, tmp_path: Path) -> None:
    whole = QueuedRun(
        "q",
        "run-q",
        "build",
        {"text": "ü\n\x00", "number": 1.5, "list": [None, {"deep": True}]},
        "cid_7",
        NOW,
        Cause("webhook", "trigger"),
        3,
        "delivery-1",
        {"workdir": "/x", "untrusted": ["text"]},
    )
    async with opening(tmp_path) as store:
        await store.queue.put(whole, limit=1)
        assert await store.queue.entry("q") == QueueEntry(whole, "waiting", 1)
        assert await taken(store) == QueueEntry(whole, "taken", 0, "me")
        assert await store.queue.entries() == [QueueEntry(whole, "taken", 0, "me")]


@every_queue
async def test_half_characters_do_not_stop_the_queue(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        odd = run("a", inputs={"x": "\ud800"}, idempotency_key="k\ud800")
        assert await store.queue.put(odd, limit=1) == Queued("a", "run-a", 1)
        assert await store.queue.put(odd, limit=1) == Queued("a", "run-a", 1, repeated=True)
        assert (await taken(store)).run.inputs == {"x": "?"}


@every_queue
async def test_workflows_that_have_enough_runs_are_passed_over(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b", workflow_id="busy")
        await put(store, "c", workflow_id="free")
        entry = await store.queue.take("me", passing_over=["busy", "other"])
        assert entry is not None
        assert entry.run.id == "c"
        assert await store.queue.take("me", passing_over={"busy"}) is None
        assert await take_all(store) == ["a", "b"]


@every_queue
async def test_what_was_acknowledged_is_there_after_a_restart(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b")
    async with opening(tmp_path) as store:
        assert await put(store, "c") == [3]
        assert await take_all(store) == ["a", "b", "c"]


# -- the limit -------------------------------------------------------------------------------------


@every_queue
async def test_the_entry_beyond_the_limit_is_refused(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        assert await put(store, *map(str, range(100))) == list(range(1, 101))
        assert await store.queue.put(run("more"), limit=100) == Full(100)
        assert await store.queue.count() == 100
        with pytest.raises(NotFound):
            await store.queue.entry("more")


@every_queue
async def test_an_entry_counts_until_its_run_exists(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b", limit=2)
        entry = await taken(store)
        assert await store.queue.put(run("c"), limit=2) == Full(2)
        await store.queue.start(*to_start(entry))
        assert await put(store, "c", limit=2) == [2]
        assert await store.queue.put(run("d"), limit=2) == Full(2)
        await store.queue.remove("c")
        assert await put(store, "d", limit=2) == [2]


@every_queue
async def test_many_who_add_at_once_never_exceed_the_limit(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as first, opening(tmp_path) as second:
        adding = [
            store.queue.put(run(f"{which}-{number}"), limit=10)
            for number in range(40)
            for which, store in enumerate((first, second))
        ]
        answers = await asyncio.gather(*adding)
        assert [type(answer) for answer in answers].count(Queued) == 10
        assert await first.queue.count() == 10
        positions = [answer.position for answer in answers if isinstance(answer, Queued)]
        assert sorted(positions) == list(range(1, 11))


FILLING_CHILD = """
import asyncio, sys
from pathlib import Path
from infloop.store.queue import Queued, QueuedRun
from infloop.store.sqlite.journal import open_journal

async def main():
    async with await open_journal(Path(sys.argv[1])) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        accepted = 0
        for number in range(80):
            name = f"{sys.argv[2]}-{number}"
            answer = await journal.queue.put(QueuedRun(name, name, "w", {}, "c", 0), limit=100)
            accepted += isinstance(answer, Queued)
        print(accepted, flush=True)

asyncio.run(main())
"""


async def test_two_processes_together_fill_the_queue_exactly(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", FILLING_CHILD, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for child in children:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [await asyncio.to_thread(child.communicate, None, 60) for child in children]
    accepted = [int(output) for output, _ in outputs]
    assert sum(accepted) == 100
    async with sqlite_store(tmp_path) as store:
        assert await store.queue.count() == 100


# -- becoming a run --------------------------------------------------------------------------------


@every_queue
async def test_an_entry_becomes_a_run_and_is_gone(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", cause=Cause("mcp", "client"))
        assert await store.queue.start(*to_start(await taken(store))) == 1
        row = await store.journal.run("run-a")
        assert (row.status, row.owner, row.epoch) == ("running", "me", 1)
        assert (row.cause, row.correlation_id) == (Cause("mcp", "client"), "cid_1")
        await store.journal.append(
            "run-a", 1, [Recorded("run-a", 2, NOW, "cid_1", RunFinished("succeeded"))]
        )
        assert await store.queue.count() == 0
        assert await store.queue.entries() == []
        gone = await store.queue.entry("a")
        assert (gone.state, gone.position, gone.run.run_id) == ("started", 0, "run-a")
        assert gone.run.inputs == {}


@every_queue
async def test_a_run_that_cannot_be_stored_leaves_its_entry_taken(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a")
        name, new, first = to_start(await taken(store))
        with pytest.raises(StoreError, match="must begin with"):
            await store.queue.start(name, replace(new, definition=b"another"), first)
        with pytest.raises(StoreError, match="'run-a'"):
            await store.queue.start(name, replace(new, id="run-z"), first)
        assert (await store.queue.entry("a")).state == "taken"
        assert (await store.queue.entry("a")).run.inputs == {"n": "a"}
        assert await store.journal.count() == 0
        await store.queue.start(name, new, first)
        assert await store.journal.count() == 1


@every_queue
async def test_only_who_took_an_entry_can_make_it_a_run_and_only_once(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a")
        waiting_entry = await store.queue.entry("a")
        with pytest.raises(Fenced, match="'a'"):
            await store.queue.start(*to_start(waiting_entry))
        entry = await taken(store)
        with pytest.raises(Fenced, match="'thief'"):
            await store.queue.start(*to_start(entry, "thief"))
        assert await store.journal.count() == 0
        await store.queue.start(*to_start(entry))
        with pytest.raises(Fenced):
            await store.queue.start(*to_start(entry))
        assert await store.journal.count() == 1


@every_queue
async def test_each_entry_is_handed_out_once_however_many_take(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as first, opening(tmp_path) as second:
        await put(first, *map(str, range(30)))
        taking = [
            store.queue.take(owner)
            for _ in range(20)
            for store, owner in ((first, "one"), (second, "two"))
        ]
        entries = [entry for entry in await asyncio.gather(*taking) if entry is not None]
        assert sorted(int(entry.run.id) for entry in entries) == list(range(30))


@every_queue
async def test_an_entry_that_is_given_back_is_where_it_was(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b", "c")
        await taken(store)
        with pytest.raises(Fenced):
            await store.queue.give_back("a", "somebody")
        await store.queue.give_back("a", "me")
        assert await waiting(store) == ["a", "b", "c"]
        with pytest.raises(Fenced):
            await store.queue.give_back("a", "me")


@every_queue
async def test_an_entry_that_cannot_be_started_is_dropped_with_a_reason(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b")
        with pytest.raises(Fenced):
            await store.queue.drop("a", "me", "workflow-deleted")
        await taken(store)
        await store.queue.drop("a", "me", "workflow-deleted")
        gone = await store.queue.entry("a")
        assert (gone.state, gone.reason, gone.run.inputs) == ("dropped", "workflow-deleted", {})
        assert await take_all(store) == ["b"]
        assert await store.journal.count() == 0


@every_queue
async def test_a_waiting_entry_can_be_removed_and_a_taken_one_not(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b", "c")
        await taken(store)
        assert not await store.queue.remove("a")
        assert await store.queue.remove("b")
        assert not await store.queue.remove("b")
        assert not await store.queue.remove("never-there")
        assert (await store.queue.entry("b")).state == "removed"
        assert await waiting(store) == ["c"]
        assert await store.queue.count() == 2


@every_queue
async def test_ids_are_used_once(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a")
        with pytest.raises(StoreError, match="'a'"):
            await store.queue.put(run("a", run_id="another"), limit=9)
        with pytest.raises(StoreError, match="'run-a'"):
            await store.queue.put(run("b", run_id="run-a"), limit=9)
        assert await store.queue.count() == 1


# -- processes that hold or die --------------------------------------------------------------------


@every_queue
@pytest.mark.claim("I51")
async def test_what_is_held_stays_on_disk_and_goes_on_after_a_restart(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a")
        await store.queue.hold("before", "what may be spent is spent", NOW)
        assert await store.queue.take("before") is None
        assert await put(store, "b") == [2]
        assert await store.queue.owners() == ["before"]
    async with opening(tmp_path) as store:
        assert await store.queue.take("before") is None
        assert await take_all(store, "after") == ["a", "b"]


@every_queue
async def test_a_hold_can_be_released_and_binds_nobody_else(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", "b")
        await store.queue.hold("me", "spent", NOW)
        assert (await taken(store, "other")).run.id == "a"
        await store.queue.release("me")
        assert await store.queue.owners() == ["other"]
        assert await take_all(store) == ["b"]


OWNING_CHILD = """
import asyncio, sys
from pathlib import Path
from infloop.store.instances import Instances
from infloop.store.sqlite.journal import open_journal

async def main():
    data = Path(sys.argv[1])
    async with await open_journal(data) as journal:
        instance = await Instances(journal, data, lambda: 0).register()
        entry = await journal.queue.take(instance.id)
        await journal.queue.hold(instance.id, "spent", 0)
        print(instance.id, entry.run.id, flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


async def test_what_a_process_took_is_handed_out_again_once_it_is_dead(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path) as store:
        await put(store, "a", "b")
        instances = Instances(store.journal, tmp_path, lambda: 0)
        child = subprocess.Popen(
            [sys.executable, "-c", OWNING_CHILD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            owner, name = (await asyncio.to_thread(child.stdout.readline)).split()
            assert name == "a"
            assert await store.queue.owners() == [owner]
            assert await return_from_the_dead(store.queue, instances) == 0
            assert await waiting(store) == ["b"]
        finally:
            child.kill()
            child.communicate(timeout=30)
        assert await return_from_the_dead(store.queue, instances) == 1
        assert await store.queue.owners() == []
        assert await take_all(store) == ["a", "b"]
        with pytest.raises(Fenced):
            await store.queue.start(*to_start(await store.queue.entry("a"), owner))


# -- the same request again ------------------------------------------------------------------------


@every_queue
async def test_a_key_that_is_known_gets_the_first_answer(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        await put(store, "before")
        first = await store.queue.put(run("a", idempotency_key="delivery-1"), limit=9)
        assert first == Queued("a", "run-a", 2)
        again = await store.queue.put(run("b", idempotency_key="delivery-1"), limit=9)
        assert again == Queued("a", "run-a", 2, repeated=True)
        other = await store.queue.put(run("c", idempotency_key="delivery-2"), limit=9)
        assert other == Queued("c", "run-c", 3)
        assert await waiting(store) == ["before", "a", "c"]


async def started_entry(store: Store) -> None:
    await store.queue.start(*to_start(await taken(store)))


async def removed_entry(store: Store) -> None:
    await store.queue.remove("a")


async def dropped_entry(store: Store) -> None:
    await taken(store)
    await store.queue.drop("a", "me", "workflow-deleted")


@every_queue
@pytest.mark.parametrize("fate", [started_entry, removed_entry, dropped_entry])
async def test_a_key_is_known_for_a_day_whatever_became_of_its_entry(
    opening: Opening, tmp_path: Path, fate: Any
) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", idempotency_key="k")
        await fate(store)
    async with opening(tmp_path) as store:
        late = run("b", idempotency_key="k", queued_at=NOW + REMEMBERED_MS)
        assert await store.queue.put(late, limit=9) == Queued("a", "run-a", 1, repeated=True)
        later = replace(late, queued_at=NOW + REMEMBERED_MS + 1)
        assert await store.queue.put(later, limit=9) == Queued("b", "run-b", 1)
        with pytest.raises(NotFound):
            await store.queue.entry("a")


@every_queue
async def test_a_key_is_known_as_long_as_its_entry_waits(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        await put(store, "a", idempotency_key="k")
        late = run("b", idempotency_key="k", queued_at=NOW + 9 * REMEMBERED_MS)
        assert await store.queue.put(late, limit=9) == Queued("a", "run-a", 1, repeated=True)


@every_queue
async def test_a_refusal_is_not_remembered(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        assert await store.queue.put(run("a", idempotency_key="k"), limit=0) == Full(0)
        assert await store.queue.put(run("b", idempotency_key="k"), limit=1) == Queued(
            "b", "run-b", 1
        )
        known = await store.queue.put(run("c", idempotency_key="k"), limit=1)
        assert known == Queued("b", "run-b", 1, repeated=True)


@every_queue
async def test_the_same_key_many_times_at_once_is_one_entry(
    opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path) as first, opening(tmp_path) as second:
        adding = [
            store.queue.put(run(f"{which}-{number}", idempotency_key="k"), limit=9)
            for number in range(10)
            for which, store in enumerate((first, second))
        ]
        answers = await asyncio.gather(*adding)
        assert len({answer[:3] for answer in answers}) == 1
        assert [answer[3:] for answer in answers].count((False,)) == 1
        assert await first.queue.count() == 1


@every_queue
async def test_entries_without_a_key_are_not_the_same(opening: Opening, tmp_path: Path) -> None:
    async with opening(tmp_path) as store:
        assert await put(store, "a", "b", "c") == [1, 2, 3]


async def test_what_is_forgotten_leaves_no_row(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path) as store:
        for number in range(300):
            await put(store, f"{number}", idempotency_key=f"k{number}")
            await store.queue.remove(f"{number}")
        for number in range(3):
            await put(store, f"late-{number}", queued_at=NOW + 2 * REMEMBERED_MS)
    with sqlite3.connect(tmp_path / JOURNAL_FILE) as database:
        rows = database.execute("SELECT count(*) FROM queued").fetchone()
    database.close()
    assert rows == (3,)


# -- kill -9 ---------------------------------------------------------------------------------------

KILLS = 60


@dataclass
class Said:
    """What the killed processes said before they died."""

    tried: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    started: Counter[str] = field(default_factory=Counter)

    def hear(self, words: list[str]) -> None:
        match words:
            case ["adding", name]:
                self.tried.add(name)
            case ["added", name]:
                self.acknowledged.add(name)
            case ["started", name]:
                self.started[name] += 1


def kill_some(folder: Path, shard: int) -> Said:
    """Let processes work, one after the other, and kill them at random points."""
    chance, said, number = random.Random(shard), Said(), 1_000 * (shard + 1)
    with forker("queue_worker.py", folder) as children:
        while children.kills < KILLS // 2:
            number += 1
            children.run(number, chance.randint(1, 40), said.hear)
    return said


async def test_killed_at_random_points_every_acknowledged_entry_runs_exactly_once(
    tmp_path: Path,
) -> None:
    one, two = await asyncio.gather(
        asyncio.to_thread(kill_some, tmp_path, 0), asyncio.to_thread(kill_some, tmp_path, 1)
    )
    rest = Said()
    with forker("queue_worker.py", tmp_path) as children:
        assert await asyncio.to_thread(children.run, 0, None, rest.hear)
    tried = one.tried | two.tried
    acknowledged = one.acknowledged | two.acknowledged
    started = one.started + two.started + rest.started
    assert len(acknowledged) > KILLS
    assert set(started.values()) == {1}
    async with sqlite_store(tmp_path) as store:
        assert await store.queue.count() == 0
        runs = {row.id for row in await store.journal.runs(limit=100_000)}
        assert {f"run-{name}" for name in acknowledged} <= runs
        assert {f"run-{name}" for name in started} <= runs
        assert runs <= {f"run-{name}" for name in tried}
        for name in acknowledged:
            assert (await store.queue.entry(name)).state == "started"
