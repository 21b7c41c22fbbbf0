"""A long history: listing and searching among 10,000 runs, resuming a run of 100,000 rounds.

The data is made once for all rounds: 10,000 finished runs of twenty workflows, each with an agent's
answer of forty words, all indexed; a tenth and a hundredth of them in places of their own, to see
how the costs grow; and a run that was interrupted after 100,000 rounds of a loop.
Listing walks back page by page, fifty runs each, over all workflows and over one; a search looks
for two words that a few hundred runs have. The commands are measured as whole processes. A resumed
run finishes at its end, so each round resumes a copy.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import original
from application import agent, application, begin, loop, node, script, settings
from benchmark import Benchmark, Contender, Measure, Sample, Target, each, stopwatch, wall
from growth import Growth
from infloop.app import run_async
from infloop.app.storage import open_store
from infloop.engine.graph import Definition
from infloop.model.events import (
    Event,
    Output,
    Recorded,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)
from infloop.store.interfaces.run_log import NewRun, RunLog, definition_hash
from program import INFLOOP, measure_program

if TYPE_CHECKING:
    from benchmark import Rounds

WORKFLOWS = 20
WORDS = 2_000
ANSWER_WORDS = 40
PAGE = 50
PAGES = 20
ROUNDS_PER_RUN = 10  # 10,000 runs go with 100,000 rounds
AT_ONCE = 200
QUERY = "word17 word42"
RESUMED = "resumed"
SHARES = (100, 10, 1)


def place(folder: Path, share: int) -> Path:
    """Return where one in `share` of the runs are."""
    return folder / f"one-in-{share}"


def make_history(runs: int, folder: Path) -> None:
    """Make the data."""
    for share in SHARES:
        run_async(_make_runs(runs // share, place(folder, share)))
    run_async(_make_interrupted(runs * ROUNDS_PER_RUN, folder / RESUMED))


async def _make_runs(runs: int, folder: Path) -> None:
    chosen = random.Random(1)
    async with open_store(settings(folder)) as store:
        for first in range(0, runs, AT_ONCE):
            numbers = range(first, min(runs, first + AT_ONCE))
            made = [_make_run(store.run_log, number, chosen) for number in numbers]
            for run_id in await asyncio.gather(*made):
                await store.run_log.index_runs(run_id)


async def _make_run(run_log: RunLog, number: int, chosen: random.Random) -> str:
    """Store a run of one agent step, as the service would have."""
    name = f"workflow-{number % WORKFLOWS}"
    run_id = str(uuid.UUID(int=chosen.getrandbits(128)))
    tree = {"id": name, "name": name, "nodes": [], "edges": []}
    definition = Definition(name, {name: tree}).encode()
    answer = " ".join(f"word{chosen.randrange(WORDS)}" for _ in range(ANSWER_WORDS - 2))
    if number % 50 == 0:
        answer = f"{QUERY} {answer}"
    events: tuple[Event | Output, ...] = (
        RunStarted(name, name, definition_hash(definition), {"number": number}, "/"),
        StepStarted("a", "a", "agent", {"providerId": "scripted", "prompt": "go"}),
        Output("a", "a", answer),
        StepFinished("a", "a", "agent", "next", {"stdout": answer, "exitCode": 0}, 1),
        RunFinished("succeeded"),
    )
    began = 1_750_000_000_000 + number * 1_000
    first, *rest = (
        Recorded(run_id, place + 1, began + place, "cid_bench", event)
        for place, event in enumerate(events)
    )
    run = NewRun(run_id, name, name, definition, "bench", began, "cid_bench")
    await run_log.create_run(run, first, rest, scope={"a": {"stdout": answer}})
    return run_id


async def _make_interrupted(rounds: int, folder: Path) -> None:
    """Leave a run behind in the step after its loop."""
    unmet = node(
        "unmet",
        "condition",
        kind="sentinel",
        against="",
        sentinel={"pattern": "x", "isRegex": False},
    )
    script(folder, {"delayMs": 600_000})
    async with application(folder) as service:
        run_id = await begin(service, loop([unmet], "met", rounds, agent("a")), folder)
        async for batch in service.listen(run_id):
            if any(isinstance(r.event, StepStarted) and r.event.path == "a" for r in batch):
                break
    script(folder, {"text": "ok"})
    (folder / "run").write_text(run_id)


def measure_listing(runs: int, folder: Path) -> Sample:
    """Walk back through all runs."""
    return run_async(_measure_listing(place(folder, 1), None))


def measure_listing_of_one(runs: int, folder: Path) -> Sample:
    """Walk back through the runs of one workflow."""
    return run_async(_measure_listing(place(folder, 1), "workflow-7"))


async def _measure_listing(folder: Path, workflow: str | None) -> Sample:
    async with open_store(settings(folder)) as store:
        before = None
        pages = 0
        with stopwatch(1) as sample:
            for _ in range(PAGES):
                page = await store.run_log.runs(workflow_id=workflow, limit=PAGE, before=before)
                if not page:
                    break
                before = page[-1].cursor
                pages += 1
        sample.count = pages
    return sample


def measure_search(share: int) -> Measure:
    """Return how looking for two words is measured."""
    return lambda _, folder: run_async(_measure_search(place(folder, share)))


async def _measure_search(folder: Path) -> Sample:
    async with open_store(settings(folder)) as store:
        with stopwatch(1) as sample:
            found = await store.run_log.search(QUERY)
        if not found:
            raise RuntimeError("the search found nothing")
    return sample


def measure_command(share: int, *arguments: str) -> Measure:
    """Return how a command is measured, as a whole process."""
    return lambda _, folder: measure_program([INFLOOP, *arguments], place(folder, share))


def measure_resume(runs: int, folder: Path) -> Sample:
    """Resume a copy of the interrupted run with the command, and see it end."""
    run_id = (folder / RESUMED / "run").read_text()
    with tempfile.TemporaryDirectory(dir=folder) as here:
        data = shutil.copytree(folder / RESUMED / "data", Path(here, "data"))
        return measure_program([INFLOOP, "resume", run_id], folder, data_dir=data)


def measure_resume_inside(runs: int, folder: Path) -> Sample:
    """Do the same inside a process that is already there, and show nothing."""
    return run_async(_measure_resume_inside(folder))


async def _measure_resume_inside(folder: Path) -> Sample:
    run_id = (folder / RESUMED / "run").read_text()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        shutil.copytree(folder / RESUMED / "data", here / "data")
        with stopwatch(1) as sample:
            async with application(here) as service:
                await service.resume(run_id)
                finished = await service.wait(run_id)
    if finished.status != "succeeded":
        raise RuntimeError(f"the run {finished.status}: {finished.error}")
    return sample


def contender(what: str, share: int) -> str:
    """Return the name of a measurement among one in `share` of the runs."""
    return f"{what}, {10_000 // share:,} runs"


LISTING, LISTING_OF_ONE, RESUME = "list, a page", "list, a page of one workflow", "infloop resume"
SEARCH, RUNS, RUNS_SEARCH = "search", "infloop runs", "infloop runs --search"

GROWTH = tuple(
    Growth(what, "runs", {10_000 // share: contender(what, share) for share in SHARES}, wall)
    for what in (SEARCH, RUNS, RUNS_SEARCH)
)

BENCHMARK = Benchmark(
    title="History of 10,000 runs; a run of 100,000 rounds",
    unit="answer",
    alike=False,
    contenders=(
        Contender(LISTING, measure_listing),
        Contender(LISTING_OF_ONE, measure_listing_of_one),
        *(
            Contender(contender(what, share), measure)
            for share in SHARES
            for what, measure in (
                (SEARCH, measure_search(share)),
                (RUNS, measure_command(share, "runs")),
                (RUNS_SEARCH, measure_command(share, "runs", "--search", QUERY)),
            )
        ),
        Contender("resume, in the process", measure_resume_inside),
        Contender(RESUME, measure_resume),
    ),
    targets=(
        Target("list, a page", each(LISTING, wall, 1e3), 50, "ms"),
        Target("list, a page of one workflow", each(LISTING_OF_ONE, wall, 1e3), 50, "ms"),
        Target("infloop resume, whole process", each(RESUME, wall), 2, "s"),
    ),
    size=10_000,
    quick_size=1_000,
    prepare=make_history,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [original.row(original.SEARCH, each(contender(RUNS_SEARCH, 1), wall)(rounds))]
