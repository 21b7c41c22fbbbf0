"""What every journal promises about writing, fencing and reading back, and how SQLite keeps it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvloop
from hypothesis import given, settings
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
from infloop.store.base import Checkpoint, Journal, Ownership
from infloop.store.sqlite.database import open_for_writing
from infloop.store.sqlite.journal import JOURNAL_FILE, open_journal
from infloop.store.sqlite.migrations import MIGRATIONS, migrate, schema_version
from support.journals import (
    DEFINITION,
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
    from collections.abc import Iterable


# -- writing ---------------------------------------------------------------------------------


@every_journal
async def test_a_new_run_is_stored_with_its_definition_and_first_event(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        run = new_run(cause=Cause("webhook", "trigger t1"))
        assert await journal.create_run(run, started()) == 1

        loaded = await journal.load("r1")
        assert loaded.definition == DEFINITION
        assert loaded.checkpoint is None
        assert loaded.events == [started()]
        row = loaded.run
        assert (row.id, row.workflow_id, row.owner, row.epoch) == ("r1", "w", "me", 1)
        assert (row.status, row.started_at, row.finished_at) == ("running", 1000, None)
        assert row.cause == Cause("webhook", "trigger t1")
        assert (row.last_seq, row.events, row.steps) == (1, 1, 0)


@every_journal
async def test_a_run_id_is_used_once(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        with pytest.raises(StoreError, match="'r1' exists already"):
            await journal.create_run(new_run(), started())
        assert await journal.count() == 1


@every_journal
async def test_a_run_must_begin_with_the_event_that_names_its_definition(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        with pytest.raises(StoreError, match="must begin with"):
            await journal.create_run(new_run(definition=b"another"), started())
        with pytest.raises(NotFound):
            await journal.run("r1")


@every_journal
async def test_appended_events_come_back_in_order(opening: Any, tmp_path: Path) -> None:
    items = [
        at(2, StepStarted("agent-1", "agent-1", "agent", {"prompt": "hi"}, 3)),
        at(3, said("Hel")),
        at(4, said("lo\n")),
        at(5, TemplateWarning("b", "b", "lhs", "nope.x")),
        at(9, finished(stdout="Hello\n", n=10**30, nothing=None, ü="ß")),
        at(10, Notice("careful", level="warning")),
        at(11, RunFinished("succeeded")),
    ]
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        journal.append("r1", 1, items[:3])
        await journal.append("r1", 1, items[3:])

        assert await read_all(journal) == [started(), *items]
        assert await read_all(journal, limit=1) == [started(), *items]
        assert await journal.events("r1", 3, 9) == items[2:5]
        assert await journal.events("r1", include_output=False) == [
            started(), items[0], *items[3:],
        ]  # fmt: skip
        assert await journal.events("r1", 11) == []


@every_journal
async def test_what_is_not_awaited_is_stored_by_the_time_a_flush_returns(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        for seq in range(2, 50):
            journal.append("r1", 1, [at(seq, passed())])
        await journal.flush()
        assert [item.seq for item in await read_all(journal)] == list(range(1, 50))


@every_journal
async def test_closing_stores_what_is_queued(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        journal.append("r1", 1, [at(2, passed())])
    with pytest.raises(StoreError, match="closed"):
        journal.append("r1", 1, [at(3, passed())])
    async with await opening(tmp_path) as journal:
        assert len(await read_all(journal)) == 2


@every_journal
async def test_many_concurrent_appends_each_store_exactly_their_own(
    opening: Any, tmp_path: Path
) -> None:
    runs = [f"run-{number}" for number in range(40)]

    async def drive(journal: Journal, run_id: str) -> None:
        await journal.create_run(new_run(run_id), started(run_id))
        for seq in range(2, 30, 2):
            pair = [at(seq, passed(f"{run_id}[{seq}]"), run_id), at(seq + 1, said("x"), run_id)]
            await journal.append(run_id, 1, pair)

    async with await opening(tmp_path) as journal:
        async with asyncio.TaskGroup() as tasks:
            for run_id in runs:
                tasks.create_task(drive(journal, run_id))
        for run_id in runs:
            items = await read_all(journal, run_id)
            assert [item.seq for item in items] == list(range(1, 30))
            paths = {item.event.path for item in items if isinstance(item.event, StepPassed)}
            assert paths == {f"{run_id}[{seq}]" for seq in range(2, 30, 2)}


@every_journal
async def test_a_bad_append_fails_alone_among_those_committed_with_it(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        for run_id in ("r1", "r2", "r3"):
            await journal.create_run(new_run(run_id), started(run_id))
        good = journal.append("r1", 1, [at(2, passed(), "r1")])
        bad = journal.append("r2", 7, [at(2, passed(), "r2")])
        also_good = journal.append("r3", 1, [at(2, passed(), "r3")])
        await good
        await also_good
        with pytest.raises(Fenced):
            await bad
        assert [len(await read_all(journal, run_id)) for run_id in ("r1", "r2", "r3")] == [2, 1, 2]


@every_journal
@pytest.mark.parametrize("seqs", [(1,), (3, 2), (2, 2), (0,)])
async def test_sequence_numbers_only_grow(
    opening: Any, tmp_path: Path, seqs: tuple[int, ...]
) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        with pytest.raises(StoreError, match="sequence"):
            await journal.append("r1", 1, [at(seq, passed()) for seq in seqs])
        assert await read_all(journal) == [started()]


@every_journal
async def test_an_append_after_a_failed_one_fails_too_until_it_is_repeated(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        hole = at(2, finished(unstorable=object()))
        journal.append("r1", 1, [hole])
        with pytest.raises(TypeError):
            await journal.append("r1", 1, [at(3, passed())])
        with pytest.raises(TypeError):
            await journal.flush()
        assert await read_all(journal) == [started()]

        await journal.append("r1", 1, [at(2, passed())])
        await journal.append("r1", 1, [at(3, passed())])
        await journal.flush()
        assert [item.seq for item in await read_all(journal)] == [1, 2, 3]


@every_journal
async def test_half_a_surrogate_pair_does_not_stop_a_run(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        output = at(3, said("cut \ud83d off"))
        await journal.append("r1", 1, [at(2, finished(text="a\ud800b")), output])
        _, end, text = await read_all(journal)
        assert end.event == finished(text="a?b")
        assert text == output


@every_journal
async def test_the_row_keeps_count_and_says_how_the_run_ended(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        start = StepStarted("a", "a", "agent", {})
        await journal.append("r1", 1, [at(2, passed()), at(3, start), at(4, said("x" * 100))])
        row = await journal.run("r1")
        assert (row.status, row.last_seq, row.events, row.steps) == ("running", 4, 3, 1)
        assert row.output_bytes >= 100
        assert await journal.scope("r1") is None

        failure = "because\n" * 10_000
        end = at(6, RunFinished("failed", failure, "agent-1"), time=9000)
        await journal.append("r1", 1, [at(5, finished()), end], scope={"agent-1": {"ok": False}})
        row = await journal.run("r1")
        assert (row.status, row.finished_at, row.failed_step) == ("failed", 9006, "agent-1")
        assert (row.events, row.steps) == (5, 2)
        assert failure.startswith(row.error)
        assert len(row.error) < 10_000
        assert await journal.scope("r1") == {"agent-1": {"ok": False}}
        assert (await read_all(journal))[-1] == end


@every_journal
async def test_works_on_uvloop(opening: Any, tmp_path: Path) -> None:
    def elsewhere() -> list[Recorded]:
        async def main() -> list[Recorded]:
            async with await opening(tmp_path) as journal:
                await journal.create_run(new_run(), started())
                await journal.append("r1", 1, [at(2, passed())])
                return await read_all(journal)

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


@settings(max_examples=60)
@given(
    history=st.lists(st.lists(moments, min_size=1, max_size=12), max_size=6),
    limit=st.integers(1, 20),
    after=st.integers(0, 80),
)
def test_any_mixture_of_events_and_deltas_is_restored_exactly(
    history: list[list[tuple[Event | Output, int, int, str]]], limit: int, after: int
) -> None:
    chunks = list(recorded(history))
    expected = [started(), *(item for chunk in chunks for item in chunk)]

    async def check(directory: Path) -> None:
        async with await open_journal(directory, synchronous="NORMAL") as journal:
            await journal.create_run(new_run(), started())
            for chunk in chunks:
                journal.append("r1", 1, chunk)
            await journal.flush()
            assert await read_all(journal, limit=limit) == expected
            later = [item for item in expected if item.seq > after]
            assert await journal.events("r1", after, limit=limit) == later[:limit]
            between = [item for item in expected if after < item.seq <= after + 20]
            assert await journal.events("r1", after, after + 20) == between
            without = [item for item in expected if not isinstance(item.event, Output)]
            assert await journal.events("r1", include_output=False) == without
            assert (await journal.load("r1")).events == without

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(check(Path(directory)))


@every_journal
async def test_many_small_deltas_take_few_bytes_of_disk(opening: Any, tmp_path: Path) -> None:
    deltas = [at(seq, said(f"token{seq % 50} ")) for seq in range(2, 20_002)]
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        for start in range(0, len(deltas), 500):
            journal.append("r1", 1, deltas[start : start + 500])
        await journal.flush()
        assert (await read_all(journal))[1:] == deltas
    plain = sum(len(delta.event.text) for delta in deltas if isinstance(delta.event, Output))
    assert (tmp_path / JOURNAL_FILE).stat().st_size < 2 * plain


@every_journal
async def test_an_answer_stays_small_when_events_are_large(opening: Any, tmp_path: Path) -> None:
    large = [at(seq, finished(text=str(seq) + "é" * 9_000_000)) for seq in range(2, 6)]
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        for item in large:
            await journal.append("r1", 1, [item])
        page = await journal.events("r1", 1, limit=1000)
        assert 0 < len(page) < len(large)
        assert await read_all(journal) == [started(), *large]


# -- output cap ------------------------------------------------------------------------------


@every_journal
async def test_output_past_the_cap_is_dropped_with_one_mark(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path, output_cap=10_000) as journal:
        await journal.create_run(new_run(), started())
        kept = [at(2, said("x" * 9_000)), at(3, passed())]
        await journal.append("r1", 1, kept)
        await journal.append("r1", 1, [at(4, said("y" * 9_000)), at(5, passed("p5"))])
        await journal.append("r1", 1, [at(6, said("z"))])
        await journal.append("r1", 1, [at(7, said("z")), at(8, passed("p8"))])

        items = await read_all(journal)
        assert items[:3] == [started(), *kept]
        assert [item.seq for item in items] == [1, 2, 3, 4, 5, 8]
        mark = items[3]
        assert isinstance(mark.event, Notice)
        assert (mark.event.path, mark.event.level, mark.time) == ("agent-1", "warning", 5004)
        row = await journal.run("r1")
        assert (row.last_seq, row.events) == (8, 4)
        replayed = (await journal.load("r1")).events
        assert [item.seq for item in replayed] == [1, 3, 5, 8]


# -- fencing ---------------------------------------------------------------------------------


@every_journal
async def test_the_process_that_lost_a_run_can_write_nothing_more(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal, await opening(tmp_path) as other:
        await journal.create_run(new_run(owner="first"), started())
        await journal.append("r1", 1, [at(2, passed())])

        assert await other.take_over("r1", "second", expect_dead="first") == Ownership(2, 2)

        with pytest.raises(Fenced, match="belongs to 'second' since epoch 2"):
            await journal.append("r1", 1, [at(3, passed())])
        with pytest.raises(Fenced):
            await journal.checkpoint("r1", 1, 2, b"state")
        await other.append("r1", 2, [at(66, passed())])
        assert [item.seq for item in await read_all(journal)] == [1, 2, 66]
        assert (await journal.load("r1")).checkpoint is None


@every_journal
async def test_only_one_of_many_takes_over_a_dead_owners_run(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(owner="dead"), started())
        attempts = [journal.take_over("r1", f"p{n}", expect_dead="dead") for n in range(8)]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Fenced"] * 7 + ["Ownership"]
        assert (await journal.run("r1")).epoch == 2


@every_journal
async def test_force_takes_a_run_from_whoever_has_it(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), error="broken")
        assert await journal.take_over("r1", "me again", force=True) == Ownership(2, 2)
        row = await journal.run("r1")
        assert (row.status, row.error, row.finished_at) == ("running", "", None)
        with pytest.raises(UsageError):
            await journal.take_over("r1", "me")
        with pytest.raises(NotFound):
            await journal.take_over("no such run", "me", force=True)


# -- checkpoints -----------------------------------------------------------------------------


@every_journal
async def test_a_run_is_loaded_from_its_nearest_checkpoint(opening: Any, tmp_path: Path) -> None:
    large = os.urandom(100_000) + b"\0" * 100_000
    items = [at(seq, passed(f"p{seq}")) for seq in range(2, 21)]
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [*items[:9], at(11, said("ignored by replay"))])
        await journal.checkpoint("r1", 1, 10, b"small")
        await journal.append("r1", 1, items[10:15])
        await journal.checkpoint("r1", 1, 16, large)
        await journal.append("r1", 1, items[15:])

        now = await journal.load("r1")
        assert now.checkpoint == Checkpoint(16, large)
        assert now.events == items[15:]
        then = await journal.load("r1", until_seq=14)
        assert then.checkpoint == Checkpoint(10, b"small")
        assert then.events == items[10:13]
        begin = await journal.load("r1", until_seq=3)
        assert begin.checkpoint is None
        assert begin.events == [started(), *items[:2]]


# -- blobs -----------------------------------------------------------------------------------


@every_journal
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
    opening: Any, tmp_path: Path, outputs: dict[str, Any]
) -> None:
    item = at(3, finished(**outputs))
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [at(2, passed()), item, at(4, passed())])
        await journal.append("r1", 1, [at(5, RunFinished("succeeded"))], scope={"a": outputs})
        assert (await read_all(journal))[2] == item
        assert (await journal.load("r1")).events[2] == item
        assert await journal.scope("r1") == {"a": outputs}


@every_journal
async def test_texts_outside_the_outputs_may_be_large_too(opening: Any, tmp_path: Path) -> None:
    first = started(document="d" * 100_000)
    failure = StepFinished("a", "a", "agent", "error", {}, error="e" * 100_000)
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), first)
        await journal.append("r1", 1, [at(2, failure), at(3, Notice("n" * 100_000))])
        items = await read_all(journal)
        assert items == [first, at(2, failure), at(3, Notice("n" * 100_000))]


async def test_identical_large_texts_of_all_runs_are_stored_once(tmp_path: Path) -> None:
    noise = os.urandom(100_000).hex()
    async with await open_journal(tmp_path) as journal:
        for run_id in ("r1", "r2"):
            await journal.create_run(new_run(run_id), started(run_id))
            await journal.append(run_id, 1, [at(2, finished(stdout=noise), run_id)])
            finish = at(3, RunFinished("succeeded"), run_id)
            await journal.append(run_id, 1, [finish], scope={"agent-1": {"stdout": noise}})
        assert 0 < blob_bytes(tmp_path) <= len(noise)
        assert (await journal.scope("r2")) == {"agent-1": {"stdout": noise}}


@every_journal
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
    opening: Any, tmp_path: Path, forged: object
) -> None:
    item = at(2, finished(stdout=forged, blobs=forged, text="x" * 70_000))
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [item])
        assert (await read_all(journal))[1] == item


@every_journal
async def test_a_long_output_is_read_in_pages_that_split_no_character(
    opening: Any, tmp_path: Path
) -> None:
    text = "".join(chr(0x1F600 + n % 60) + "aé\n"[n % 3] for n in range(150_000))
    outputs = {"stdout": text, "short": "naïve", "data": {"n": 1}, "other": "o" * 70_000}
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [at(2, finished("loop[1]/agent-1", **outputs))])
        pages, offset = [], 0
        while True:
            page = await journal.output_page("r1", "loop[1]/agent-1", "stdout", offset, 9_973)
            assert page.total == len(text)
            if not page.text:
                break
            assert page.offset == offset
            pages.append(page.text)
            offset += len(page.text)
        assert "".join(pages) == text

        async def read(field: str, offset: int, limit: int) -> str:
            page = await journal.output_page("r1", "loop[1]/agent-1", field, offset, limit)
            return str(page.text)

        assert await read("short", 2, 2) == "ïv"
        assert await read("data", 0, 99) == '{"n":1}'
        assert await read("other", 69_999, 99) == "o"
        assert await read("stdout", 10**9, 5) == ""
        assert await read("stdout", -5, 2) == text[:2]
        with pytest.raises(NotFound, match="no output 'nope'; it has"):
            await read("nope", 0, 5)
        with pytest.raises(NotFound, match="no finished step 'agent-1'"):
            await journal.output_page("r1", "agent-1", "stdout", 0, 5)


@every_journal
async def test_a_steps_latest_end_is_the_one_that_is_paged(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [at(2, finished("a", out="first"))])
        await journal.append("r1", 1, [at(3, finished("a", out="second")), at(4, passed("a/b"))])
        assert (await journal.output_page("r1", "a", "out", 0, 9)).text == "second"


@every_journal
async def test_an_output_inside_a_very_wide_step_can_be_paged(opening: Any, tmp_path: Path) -> None:
    outputs = {f"k{n}": f"{n}" * 50_000 for n in range(40)} | {"big": "b" * 70_000}
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [at(2, finished("a", **outputs))])
        assert (await journal.output_page("r1", "a", "k7", 0, 3)).text == "777"
        assert (await journal.output_page("r1", "a", "big", 0, 3)).text == "bbb"


async def test_a_blob_is_read_by_its_hash(tmp_path: Path) -> None:
    import hashlib

    text = "é" * 200_000
    name = hashlib.sha256(text.encode()).hexdigest()
    async with await open_journal(tmp_path) as journal:
        await journal.create_run(new_run(), started())
        await journal.append("r1", 1, [at(2, finished(stdout=text))])
        assert await journal.read_blob(name, 199_990, 100) == ("é" * 10, 199_990, 200_000)
        assert (await journal.read_blob(name, 65_535, 2)).text == "éé"
        with pytest.raises(NotFound):
            await journal.read_blob("0" * 64, 0, 1)


# -- surviving -------------------------------------------------------------------------------

APPENDING_CHILD = """
import asyncio, sys
from pathlib import Path
from infloop.model.events import Output, Recorded, RunStarted, StepPassed
from infloop.store.base import NewRun, definition_hash
from infloop.store.sqlite.journal import open_journal

