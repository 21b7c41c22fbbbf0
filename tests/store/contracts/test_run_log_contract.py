"""The contract of every run log: writing, fencing and reading back."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infloop.errors import Fenced, NotFound, StoreError, UsageError
from infloop.model.events import (
    Cause,
    Event,
    Notice,
    Output,
    Recorded,
    RunFinished,
    StepFinished,
    StepPassed,
    StepStarted,
    TemplateWarning,
)
from infloop.store.interfaces.run_log import (
    Checkpoint,
    Ownership,
    RunLog,
)
from support.stores import (
    DEFINITION,
    OpenStore,
    at,
    finished,
    new_run,
    passed,
    read_all,
    said,
    settled,
    start_child,
    started,
)
from support.thorough import amount, some

if TYPE_CHECKING:
    from collections.abc import Iterable


# -- writing ---------------------------------------------------------------------------------


async def test_a_new_run_is_stored_with_its_definition_and_first_event(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        run = new_run(cause=Cause("webhook", "trigger t1"))
        assert await store.run_log.create_run(run, started()) == 1

        loaded = await store.run_log.load("r1")
        assert loaded.definition == DEFINITION
        assert loaded.checkpoint is None
        assert loaded.events == [started()]
        row = loaded.run
        assert (row.id, row.workflow_id, row.owner, row.epoch) == ("r1", "w", "me", 1)
        assert (row.status, row.started_at, row.finished_at) == ("running", 1000, None)
        assert row.cause == Cause("webhook", "trigger t1")
        assert (row.last_seq, row.events, row.steps) == (1, 1, 0)


async def test_a_run_id_is_used_once(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        with pytest.raises(StoreError, match="'r1' exists already"):
            await store.run_log.create_run(new_run(), started())
        assert await store.run_log.count() == 1


async def test_a_run_must_begin_with_the_event_that_names_its_definition(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        with pytest.raises(StoreError, match="must begin with"):
            await store.run_log.create_run(new_run(definition=b"another"), started())
        with pytest.raises(NotFound):
            await store.run_log.run("r1")


async def test_appended_events_come_back_in_order(open_store: OpenStore, tmp_path: Path) -> None:
    items = [
        at(2, StepStarted("agent-1", "agent-1", "agent", {"prompt": "hi"}, 3)),
        at(3, said("Hel")),
        at(4, said("lo\n")),
        at(5, TemplateWarning("b", "b", "lhs", "nope.x")),
        at(9, finished(stdout="Hello\n", n=10**30, nothing=None, ü="ß")),
        at(10, Notice("careful", level="warning")),
        at(11, RunFinished("succeeded")),
    ]
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        store.run_log.append("r1", 1, items[:3])
        await store.run_log.append("r1", 1, items[3:])

        assert await read_all(store.run_log) == [started(), *items]
        assert await read_all(store.run_log, limit=1) == [started(), *items]
        assert await store.run_log.events("r1", 3, 9) == items[2:5]
        assert await store.run_log.events("r1", include_output=False) == [
            started(), items[0], *items[3:],
        ]  # fmt: skip
        assert await store.run_log.events("r1", 11) == []


async def test_the_events_of_a_step_are_read_from_the_end(
    open_store: OpenStore, tmp_path: Path
) -> None:
    paths = ["loop", "loop[1]/a", "loop[1]/ab", "loop-2", "loop[12]/a", "loop[1]/a/inner"]
    items = [at(seq, StepStarted(path, "n", "agent", {})) for seq, path in enumerate(paths, 2)]
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, items)
        for step, inside in {
            "loop": [0, 1, 2, 4, 5],
            "loop[1]": [1, 2, 5],
            "loop[1]/a": [1, 5],
            "loop-2": [3],
            "none": [],
        }.items():
            found = await store.run_log.events_before("r1", 1 << 60, step=step)
            assert found == ([items[index] for index in inside], None)
        page = await store.run_log.events_before("r1", 1 << 60, step="loop[1]", limit=2)
        assert page == ([items[2], items[5]], items[2].seq)
        page = await store.run_log.events_before("r1", items[2].seq, step="loop[1]", limit=2)
        assert page == ([items[1]], None)


async def test_what_is_not_awaited_is_stored_by_the_time_a_flush_returns(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        for seq in range(2, 50):
            store.run_log.append("r1", 1, [at(seq, passed())])
        await store.run_log.flush()
        assert [item.seq for item in await read_all(store.run_log)] == list(range(1, 50))


async def test_closing_stores_what_is_queued(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        store.run_log.append("r1", 1, [at(2, passed())])
    with pytest.raises(StoreError, match="closed"):
        store.run_log.append("r1", 1, [at(3, passed())])
    async with open_store(tmp_path) as store:
        assert len(await read_all(store.run_log)) == 2


async def test_many_concurrent_appends_each_store_exactly_their_own(
    open_store: OpenStore, tmp_path: Path
) -> None:
    runs = [f"run-{number}" for number in range(40)]

    async def drive(run_log: RunLog, run_id: str) -> None:
        await run_log.create_run(new_run(run_id), started(run_id))
        for seq in range(2, 30, 2):
            pair = [at(seq, passed(f"{run_id}[{seq}]"), run_id), at(seq + 1, said("x"), run_id)]
            await run_log.append(run_id, 1, pair)

    async with open_store(tmp_path) as store:
        async with asyncio.TaskGroup() as tasks:
            for run_id in runs:
                tasks.create_task(drive(store.run_log, run_id))
        for run_id in runs:
            items = await read_all(store.run_log, run_id)
            assert [item.seq for item in items] == list(range(1, 30))
            paths = {item.event.path for item in items if isinstance(item.event, StepPassed)}
            assert paths == {f"{run_id}[{seq}]" for seq in range(2, 30, 2)}


async def test_a_bad_append_fails_alone_among_those_committed_with_it(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for run_id in ("r1", "r2", "r3"):
            await store.run_log.create_run(new_run(run_id), started(run_id))
        good = store.run_log.append("r1", 1, [at(2, passed(), "r1")])
        bad = store.run_log.append("r2", 7, [at(2, passed(), "r2")])
        also_good = store.run_log.append("r3", 1, [at(2, passed(), "r3")])
        await good
        await also_good
        with pytest.raises(Fenced):
            await bad
        assert [len(await read_all(store.run_log, run_id)) for run_id in ("r1", "r2", "r3")] == [
            2,
            1,
            2,
        ]


@pytest.mark.parametrize("seqs", [(1,), (3, 2), (2, 2), (0,)])
async def test_sequence_numbers_only_grow(
    open_store: OpenStore, tmp_path: Path, seqs: tuple[int, ...]
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        with pytest.raises(StoreError, match="sequence"):
            await store.run_log.append("r1", 1, [at(seq, passed()) for seq in seqs])
        assert await read_all(store.run_log) == [started()]


async def test_an_append_after_a_failed_one_fails_too_until_it_is_repeated(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        hole = at(2, finished(unstorable=object()))
        store.run_log.append("r1", 1, [hole])
        with pytest.raises(TypeError):
            await store.run_log.append("r1", 1, [at(3, passed())])
        with pytest.raises(TypeError):
            await store.run_log.flush()
        assert await read_all(store.run_log) == [started()]

        await store.run_log.append("r1", 1, [at(2, passed())])
        await store.run_log.append("r1", 1, [at(3, passed())])
        await store.run_log.flush()
        assert [item.seq for item in await read_all(store.run_log)] == [1, 2, 3]


async def test_half_a_surrogate_pair_does_not_stop_a_run(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        output = at(3, said("cut \ud83d off"))
        await store.run_log.append("r1", 1, [at(2, finished(text="a\ud800b")), output])
        _, end, text = await read_all(store.run_log)
        assert end.event == finished(text="a?b")
        assert text == output


async def test_the_row_keeps_count_and_says_how_the_run_ended(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        start = StepStarted("a", "a", "agent", {})
        await store.run_log.append("r1", 1, [at(2, passed()), at(3, start), at(4, said("x" * 100))])
        row = await store.run_log.run("r1")
        assert (row.status, row.last_seq, row.events, row.steps) == ("running", 4, 3, 1)
        assert row.output_bytes >= 100
        assert await store.run_log.scope("r1") is None

        failure = "because\n" * 10_000
        end = at(6, RunFinished("failed", failure, "agent-1"), time=9000)
        await store.run_log.append(
            "r1", 1, [at(5, finished()), end], scope={"agent-1": {"ok": False}}
        )
        row = await store.run_log.run("r1")
        assert (row.status, row.finished_at, row.failed_step) == ("failed", 9006, "agent-1")
        assert (row.events, row.steps) == (5, 2)
        assert failure.startswith(row.error)
        assert len(row.error) < 10_000
        assert await store.run_log.scope("r1") == {"agent-1": {"ok": False}}
        assert (await read_all(store.run_log))[-1] == end


async def test_works_on_uvloop(open_store: OpenStore, tmp_path: Path) -> None:
    def elsewhere() -> list[Recorded]:
        async def main() -> list[Recorded]:
            async with open_store(tmp_path) as store:
                await store.run_log.create_run(new_run(), started())
                await store.run_log.append("r1", 1, [at(2, passed())])
                return await read_all(store.run_log)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())

    assert len(await asyncio.to_thread(elsewhere)) == 2


# -- restoring exactly -----------------------------------------------------------------------

paths = st.sampled_from(["a", "loop-1[3]/agent-1", 'odd "path" ü'])
texts = st.text(max_size=12) | st.sampled_from(["\n", "\x00", "\ud800", "🙂" * 40, "x" * 40_000])
outputs = st.builds(
    Output, paths, paths, texts, st.sampled_from(["stdout", "stderr", "tool"]), st.integers(0, 3)
)
values = st.dictionaries(st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=9))
events = st.builds(finished, paths) | st.builds(
    StepPassed, paths, paths, st.just("branch"), values, st.just("true"), values
)
moments = st.tuples(
    outputs | events,
    st.sampled_from([1, 1, 1, 2, 64]),  # how far the sequence jumps
    st.integers(-1000, 100_000),  # a clock may be set back
    st.sampled_from(["cid_1", "cid_1", "cid_2"]),
)


def recorded(history: Iterable[Iterable[tuple[Event | Output, int, int, str]]]) -> Any:
    seq, time = 1, 5000
    for chunk in history:
        items = []
        for event, jump, wait, correlation_id in chunk:
            seq, time = seq + jump, time + wait
            items.append(Recorded("r1", seq, time, correlation_id, event))
        yield items


@settings(
    max_examples=amount(8, thorough=60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    history=st.lists(st.lists(moments, min_size=1, max_size=12), max_size=6),
    limit=st.integers(1, 20),
    after=st.integers(0, 80),
)
def test_any_mixture_of_events_and_deltas_is_restored_exactly(
    open_store: OpenStore,
    history: list[list[tuple[Event | Output, int, int, str]]],
    limit: int,
    after: int,
) -> None:
    chunks = list(recorded(history))
    expected = [started(), *(item for chunk in chunks for item in chunk)]

    async def check(directory: Path) -> None:
        async with open_store(directory) as store:
            await store.run_log.create_run(new_run(), started())
            for chunk in chunks:
                store.run_log.append("r1", 1, chunk)
            await store.run_log.flush()
            assert await read_all(store.run_log, limit=limit) == expected
            later = [item for item in expected if item.seq > after]
            assert await store.run_log.events("r1", after, limit=limit) == later[:limit]
            between = [item for item in expected if after < item.seq <= after + 20]
            assert await store.run_log.events("r1", after, after + 20) == between
            earlier = [item for item in expected if item.seq < after]
            assert await store.run_log.events_before("r1", after, limit=limit) == (
                earlier[-limit:],
                earlier[-limit].seq if len(earlier) >= limit else None,
            )
            without = [item for item in expected if not isinstance(item.event, Output)]
            assert await store.run_log.events("r1", include_output=False) == without
            assert (await store.run_log.load("r1")).events == without

    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        asyncio.run(check(Path(directory)))


async def test_an_answer_stays_small_when_events_are_large(
    open_store: OpenStore, tmp_path: Path
) -> None:
    large = [at(seq, finished(text=str(seq) + "é" * 9_000_000)) for seq in range(2, 6)]
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        for item in large:
            await store.run_log.append("r1", 1, [item])
        page = await store.run_log.events("r1", 1, limit=1000)
        assert 0 < len(page) < len(large)
        assert await read_all(store.run_log) == [started(), *large]


# -- output cap ------------------------------------------------------------------------------


async def test_output_past_the_cap_is_dropped_with_one_mark(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path, output_cap=10_000) as store:
        await store.run_log.create_run(new_run(), started())
        kept = [at(2, said("x" * 9_000)), at(3, passed())]
        await store.run_log.append("r1", 1, kept)
        await store.run_log.append("r1", 1, [at(4, said("y" * 9_000)), at(5, passed("p5"))])
        await store.run_log.append("r1", 1, [at(6, said("z"))])
        await store.run_log.append("r1", 1, [at(7, said("z")), at(8, passed("p8"))])

        items = await read_all(store.run_log)
        assert items[:3] == [started(), *kept]
        assert [item.seq for item in items] == [1, 2, 3, 4, 5, 8]
        mark = items[3]
        assert isinstance(mark.event, Notice)
        assert (mark.event.path, mark.event.level, mark.time) == ("agent-1", "warning", 5004)
        row = await store.run_log.run("r1")
        assert (row.last_seq, row.events) == (8, 4)
        replayed = (await store.run_log.load("r1")).events
        assert [item.seq for item in replayed] == [1, 3, 5, 8]


# -- fencing ---------------------------------------------------------------------------------


async def test_the_process_that_lost_a_run_can_write_nothing_more(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        await store.run_log.create_run(new_run(owner="first"), started())
        await store.run_log.append("r1", 1, [at(2, passed())])

        assert await other.run_log.take_over("r1", "second", expect_dead="first") == Ownership(2, 2)

        with pytest.raises(Fenced, match="belongs to 'second' since epoch 2"):
            await store.run_log.append("r1", 1, [at(3, passed())])
        with pytest.raises(Fenced):
            await store.run_log.checkpoint("r1", 1, 2, b"state")
        await other.run_log.append("r1", 2, [at(66, passed())])
        assert [item.seq for item in await read_all(store.run_log)] == [1, 2, 66]
        assert (await store.run_log.load("r1")).checkpoint is None


async def test_only_one_of_many_takes_over_a_dead_owners_run(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(owner="dead"), started())
        attempts = [store.run_log.take_over("r1", f"p{n}", expect_dead="dead") for n in range(8)]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Fenced"] * 7 + ["Ownership"]
        assert (await store.run_log.run("r1")).epoch == 2


async def test_a_run_that_settled_meanwhile_is_not_taken_over(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(owner="late"), started())
        await store.run_log.append("r1", 1, [at(2, RunFinished("succeeded"))])  # it was not dead
        for expected in ("running", "paused"):
            with pytest.raises(Fenced, match="is now succeeded"):
                await store.run_log.take_over(
                    "r1", "second", expect_dead="late", expect_status=expected
                )
        row = await store.run_log.run("r1")
        assert (row.status, row.owner, row.epoch) == ("succeeded", "late", 1)
        taken = await store.run_log.take_over(
            "r1", "second", expect_dead="late", expect_status="succeeded"
        )
        assert taken == Ownership(2, 2)


async def test_force_takes_a_run_from_its_owner(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), error="broken")
        assert await store.run_log.take_over("r1", "me again", force=True) == Ownership(2, 2)
        row = await store.run_log.run("r1")
        assert (row.status, row.error, row.finished_at) == ("running", "", None)
        with pytest.raises(UsageError):
            await store.run_log.take_over("r1", "me")
        with pytest.raises(NotFound):
            await store.run_log.take_over("no such run", "me", force=True)


# -- checkpoints -----------------------------------------------------------------------------


async def test_a_run_is_loaded_from_its_nearest_checkpoint(
    open_store: OpenStore, tmp_path: Path
) -> None:
    large = os.urandom(100_000) + b"\0" * 100_000
    items = [at(seq, passed(f"p{seq}")) for seq in range(2, 21)]
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [*items[:9], at(11, said("ignored by replay"))])
        await store.run_log.checkpoint("r1", 1, 10, b"small")
        await store.run_log.append("r1", 1, items[10:15])
        await store.run_log.checkpoint("r1", 1, 16, large)
        await store.run_log.append("r1", 1, items[15:])

        now = await store.run_log.load("r1")
        assert now.checkpoint == Checkpoint(16, large)
        assert now.events == items[15:]
        then = await store.run_log.load("r1", until_seq=14)
        assert then.checkpoint == Checkpoint(10, b"small")
        assert then.events == items[10:13]
        begin = await store.run_log.load("r1", until_seq=3)
        assert begin.checkpoint is None
        assert begin.events == [started(), *items[:2]]


# -- blobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outputs",
    [
        {"stdout": "a" * 65_537},
        {"stdout": "é" * 40_000, "deep": [{"x": ["🙂" * 20_000, "small"]}], "n": 1},
        {"many": ["m" * 60_000 for _ in range(30)], "big": "b" * 70_000, "list": [["c" * 66_000]]},
        {f"k{n}": "v" * 50_000 for n in range(40)},
        {"k" * 70_000: "a key can be long too"},
        {"nested": "[" * 900, "stdout": "a" * 70_000},
    ],
    ids=["one", "deep", "many medium and some large", "wide", "key", "brackets"],
)
async def test_large_values_are_restored_exactly(
    open_store: OpenStore, tmp_path: Path, outputs: dict[str, Any]
) -> None:
    item = at(3, finished(**outputs))
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [at(2, passed()), item, at(4, passed())])
        await store.run_log.append("r1", 1, [at(5, RunFinished("succeeded"))], scope={"a": outputs})
        assert (await read_all(store.run_log))[2] == item
        assert (await store.run_log.load("r1")).events[2] == item
        assert await store.run_log.scope("r1") == {"a": outputs}


async def test_texts_outside_the_outputs_may_be_large_too(
    open_store: OpenStore, tmp_path: Path
) -> None:
    first = started(document="d" * 100_000)
    failure = StepFinished("a", "a", "agent", "error", {}, error="e" * 100_000)
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), first)
        await store.run_log.append("r1", 1, [at(2, failure), at(3, Notice("n" * 100_000))])
        items = await read_all(store.run_log)
        assert items == [first, at(2, failure), at(3, Notice("n" * 100_000))]


@pytest.mark.parametrize(
    "forged",
    [
        [["outputs", "stdout"], "0" * 64, 70_000, "text"],
        '[[["outputs","stdout"],"0000","7","text"]]',
        {"$blob": "0" * 64},
        {"hash": "0" * 64, "form": "json"},
        None,
    ],
)
async def test_data_that_looks_like_a_reference_stays_data(
    open_store: OpenStore, tmp_path: Path, forged: object
) -> None:
    item = at(2, finished(stdout=forged, blobs=forged, text="x" * 70_000))
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [item])
        assert (await read_all(store.run_log))[1] == item


async def test_a_long_output_is_read_in_pages_that_split_no_character(
    open_store: OpenStore, tmp_path: Path
) -> None:
    text = "".join(chr(0x1F600 + n % 60) + "aé\n"[n % 3] for n in range(150_000))
    outputs = {"stdout": text, "short": "naïve", "data": {"n": 1}, "other": "o" * 70_000}
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [at(2, finished("loop[1]/agent-1", **outputs))])
        pages, offset = [], 0
        while True:
            page = await store.run_log.output_page("r1", "loop[1]/agent-1", "stdout", offset, 9_973)
            assert page.total == len(text)
            if not page.text:
                break
            assert page.offset == offset
            pages.append(page.text)
            offset += len(page.text)
        assert "".join(pages) == text

        async def read(field: str, offset: int, limit: int) -> str:
            page = await store.run_log.output_page("r1", "loop[1]/agent-1", field, offset, limit)
            return str(page.text)

        assert await read("short", 2, 2) == "ïv"
        assert await read("data", 0, 99) == '{"n":1}'
        assert await read("other", 69_999, 99) == "o"
        assert await read("stdout", 10**9, 5) == ""
        assert await read("stdout", -5, 2) == text[:2]
        with pytest.raises(NotFound, match="no output 'nope'; it has"):
            await read("nope", 0, 5)
        with pytest.raises(NotFound, match="no finished step 'agent-1'"):
            await store.run_log.output_page("r1", "agent-1", "stdout", 0, 5)


async def test_a_steps_latest_end_is_the_one_that_is_paged(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [at(2, finished("a", out="first"))])
        await store.run_log.append(
            "r1", 1, [at(3, finished("a", out="second")), at(4, passed("a/b"))]
        )
        assert (await store.run_log.output_page("r1", "a", "out", 0, 9)).text == "second"


async def test_an_output_inside_a_very_wide_step_can_be_paged(
    open_store: OpenStore, tmp_path: Path
) -> None:
    outputs = {f"k{n}": f"{n}" * 50_000 for n in range(40)} | {"big": "b" * 70_000}
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [at(2, finished("a", **outputs))])
        assert (await store.run_log.output_page("r1", "a", "k7", 0, 3)).text == "777"
        assert (await store.run_log.output_page("r1", "a", "big", 0, 3)).text == "bbb"


# -- surviving -------------------------------------------------------------------------------

APPENDING_CHILD = """
from infloop.model.events import Output, StepPassed
from support.stores import at, new_run, started

