"""The contract of every run queue: each acknowledged entry becomes one run, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import Cause, Recorded, RunFinished, RunStarted
from infloop.store.interfaces.queue import (
    KEPT_MS,
    Enqueued,
    QueuedRun,
    QueueEntry,
    QueueFull,
    Replayed,
    requeue_from_dead_owners,
)
from infloop.store.interfaces.run_log import (
    NewRun,
    definition_hash,
)
from infloop.store.interfaces.store import Store
from support.eventually import eventually_async
from support.stores import (
    DEFINITION,
    NOW,
    OpenStore,
    start_child,
)


def run(name: str, **changes: Any) -> QueuedRun:
    return replace(QueuedRun(name, f"run-{name}", "w", {"n": name}, "cid_1", NOW), **changes)


async def put(store: Store, *names: str, limit: int = 100, **changes: Any) -> list[int]:
    """Add entries; return their positions."""
    answers = [await store.queue.put(run(name, **changes), limit=limit) for name in names]
    assert all(isinstance(answer, Enqueued) for answer in answers)
    return [answer.position for answer in answers if isinstance(answer, Enqueued)]


async def take_all(store: Store, owner: str = "me") -> list[str]:
    taken: list[str] = []
    while entries := await store.queue.take(owner):
        taken += [entry.run.id for entry in entries]
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
        id=queued.run_id,
        workflow_id="w",
        workflow_name="W",
        definition=DEFINITION,
        owner=owner,
        started_at=NOW,
        correlation_id=queued.correlation_id,
        cause=queued.cause,
    )
    return queued.id, new, Recorded(queued.run_id, 1, NOW, queued.correlation_id, event)


async def taken(store: Store, owner: str = "me") -> QueueEntry:
    (entry,) = await store.queue.take(owner)
    return entry


# -- order -----------------------------------------------------------------------------------------


async def test_several_are_handed_out_together_as_far_as_there_is_room(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", "c", workflow_id="two", max_concurrent=2)
        await put(store, "d", "e", workflow_id="many")
        entries = await store.queue.take("me", 3)
        assert [entry.run.id for entry in entries] == ["a", "b", "d"]
        assert {entry.state for entry in entries} == {"taken"}
        assert await waiting(store) == ["c", "e"]
        assert await store.queue.take("me", 0) == []


async def test_the_first_come_first_and_each_is_told_its_place(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        assert await put(store, "a", "b", "c") == [1, 2, 3]
        assert await take_all(store) == ["a", "b", "c"]


async def test_a_higher_priority_goes_first_and_pushes_nobody_aside_within_it(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        assert await put(store, "a", "b") == [1, 2]
        assert await put(store, "x", "y", priority=5) == [1, 2]
        assert await put(store, "low", priority=-1) == [5]
        assert await put(store, "c") == [5]
        listed = [(entry.run.id, entry.position) for entry in await store.queue.entries()]
        assert listed == [("x", 1), ("y", 2), ("a", 3), ("b", 4), ("c", 5), ("low", 6)]
        assert (await store.queue.entry("low")).position == 6
        assert await take_all(store) == ["x", "y", "a", "b", "c", "low"]


async def test_an_entry_comes_out_as_it_went_in(open_store: OpenStore, tmp_path: Path) -> None:
    whole = QueuedRun(
        id="q",
        run_id="run-q",
        workflow_id="build",
        inputs={"text": "ü\n\x00", "number": 1.5, "list": [None, {"deep": True}]},
        correlation_id="cid_7",
        queued_at=NOW,
        cause=Cause("webhook", "trigger"),
        priority=3,
        idempotency_key="delivery-1",
        extra={"workdir": "/x", "untrusted": ["text"]},
        requires=("gpu", "ü"),
        max_concurrent=2,
        definition=definition_hash(DEFINITION),
    )
    async with open_store(tmp_path) as store:
        await store.queue.put(whole, limit=1, definition=DEFINITION)
        assert await store.queue.entry("q") == QueueEntry(whole, "waiting", 1)
        handed_out = await store.queue.take("me", labels=["ü", "gpu"])
        assert handed_out == [QueueEntry(whole, "taken", 0, "me")]
        assert await store.queue.entries() == [QueueEntry(whole, "taken", 0, "me")]


async def test_half_characters_do_not_stop_the_queue(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        odd = run("a", inputs={"x": "\ud800"}, idempotency_key="k\ud800")
        assert await store.queue.put(odd, limit=1) == Enqueued("a", "run-a", 1)
        assert await store.queue.put(odd, limit=1) == Enqueued("a", "run-a", 1, repeated=True)
        assert (await taken(store)).run.inputs == {"x": "?"}


async def test_workflows_that_have_enough_runs_are_passed_over(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", workflow_id="w", max_concurrent=1)
        await put(store, "c", workflow_id="free")
        name, new, first = to_start(await taken(store))
        assert await take_all(store) == ["c"]  # one that was taken counts
        await store.queue.start(name, new, first)
        assert await take_all(store, "another") == []  # and so does a run, in every process
        ended = Recorded(new.id, 2, NOW, "cid_1", RunFinished("succeeded"))
        await store.run_log.append(new.id, 1, [ended])
        assert await take_all(store, "another") == ["b"]


async def test_the_limit_of_a_workflow_holds_when_several_take_at_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as first, open_store(tmp_path) as second:
        await put(first, *"abcdefgh", max_concurrent=3)
        taking = [store.queue.take(owner, 2) for store in (first, second) for owner in "xyz"]
        entries = [entry for taken in await asyncio.gather(*taking) for entry in taken]
        assert sorted(entry.run.id for entry in entries) == ["a", "b", "c"]


async def test_an_entry_is_handed_out_only_to_those_who_have_its_labels(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "both", requires=("gpu", "repo:web"))
        await put(store, "gpu", requires=("gpu",))
        await put(store, "any")

        async def take(*labels: str) -> list[str]:
            return [entry.run.id for entry in await store.queue.take("me", 9, labels=labels)]

        assert await take("repo:web", "GPU", "gp") == ["any"]
        assert await take("gpu", "more") == ["gpu"]
        assert await take() == []
        assert await take("repo:web", "gpu") == ["both"]


async def test_a_process_can_ask_whether_there_is_something_to_take(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        queue = store.queue
        assert not await queue.has_takeable()
        await put(store, "a", workflow_id="w", max_concurrent=1)
        assert await queue.has_takeable()
        assert not await queue.has_takeable(only=["b"])
        entry = await taken(store)
        await put(store, "b", "c", workflow_id="w", max_concurrent=1)
        assert not await queue.has_takeable()  # one is taken, and only one may be live
        await queue.start(*to_start(entry))
        assert not await queue.has_takeable()
        end = Recorded("run-a", 2, NOW, "cid_1", RunFinished("succeeded"))
        await store.run_log.append("run-a", 1, [end])
        assert await queue.has_takeable()
        await queue.hold_entry((await taken(store)).run.id, "me", "no")
        assert await queue.remove("c")
        assert not await queue.has_takeable()
        await put(store, "d", requires=("gpu",))
        assert not await queue.has_takeable()
        assert not await queue.has_takeable(labels=["repo:web"])
        assert await queue.has_takeable(labels=["repo:web", "gpu"])


async def test_entries_and_runs_share_a_definition_until_the_last_of_them_is_gone(
    open_store: OpenStore, tmp_path: Path
) -> None:
    name = definition_hash(DEFINITION)
    async with open_store(tmp_path) as store:
        for each in "abc":
            entry = run(each, definition=name)
            await store.queue.put(entry, limit=9, definition=DEFINITION)
        first = await taken(store)
        assert first.run.definition == name
        assert await store.queue.definition(name) == DEFINITION
        await store.queue.start(*to_start(first))
        assert await store.queue.remove("b")
        ended = Recorded("run-a", 2, NOW, "cid_1", RunFinished("succeeded"))
        await store.run_log.append("run-a", 1, [ended])
        assert await store.run_log.prune("w", 0) == 1
        assert await store.queue.definition(name) == DEFINITION  # of the entry that waits
        assert await store.queue.withdraw("c")
        with pytest.raises(NotFound):
            await store.queue.definition(name)


async def test_what_was_acknowledged_is_there_after_a_restart(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b")
    async with open_store(tmp_path) as store:
        assert await put(store, "c") == [3]
        assert await take_all(store) == ["a", "b", "c"]


# -- the limit -------------------------------------------------------------------------------------


async def test_the_entry_beyond_the_limit_is_refused(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        assert await put(store, *map(str, range(100))) == list(range(1, 101))
        assert await store.queue.put(run("more"), limit=100) == QueueFull(100)
        assert await store.queue.count() == 100
        with pytest.raises(NotFound):
            await store.queue.entry("more")


async def test_an_entry_counts_until_its_run_exists(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", limit=2)
        entry = await taken(store)
        assert await store.queue.put(run("c"), limit=2) == QueueFull(2)
        await store.queue.start(*to_start(entry))
        assert await put(store, "c", limit=2) == [2]
        assert await store.queue.put(run("d"), limit=2) == QueueFull(2)
        await store.queue.remove("c")
        assert await put(store, "d", limit=2) == [2]


async def test_many_who_add_at_once_never_exceed_the_limit(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as first, open_store(tmp_path) as second:
        adding = [
            store.queue.put(run(f"{which}-{number}"), limit=10)
            for number in range(40)
            for which, store in enumerate((first, second))
        ]
        answers = await asyncio.gather(*adding)
        assert [type(answer) for answer in answers].count(Enqueued) == 10
        assert await first.queue.count() == 10
        positions = [answer.position for answer in answers if isinstance(answer, Enqueued)]
        assert sorted(positions) == list(range(1, 11))


FILLING_CHILD = """
from infloop.store.interfaces.queue import Enqueued, QueuedRun