def at(seq):
    event = Output("a", "a", "x") if seq % 3 else StepPassed("a", "a", "branch", {}, "true", {})
    return Recorded("r1", seq, 1, "c", event)

async def main():
    async with await open_journal(Path(sys.argv[1])) as journal:
        begin = RunStarted("w", "W", definition_hash(b"d"), {}, "/")
        await journal.create_run(
            NewRun("r1", "w", "W", b"d", "child", 1, "c"), Recorded("r1", 1, 1, "c", begin)
        )
        print(1, flush=True)
        seq = 1
        while True:
            futures = []
            for _ in range(4):
                futures.append((seq + 3, journal.append("r1", 1, [at(seq + n) for n in (1, 2, 3)])))
                seq += 3
            for last, future in futures:
                await future
                print(last, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledgements", [1, 2, 9, 60])
async def test_everything_acknowledged_survives_kill_9(
    tmp_path: Path, acknowledgements: int
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", APPENDING_CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(acknowledgements):
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().splitlines()
    child.stdout.close()
    assert child.wait(30) == -signal.SIGKILL
    acknowledged = int(rest[-1]) if rest else 1 + 3 * (acknowledgements - 1)

    async with await open_journal(tmp_path) as journal:
        seqs = [item.seq for item in await read_all(journal)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= acknowledged
        assert len(seqs) % 3 == 1, "an append is stored whole or not at all"


def test_a_full_disk_fails_the_append_with_advice_and_later_ones_work(tmp_path: Path) -> None:
    async def main() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with await open_journal(tmp_path) as journal:
            await journal.create_run(new_run(), started())
            log = tmp_path / f"{JOURNAL_FILE}-wal"
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8192, hard))
            try:
                with pytest.raises(StoreError, match=r"journal.db.*disk.*space"):
                    await journal.append(
                        "r1", 1, [at(2, finished(noise=os.urandom(2_000_000).hex()))]
                    )
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert await read_all(journal) == [started()]
            with pytest.raises(StoreError, match="space"):
                await journal.append("r1", 1, [at(3, passed())])
            await journal.append("r1", 1, [at(2, passed())])
            assert len(await read_all(journal)) == 2

    asyncio.run(main())


SHARING_CHILD = """
import asyncio, sys
from pathlib import Path
from infloop.model.events import Recorded, RunFinished, RunStarted
from infloop.store.base import NewRun, definition_hash
from infloop.store.sqlite.journal import open_journal

async def main():
    me = sys.argv[2]
    sys.stdin.readline()  # all children begin together
    async with await open_journal(Path(sys.argv[1])) as journal:
        for number in range(20):
            run_id = f"{me}-{number}"
            begin = RunStarted("w", "W", definition_hash(b"d"), {}, "/")
            await journal.create_run(
                NewRun(run_id, "w", "W", b"d", me, 1, "c"), Recorded(run_id, 1, 1, "c", begin)
            )
            end = Recorded(run_id, 2, 2, "c", RunFinished("succeeded"))
            await journal.append(run_id, 1, [end])

asyncio.run(main())
"""


async def test_processes_that_create_one_directory_at_once_share_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SHARING_CHILD, str(data), f"p{number}"],
            stdin=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.close()
    assert [child.wait(60) for child in children] == [0, 0, 0]
    async with await open_journal(data) as journal:
        assert await journal.count(status="succeeded") == 60