def item(seq):
    event = Output("a", "a", "x") if seq % 3 else StepPassed("a", "a", "branch", {}, "true", {})
    return at(seq, event)

async def main():
    async with open_store(folder) as store:
        await store.run_log.create_run(new_run(), started())
        print(1, flush=True)
        seq = 1
        while True:
            futures = []
            for _ in range(4):
                three = [item(seq + number) for number in (1, 2, 3)]
                seq += 3
                futures.append((seq, store.run_log.append("r1", 1, three)))
            for last, future in futures:
                await future
                print(last, flush=True)

asyncio.run(main())
"""


@pytest.mark.thorough
@pytest.mark.parametrize("acknowledgements", some([1, 2, 9, 60], one_in=2, first=1))
async def test_everything_acknowledged_survives_kill_9(
    implementation: str, open_store: OpenStore, tmp_path: Path, acknowledgements: int
) -> None:
    with start_child(APPENDING_CHILD, implementation, tmp_path) as child:
        assert child.stdout is not None
        for _ in range(acknowledgements):
            assert child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        assert child.wait(30) == -signal.SIGKILL
    acknowledged = int(rest[-1]) if rest else 1 + 3 * (acknowledgements - 1)

    async with open_store(tmp_path) as store:
        seqs = [item.seq for item in await read_all(store.run_log)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= acknowledged
        assert len(seqs) % 3 == 1, "an append is stored whole or not at all"


SHARING_CHILD = """
from infloop.model.events import RunFinished
from support.stores import at, new_run, started

