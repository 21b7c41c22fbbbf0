"""The contract of every run log: full-text search."""

from __future__ import annotations

from pathlib import Path

from infloop.model.events import Notice, RunFinished, StepStarted
from infloop.store.encoding.documents import RUN_DOCUMENTS
from infloop.store.interfaces.run_log import (
    RunLog,
)
from support.stores import (
    OpenStore,
    at,
    finished,
    new_run,
    said,
    settled,
    started,
)


async def found(run_log: RunLog, query: str) -> list[str]:
    return [hit.run.id for hit in await run_log.search(query)]


async def test_inputs_outputs_errors_and_logs_are_found_with_their_place(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started(topic="aardvarks"))
        await store.run_log.append("r1", 1, [
            at(2, StepStarted("loop[1]/a", "a", "agent", {"prompt": "describe badgers"})),
            at(3, said("I see che", "loop[1]/a")),
            at(4, said("etahs running", "loop[1]/a")),
            at(5, Notice("dingoes ahead", "loop[1]/a", "a")),
            at(6, finished("loop[1]/a", answer={"animals": ["elephants", 7]})),
            at(7, RunFinished("failed", "no more foxes", "loop[1]/a")),
        ])  # fmt: skip
        for word, path, kind in (
            ("aardvarks", "", "input"),
            ("badgers", "loop[1]/a", "input"),
            ("cheetahs", "loop[1]/a", "log"),
            ("dingoes", "loop[1]/a", "log"),
            ("elephants", "loop[1]/a", "output"),
            ("foxes", "loop[1]/a", "error"),
        ):
            (hit,) = await store.run_log.search(word)
            assert (hit.run.id, hit.path, hit.kind, hit.matches) == ("r1", path, kind, 1)
            assert [hit.snippet[begin:end] for begin, end in hit.marks] == [word]


async def test_runs_come_newest_first_each_with_its_shortest_match(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for run_id, begun in (("old", 1), ("new", 9), ("middle", 5)):
            await settled(
                store.run_log,
                new_run(run_id, started_at=begun),
                at(2, finished("far", text="needle " + "hay " * 500), run_id),
                at(3, finished("near", text="needle"), run_id),
            )
        hits = await store.run_log.search("needle")
        assert [hit.run.id for hit in hits] == ["new", "middle", "old"]
        assert {(hit.path, hit.matches) for hit in hits} == {("near", 2)}
        assert [hit.run.id for hit in await store.run_log.search("needle", limit=2)] == [
            "new",
            "middle",
        ]


MATCHES = [
    ("quick", True),
    ("QUICK", True),
    ("quick fox", True),
    ("fox quick", True),
    ("qui", True),
    ("quick fo", True),
    ("qui fox", False),
    ('"quick brown"', True),
    ('"brown quick"', False),
    ('"quick bro"', False),
    ('"quick bro', True),
    ('fox "quick brown" ju', True),
    ('"quick brown" cat', False),
    ("cafe", True),
    ("naïve", True),
    ("foo_bar-baz", True),
    ("日本", True),
    ("cat", False),
]


async def test_words_prefixes_and_phrases(open_store: OpenStore, tmp_path: Path) -> None:
    text = "The quick brown fox jumps. Café, naive. foo_bar-baz 日本語"
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), at(2, finished(text=text)))
        answers = [(query, await found(store.run_log, query) == ["r1"]) for query, _ in MATCHES]
        assert answers == MATCHES


ODD_QUERIES = [
    "", " ", '"', '""', '"""', "*", "***", '"*', "-", "--", "^", "NEAR(", "NEAR(a b, 3)",
    "a AND", "OR", "NOT", "AND OR NOT", "text:fox", "body: fox", "{body} : fox", "- fox", "(",
    ")", "(fox", "fox)", "';--", "' OR 1=1", "fox\x00cat", "\x00", "\x02\x03", "\ud800",
    "fox + cat", "a" * 100_000, "fox " * 10_000, '"' * 999, "\u202e", "%", "_", "\\", "\\\"",
    "😀", "́", "fox*cat", "fox\ncat", "rank:1", "document_words", "…",
]  # fmt: skip