@pytest.mark.parametrize("attempt", range(4))
async def test_a_new_database_may_be_opened_by_many_at_once(tmp_path: Path, attempt: int) -> None:
    opening = [open_journal(tmp_path / f"data-{attempt}") for _ in range(8)]
    journals = await asyncio.gather(*opening)
    for number, journal in enumerate(journals):
        await journal.create_run(new_run(f"r{number}"), started(f"r{number}"))
    assert await journals[0].count() == 8
    for journal in journals:
        await journal.close()


@every_journal
async def test_a_follower_in_another_process_sees_that_something_was_committed(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal, await opening(tmp_path) as follower:
        await journal.create_run(new_run(), started())
        seen, own = follower.version(), journal.version()
        assert (follower.version(), journal.version()) == (seen, own)
        await journal.append("r1", 1, [at(2, passed())])
        assert follower.version() != seen
        assert journal.version() != own
        assert (await follower.events("r1", 1)) == [at(2, passed())]


@every_journal
async def test_a_stop_request_reaches_the_owner_and_ends_with_the_run(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal, await opening(tmp_path) as other:
        await journal.create_run(new_run("r1", owner="i-1"), started("r1"))
        await journal.create_run(new_run("r2", owner="i-2"), started("r2"))
        assert await journal.pending_requests("i-1") == []
        await other.request_stop("r1", "tired \ud800", 77)
        (request,) = await journal.pending_requests("i-1")
        assert (request.run_id, request.reason, request.time) == ("r1", "tired ?", 77)
        assert await journal.pending_requests("i-2") == []
        await journal.append("r1", 1, [at(2, RunFinished("cancelled"))])
        await journal.take_over("r1", "i-1", force=True)
        assert await journal.pending_requests("i-1") == []
        with pytest.raises(NotFound):
            await other.request_stop("no such run", "", 1)


@every_journal
async def test_what_is_not_there_is_not_found(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        for asked in (
            journal.run("nope"),
            journal.events("nope"),
            journal.load("nope"),
            journal.scope("nope"),
            journal.output_page("nope", "a", "b", 0, 1),
            journal.fork("nope", 5, new_run("r2")),
            journal.append("nope", 1, [at(2, passed())]),
        ):
            with pytest.raises(NotFound):
                await asked
        assert await journal.count() == 0


# -- the database file -----------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_files_are_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    async def modes(data: Path) -> dict[str, int]:
        async with await open_journal(data) as journal:
            await journal.create_run(new_run(), started())
            return {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}

    before = os.umask(mask)
    try:
        found = asyncio.run(modes(tmp_path / "deep" / "data"))
    finally:
        os.umask(before)
    assert found == {f"{JOURNAL_FILE}{end}": 0o600 for end in ("", "-wal", "-shm")}
    for directory in (tmp_path / "deep", tmp_path / "deep" / "data"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_a_loose_database_file_is_tightened_and_the_users_directory_left_alone(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    async with await open_journal(tmp_path):
        pass
    (tmp_path / JOURNAL_FILE).chmod(0o666)
    async with await open_journal(tmp_path):
        assert stat.S_IMODE((tmp_path / JOURNAL_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


async def test_the_database_is_set_up_to_be_durable_and_to_shrink(tmp_path: Path) -> None:
    async with await open_journal(tmp_path) as journal:
        settings = {
            name: (await journal._writer.submit(partial(_pragma, name=name)))
            for name in ("journal_mode", "synchronous", "auto_vacuum", "foreign_keys")
        }
    assert settings == {
        "journal_mode": "wal", "synchronous": 2, "auto_vacuum": 2, "foreign_keys": 1,
    }  # fmt: skip


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


WITH_ROW_IDS = 6


def _events_as_before_row_ids(connection: sqlite3.Connection) -> list[Event | Output]:
    events = [started().event, finished(stdout="done")]
    for seq, event in enumerate(events, 1):
        connection.execute(
            "INSERT INTO stretch VALUES (1, ?, ?, 1, 0, 0, 'events', 'c', NULL, ?)",
            (seq, seq, b"\0" + msgspec.json.encode([(seq, 5, event)])),
        )
    return events


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_a_database_of_any_earlier_version_is_brought_up_to_date(
    tmp_path: Path, version: int
) -> None:
    connection = sqlite3.connect(tmp_path / JOURNAL_FILE, isolation_level=None)
    migrate(connection, "old", upto=version)
    assert schema_version(connection) == version
    if version:
        connection.execute("INSERT INTO definition VALUES ('h', x'00')")
        connection.execute(
            "INSERT INTO run (id, workflow_id, workflow_name, definition, correlation_id, cause,"
            " owner, epoch, status, started_at, last_seq, events, steps, output_bytes)"
            " VALUES ('old', 'w', 'W', 'h', 'c', '{}', 'o', 1, 'succeeded', 1, 0, 0, 0, 0)"
        )
    kept = _events_as_before_row_ids(connection) if 0 < version < WITH_ROW_IDS else []
    connection.close()
    async with await open_journal(tmp_path) as journal:
        assert await journal.count() == (1 if version else 0)
        if version:
            assert [item.event for item in await journal.events("old")] == kept
            assert await journal.prune("w", 0) == 1
        await settled(journal, new_run(), at(2, finished(stdout="needle")))
        (hit,) = await journal.search("needle")
        assert hit.run.id == "r1"
    opened = open_for_writing(tmp_path / JOURNAL_FILE, "FULL")
    assert schema_version(opened) == len(MIGRATIONS)
    opened.close()


async def test_a_database_of_a_newer_version_is_refused_by_number(tmp_path: Path) -> None:
    async with await open_journal(tmp_path):
        pass
    connection = sqlite3.connect(tmp_path / JOURNAL_FILE)
    with connection:
        connection.execute("UPDATE schema SET version = 99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99"):
        await open_journal(tmp_path)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreError, match="no database; move it away"):
        await open_journal(tmp_path)
    assert (tmp_path / JOURNAL_FILE).read_bytes().startswith(b"this is not")


async def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError, match="check the data directory"):
        await open_journal(tmp_path / "data")