async def main():
    sys.stdin.readline()  # all children begin together
    async with open_store(folder) as store:
        for number in range(20):
            run_id = f"{args[0]}-{number}"
            await store.run_log.create_run(new_run(run_id), started(run_id))
            await store.run_log.append(run_id, 1, [at(2, RunFinished("succeeded"), run_id)])

asyncio.run(main())
"""


async def test_processes_that_create_one_store_at_once_share_it(
    implementation: str, open_store: OpenStore, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    names = [f"p{number}" for number in range(3)]
    children = [start_child(SHARING_CHILD, implementation, data, name) for name in names]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
    assert [child.returncode for child in children] == [0, 0, 0]
    async with open_store(data) as store:
        assert await store.run_log.count(status="succeeded") == 60


@pytest.mark.thorough
@pytest.mark.parametrize("attempt", range(amount(1, thorough=4)))
async def test_a_new_store_may_be_opened_by_many_at_once(
    open_store: OpenStore, tmp_path: Path, attempt: int
) -> None:
    async with AsyncExitStack() as stack:
        opening = [
            stack.enter_async_context(open_store(tmp_path / f"data-{attempt}")) for _ in range(8)
        ]
        stores = await asyncio.gather(*opening)
        for number, store in enumerate(stores):
            await store.run_log.create_run(new_run(f"r{number}"), started(f"r{number}"))
        assert await stores[0].run_log.count() == 8


async def test_what_is_not_there_is_not_found(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for asked in (
            store.run_log.run("nope"),
            store.run_log.events("nope"),
            store.run_log.load("nope"),
            store.run_log.scope("nope"),
            store.run_log.output_page("nope", "a", "b", 0, 1),
            store.run_log.fork("nope", 5, new_run("r2")),
            store.run_log.append("nope", 1, [at(2, passed())]),
        ):
            with pytest.raises(NotFound):
                await asked
        assert await store.run_log.count() == 0