async def test_any_text_is_a_safe_query(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), at(2, finished(text="a fox and a cat")))
        for query in ODD_QUERIES:
            assert {hit.run.id for hit in await store.run_log.search(query)} <= {"r1"}, query
        assert await found(store.run_log, "fox") == ["r1"]


async def test_a_search_catches_up_on_runs_that_grew(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.run_log.create_run(new_run(), started(word="early"))
        assert await found(store.run_log, "early") == ["r1"]
        assert await found(store.run_log, "later") == []
        await store.run_log.append("r1", 1, [at(2, finished(word="later"))])
        assert await found(store.run_log, "later") == ["r1"]
        assert await found(store.run_log, "early") == ["r1"]
        (hit,) = await store.run_log.search("early")
        assert hit.matches == 1, "indexing again replaces what was there"


async def test_a_search_catches_up_on_hundreds_of_runs_at_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    names = [f"run-{number:03}" for number in range(250)]
    async with open_store(tmp_path) as store:
        for name in names:
            await settled(
                store.run_log, new_run(name), at(2, finished(text=f"needle in {name}"), name)
            )
        assert {hit.run.id for hit in await store.run_log.search("needle", limit=999)} == set(names)
        assert await found(store.run_log, "run-249") == ["run-249"]


async def test_an_indexed_run_is_found_by_another_process(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        await settled(store.run_log, new_run(), at(2, finished(word="needle")))
        await store.run_log.index_runs("r1")
        await other.run_log.index_runs("r1")
        (hit,) = await other.run_log.search("needle")
        assert (hit.run.id, hit.matches) == ("r1", 1)


async def test_a_forgotten_run_is_found_no_more(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for run_id, begun in (("r1", 1), ("r2", 2)):
            await settled(
                store.run_log,
                new_run(run_id, started_at=begun),
                at(2, finished(word=f"needle {run_id}"), run_id),
            )
        assert await found(store.run_log, "needle") == ["r2", "r1"]
        await store.run_log.prune("w", 1)
        assert await found(store.run_log, "needle") == ["r2"]
        assert await found(store.run_log, "r1") == []


async def test_of_a_long_text_head_and_tail_are_searchable(
    open_store: OpenStore, tmp_path: Path
) -> None:
    filler = [at(seq, said("filler text " * 1000)) for seq in range(3, 60)]
    async with open_store(tmp_path) as store:
        log = [at(2, said("headword ")), *filler, at(60, said("tailword"))]
        log.insert(30, at(31, said("middleword ")))
        log = [at(seq, item.event) for seq, item in enumerate(log, 2)]
        await settled(store.run_log, new_run(), *log)
        assert await found(store.run_log, "headword") == ["r1"]
        assert await found(store.run_log, "tailword") == ["r1"]
        assert await found(store.run_log, "middleword") == []


async def test_a_run_with_very_many_steps_is_indexed_in_part_and_by_its_error(
    open_store: OpenStore, tmp_path: Path
) -> None:
    steps = [at(seq, finished(f"loop[{seq}]/a", n=f"word{seq}")) for seq in range(2, 4_000)]
    async with open_store(tmp_path) as store:
        await settled(store.run_log, new_run(), *steps, error="the final straw")
        assert await found(store.run_log, "word2") == ["r1"]
        assert await found(store.run_log, "word3999") == []
        assert await found(store.run_log, "straw") == ["r1"]
        (hit,) = await store.run_log.search("n")
        assert hit.matches <= RUN_DOCUMENTS


async def test_snippets_hold_no_control_characters(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        text = "\x1b[31mred\x02fake\x03\x00 needle \x9b31m end"
        await settled(store.run_log, new_run(), at(2, said(text)))
        (hit,) = await store.run_log.search("needle")
        assert all(character.isprintable() or character == "\n" for character in hit.snippet)
        assert [hit.snippet[begin:end] for begin, end in hit.marks] == ["needle"]
