"""Full-text search over runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from infloop.model.events import Notice, RunFinished, StepStarted
from infloop.store.sqlite import search
from support.journals import at, every_journal, finished, new_run, said, settled, started

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.store.base import Journal


async def found(journal: Journal, query: str) -> list[str]:
    return [hit.run.id for hit in await journal.search(query)]


@every_journal
async def test_inputs_outputs_errors_and_logs_are_found_with_their_place(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started(topic="aardvarks"))
        await journal.append("r1", 1, [
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
            (hit,) = await journal.search(word)
            assert (hit.run.id, hit.path, hit.kind, hit.places) == ("r1", path, kind, 1)
            assert [hit.snippet[begin:end] for begin, end in hit.marks] == [word]


@every_journal
async def test_runs_come_newest_first_each_with_its_best_place(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        for run_id, begun in (("old", 1), ("new", 9), ("middle", 5)):
            await settled(
                journal,
                new_run(run_id, started_at=begun),
                at(2, finished("far", text="needle " + "hay " * 500), run_id),
                at(3, finished("near", text="needle"), run_id),
            )
        hits = await journal.search("needle")
        assert [hit.run.id for hit in hits] == ["new", "middle", "old"]
        assert {(hit.path, hit.places) for hit in hits} == {("near", 2)}
        assert [hit.run.id for hit in await journal.search("needle", limit=2)] == ["new", "middle"]


@every_journal
@pytest.mark.parametrize(
    ("query", "matches"),
    [
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
    ],
)
async def test_words_prefixes_and_phrases(
    opening: Any, tmp_path: Path, query: str, matches: bool
) -> None:
    text = "The quick brown fox jumps. Café, naive. foo_bar-baz 日本語"
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), at(2, finished(text=text)))
        assert await found(journal, query) == (["r1"] if matches else [])


@every_journal
@pytest.mark.parametrize(
    "query",
    [
        "", " ", '"', '""', '"""', "*", "***", '"*', "-", "--", "^", "NEAR(", "NEAR(a b, 3)",
        "a AND", "OR", "NOT", "AND OR NOT", "text:fox", "body: fox", "{body} : fox", "- fox", "(",
        ")", "(fox", "fox)", "';--", "' OR 1=1", "fox\x00cat", "\x00", "\x02\x03", "\ud800",
        "fox + cat", "a" * 100_000, "fox " * 10_000, '"' * 999, "\u202e", "%", "_", "\\", "\\\"",
        "😀", "́", "fox*cat", "fox\ncat", "rank:1", "document_words", "…",
    ],
)  # fmt: skip
async def test_any_text_is_a_safe_query(opening: Any, tmp_path: Path, query: str) -> None:
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), at(2, finished(text="a fox and a cat")))
        for hit in await journal.search(query):
            assert hit.run.id == "r1"
        assert await found(journal, "fox") == ["r1"]


@every_journal
async def test_a_search_catches_up_on_runs_that_grew(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        await journal.create_run(new_run(), started(word="early"))
        assert await found(journal, "early") == ["r1"]
        assert await found(journal, "later") == []
        await journal.append("r1", 1, [at(2, finished(word="later"))])
        assert await found(journal, "later") == ["r1"]
        assert await found(journal, "early") == ["r1"]
        (hit,) = await journal.search("early")
        assert hit.places == 1, "indexing again replaces what was there"


@every_journal
async def test_a_search_catches_up_on_hundreds_of_runs_at_once(
    opening: Any, tmp_path: Path
) -> None:
    names = [f"run-{number:03}" for number in range(250)]
    async with await opening(tmp_path) as journal:
        for name in names:
            await settled(journal, new_run(name), at(2, finished(text=f"needle in {name}"), name))
        assert {hit.run.id for hit in await journal.search("needle", limit=999)} == set(names)
        assert await found(journal, "run-249") == ["run-249"]


@every_journal
async def test_an_indexed_run_is_found_by_another_process(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal, await opening(tmp_path) as other:
        await settled(journal, new_run(), at(2, finished(word="needle")))
        await journal.index_run("r1")
        await other.index_run("r1")
        (hit,) = await other.search("needle")
        assert (hit.run.id, hit.places) == ("r1", 1)


@every_journal
async def test_a_forgotten_run_is_found_no_more(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        for run_id, begun in (("r1", 1), ("r2", 2)):
            await settled(
                journal,
                new_run(run_id, started_at=begun),
                at(2, finished(word=f"needle {run_id}"), run_id),
            )
        assert await found(journal, "needle") == ["r2", "r1"]
        await journal.prune("w", 1)
        assert await found(journal, "needle") == ["r2"]
        assert await found(journal, "r1") == []


@every_journal
async def test_of_a_long_text_head_and_tail_are_searchable(opening: Any, tmp_path: Path) -> None:
    filler = [at(seq, said("filler text " * 1000)) for seq in range(3, 60)]
    async with await opening(tmp_path) as journal:
        log = [at(2, said("headword ")), *filler, at(60, said("tailword"))]
        log.insert(30, at(31, said("middleword ")))
        log = [at(seq, item.event) for seq, item in enumerate(log, 2)]
        await settled(journal, new_run(), *log)
        assert await found(journal, "headword") == ["r1"]
        assert await found(journal, "tailword") == ["r1"]
        assert await found(journal, "middleword") == []


@every_journal
async def test_a_run_with_very_many_steps_is_indexed_in_part_and_by_its_error(
    opening: Any, tmp_path: Path
) -> None:
    steps = [at(seq, finished(f"loop[{seq}]/a", n=f"word{seq}")) for seq in range(2, 4_000)]
    async with await opening(tmp_path) as journal:
        await settled(journal, new_run(), *steps, error="the final straw")
        assert await found(journal, "word2") == ["r1"]
        assert await found(journal, "word3999") == []
        assert await found(journal, "straw") == ["r1"]
        (hit,) = await journal.search("n")
        assert hit.places <= search.RUN_DOCUMENTS


@every_journal
async def test_snippets_hold_no_control_characters(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        text = "\x1b[31mred\x02fake\x03\x00 needle \x9b31m end"
        await settled(journal, new_run(), at(2, said(text)))
        (hit,) = await journal.search("needle")
        assert all(character.isprintable() or character == "\n" for character in hit.snippet)
        assert [hit.snippet[begin:end] for begin, end in hit.marks] == ["needle"]