async def main():
    async with open_store(folder) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        accepted = 0
        for number in range(80):
            name = f"{args[0]}-{number}"
            answer = await store.queue.put(QueuedRun(name, name, "w", {}, "c", 0), limit=100)
            accepted += isinstance(answer, Enqueued)
        print(accepted, flush=True)

asyncio.run(main())
"""


async def test_two_processes_together_fill_the_queue_exactly(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    children = [start_child(FILLING_CHILD, implementation, tmp_path, name) for name in ("a", "b")]
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
    async with open_store(tmp_path) as store:
        assert await store.queue.count() == 100


# -- becoming a run --------------------------------------------------------------------------------


async def test_an_entry_becomes_a_run_and_is_gone(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", cause=Cause("mcp", "client"))
        assert await store.queue.start(*to_start(await taken(store))) == 1
        row = await store.run_log.run("run-a")
        assert (row.status, row.owner, row.epoch) == ("running", "me", 1)
        assert (row.cause, row.correlation_id) == (Cause("mcp", "client"), "cid_1")
        await store.run_log.append(
            "run-a", 1, [Recorded("run-a", 2, NOW, "cid_1", RunFinished("succeeded"))]
        )
        assert await store.queue.count() == 0
        assert await store.queue.entries() == []
        gone = await store.queue.entry("a")
        assert (gone.state, gone.position, gone.run.run_id) == ("started", 0, "run-a")
        assert gone.run.inputs == {}


async def test_a_run_that_ends_at_once_makes_room_for_the_next_entry(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "late", workflow_id="one", max_concurrent=1)
        await put(store, "other", requires=("gpu",))
        await put(store, "urgent", workflow_id="one", max_concurrent=1, priority=1)
        order: list[str] = []
        entry: QueueEntry | None = await taken(store)
        while entry is not None:
            order.append(entry.run.id)
            name, new, first = to_start(entry)
            end = Recorded(new.id, 2, NOW, new.correlation_id, RunFinished("succeeded"))
            epoch, following = await store.queue.start_ended(name, new, first, [end])
            assert epoch == 1
            assert (await store.queue.entry(name)).state == "started"
            assert following is None or following.owner == "me"
            entry = following or next(iter(await store.queue.take("me")), None)
        assert order == ["urgent", "a", "late"]
        assert await waiting(store) == ["other"]


async def test_a_process_on_hold_is_handed_nothing_in_place_of_a_run_that_ended(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b")
        name, new, first = to_start(await taken(store))
        await store.queue.hold("me", "no money", NOW)
        end = Recorded(new.id, 2, NOW, new.correlation_id, RunFinished("succeeded"))
        assert await store.queue.start_ended(name, new, first, [end]) == (1, None)
        with pytest.raises(Fenced):
            await store.queue.start_ended(name, new, first, [end])
        assert await waiting(store) == ["b"]


async def test_a_run_that_cannot_be_stored_leaves_its_entry_taken(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a")
        name, new, first = to_start(await taken(store))
        with pytest.raises(StoreError, match="must begin with"):
            await store.queue.start(name, replace(new, definition=b"another"), first)
        with pytest.raises(StoreError, match="'run-a'"):
            await store.queue.start(name, replace(new, id="run-z"), first)
        assert (await store.queue.entry("a")).state == "taken"
        assert (await store.queue.entry("a")).run.inputs == {"n": "a"}
        assert await store.run_log.count() == 0
        await store.queue.start(name, new, first)
        assert await store.run_log.count() == 1


async def test_only_who_took_an_entry_can_make_it_a_run_and_only_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a")
        waiting_entry = await store.queue.entry("a")
        with pytest.raises(Fenced, match="'a'"):
            await store.queue.start(*to_start(waiting_entry))
        entry = await taken(store)
        with pytest.raises(Fenced, match="'thief'"):
            await store.queue.start(*to_start(entry, "thief"))
        assert await store.run_log.count() == 0
        await store.queue.start(*to_start(entry))
        with pytest.raises(Fenced):
            await store.queue.start(*to_start(entry))
        assert await store.run_log.count() == 1


async def test_each_entry_is_handed_out_once_however_many_take(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as first, open_store(tmp_path) as second:
        await put(first, *map(str, range(30)))
        taking = [
            store.queue.take(owner)
            for _ in range(20)
            for store, owner in ((first, "one"), (second, "two"))
        ]
        entries = [entry for taken in await asyncio.gather(*taking) for entry in taken]
        assert sorted(int(entry.run.id) for entry in entries) == list(range(30))


async def test_an_entry_that_is_given_back_is_where_it_was(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", "c")
        await taken(store)
        with pytest.raises(Fenced):
            await store.queue.requeue("a", "somebody")
        await store.queue.requeue("a", "me")
        assert await waiting(store) == ["a", "b", "c"]
        with pytest.raises(Fenced):
            await store.queue.requeue("a", "me")


async def test_an_entry_that_cannot_start_is_held_and_tried_again(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", "c", "d")
        with pytest.raises(Fenced):
            await store.queue.hold_entry("a", "me", "deleted")
        for name, reason in (("a", "deleted"), ("b", "deleted"), ("c", "refused")):
            assert (await taken(store)).run.id == name
            await store.queue.hold_entry(name, "me", reason)
        held = await store.queue.entry("a")
        assert (held.held, held.reason, held.position) == (True, "deleted", 0)
        assert held.run.inputs == {"n": "a"}
        assert [(each.run.id, each.position) for each in await store.queue.entries()] == [
            ("d", 1), ("a", 0), ("b", 0), ("c", 0),
        ]  # fmt: skip
        assert await store.queue.put(run("e"), limit=4) == QueueFull(4)
        assert await take_all(store) == ["d"]
    async with open_store(tmp_path) as store:
        await store.queue.retry_held(only=[])
        assert await take_all(store) == []
        await store.queue.retry_held()  # one for each reason
        first, second = await taken(store), await taken(store)
        assert [(each.run.id, each.reason) for each in (first, second)] == [
            ("a", "deleted"), ("c", "refused"),
        ]  # fmt: skip
        await store.queue.start(*to_start(first))
        await store.queue.release_held("w", "deleted")
        assert await take_all(store) == ["b"]
        assert not await store.queue.remove("c")
        await store.queue.hold_entry("c", "me", "refused")
        assert await store.queue.remove("c")


async def test_a_waiting_entry_can_be_removed_and_a_taken_one_not(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b", "c")
        await taken(store)
        assert not await store.queue.remove("a")
        assert await store.queue.remove("b")
        assert not await store.queue.remove("b")
        assert not await store.queue.remove("never-there")
        assert (await store.queue.entry("b")).state == "removed"
        assert await waiting(store) == ["c"]
        assert await store.queue.count() == 2


@pytest.mark.parametrize("taken", [False, True])
async def test_an_entry_that_is_withdrawn_is_forgotten_and_cannot_start(
    open_store: OpenStore, tmp_path: Path, taken: bool
) -> None:
    async with open_store(tmp_path) as store:
        again: dict[str, Any] = {"idempotency_key": "k", "fingerprint": "f"}
        await put(store, "a", **again)
        entries = await store.queue.take("me") if taken else await store.queue.entries()
        assert await store.queue.withdraw("a")
        assert not await store.queue.withdraw("a")
        with pytest.raises(Fenced):
            await store.queue.start(*to_start(entries[0]))
        assert await store.queue.count() == await store.run_log.count() == 0
        added = await store.queue.put(run("b", **again), limit=1)
        assert added == Enqueued("b", "run-b", 1)


async def test_what_became_a_run_cannot_be_withdrawn(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", idempotency_key="k")
        (entry,) = await store.queue.take("me")
        await store.queue.start(*to_start(entry))
        assert not await store.queue.withdraw("a")
        assert (await store.queue.entry("a")).state == "started"


async def test_ids_are_used_once(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a")
        with pytest.raises(StoreError, match="'a'"):
            await store.queue.put(run("a", run_id="another"), limit=9)
        with pytest.raises(StoreError, match="'run-a'"):
            await store.queue.put(run("b", run_id="run-a"), limit=9)
        assert await store.queue.count() == 1


# -- processes that hold or die --------------------------------------------------------------------


@pytest.mark.claim("I51")
async def test_what_is_held_stays_on_disk_and_goes_on_after_a_restart(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a")
        await store.queue.hold("before", "what may be spent is spent", NOW)
        assert await store.queue.take("before") == []
        assert await put(store, "b") == [2]
        assert await store.queue.owners() == ["before"]
    async with open_store(tmp_path) as store:
        assert await store.queue.take("before") == []
        assert await take_all(store, "after") == ["a", "b"]


async def test_a_hold_can_be_released_and_binds_nobody_else(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b")
        await store.queue.hold("me", "spent", NOW)
        assert (await taken(store, "other")).run.id == "a"
        await store.queue.release("me")
        assert await store.queue.owners() == ["other"]
        assert await take_all(store) == ["b"]


OWNING_CHILD = """
async def main():
    async with open_store(folder) as store:
        instance = await store.liveness.register()
        (entry,) = await store.queue.take(instance.id)
        await store.queue.hold(instance.id, "spent", 0)
        print(instance.id, entry.run.id, flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


async def test_what_a_process_took_is_handed_out_again_once_it_is_dead(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", "b")
        with start_child(OWNING_CHILD, implementation, tmp_path) as child:
            assert child.stdout is not None
            owner, name = (await asyncio.to_thread(child.stdout.readline)).split()
            assert name == "a"
            assert await store.queue.owners() == [owner]
            assert await requeue_from_dead_owners(store.queue, store.liveness) == 0
            assert await waiting(store) == ["b"]
            child.kill()
        requeued = await eventually_async(
            lambda: requeue_from_dead_owners(store.queue, store.liveness)
        )
        assert requeued == 1
        assert await store.queue.owners() == []
        assert await take_all(store) == ["a", "b"]
        with pytest.raises(Fenced):
            await store.queue.start(*to_start(await store.queue.entry("a"), owner))


# -- the same request again ------------------------------------------------------------------------


async def test_a_key_that_is_known_gets_the_first_answer(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "before")
        first = await store.queue.put(run("a", idempotency_key="delivery-1"), limit=9)
        assert first == Enqueued("a", "run-a", 2)
        again = await store.queue.put(run("b", idempotency_key="delivery-1"), limit=9)
        assert again == Enqueued("a", "run-a", 2, repeated=True)
        other = await store.queue.put(run("c", idempotency_key="delivery-2"), limit=9)
        assert other == Enqueued("c", "run-c", 3)
        assert await waiting(store) == ["before", "a", "c"]


async def started_entry(store: Store) -> None:
    await store.queue.start(*to_start(await taken(store)))


async def removed_entry(store: Store) -> None:
    await store.queue.remove("a")


@pytest.mark.parametrize("fate", [started_entry, removed_entry])
async def test_a_key_is_known_for_a_day_whatever_became_of_its_entry(
    open_store: OpenStore, tmp_path: Path, fate: Any
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", idempotency_key="k")
        await fate(store)
    async with open_store(tmp_path) as store:
        late = run("b", idempotency_key="k", queued_at=NOW + KEPT_MS)
        assert await store.queue.put(late, limit=9) == Enqueued("a", "run-a", 1, repeated=True)
        later = replace(late, queued_at=NOW + KEPT_MS + 1)
        assert await store.queue.put(later, limit=9) == Enqueued("b", "run-b", 1)
        with pytest.raises(NotFound):
            await store.queue.entry("a")


async def test_a_key_is_known_as_long_as_its_entry_waits(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", idempotency_key="k")
        late = run("b", idempotency_key="k", queued_at=NOW + 9 * KEPT_MS)
        assert await store.queue.put(late, limit=9) == Enqueued("a", "run-a", 1, repeated=True)


async def test_a_refusal_is_not_remembered(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        assert await store.queue.put(run("a", idempotency_key="k"), limit=0) == QueueFull(0)
        assert await store.queue.put(run("b", idempotency_key="k"), limit=1) == Enqueued(
            "b", "run-b", 1
        )
        known = await store.queue.put(run("c", idempotency_key="k"), limit=1)
        assert known == Enqueued("b", "run-b", 1, repeated=True)


async def test_the_same_key_many_times_at_once_is_one_entry(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as first, open_store(tmp_path) as second:
        adding = [
            store.queue.put(run(f"{which}-{number}", idempotency_key="k"), limit=9)
            for number in range(10)
            for which, store in enumerate((first, second))
        ]
        answers = await asyncio.gather(*adding)
        assert len({answer[:3] for answer in answers}) == 1
        assert [answer[3:] for answer in answers].count((False,)) == 1
        assert await first.queue.count() == 1


@pytest.mark.parametrize("fate", [started_entry, removed_entry])
async def test_a_fingerprint_is_refused_under_another_key_for_a_day(
    open_store: OpenStore, tmp_path: Path, fate: Any
) -> None:
    async with open_store(tmp_path) as store:
        await put(store, "a", idempotency_key="k", fingerprint="f")
        await fate(store)
    async with open_store(tmp_path) as store:
        for key in ("", "l"):
            late = run("b", idempotency_key=key, fingerprint="f", queued_at=NOW + KEPT_MS)
            assert await store.queue.put(late, limit=9) == Replayed("a")
        same = run("b", idempotency_key="k", fingerprint="f")
        assert await store.queue.put(same, limit=9) == Enqueued("a", "run-a", 1, repeated=True)
        later = run("b", idempotency_key="l", fingerprint="f", queued_at=NOW + KEPT_MS + 1)
        assert await store.queue.put(later, limit=9) == Enqueued("b", "run-b", 1)


async def test_a_fingerprint_that_was_refused_for_want_of_room_is_not_remembered(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        assert await store.queue.put(run("a", fingerprint="f"), limit=0) == QueueFull(0)
        assert await put(store, "b", fingerprint="f") == [1]
        assert await put(store, "c", fingerprint="g") == [2]
        assert await store.queue.put(run("d", fingerprint="f"), limit=9) == Replayed("b")


async def test_the_same_fingerprint_many_times_at_once_is_one_entry(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as first, open_store(tmp_path) as second:
        adding = [
            store.queue.put(run(f"{which}-{number}", fingerprint="f"), limit=9)
            for number in range(10)
            for which, store in enumerate((first, second))
        ]
        answers = await asyncio.gather(*adding)
        assert [isinstance(answer, Enqueued) for answer in answers].count(True) == 1
        assert await first.queue.count() == 1


async def test_entries_without_a_key_are_not_the_same(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        assert await put(store, "a", "b", "c") == [1, 2, 3]
