"""kill -9 at any moment: what was acknowledged is there, and no finished step runs twice."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infloop.model.events import Recorded, RunFinished, StepFinished, StepPassed, StepStarted
from infloop.store.interfaces.run_log import RunLog
from support.forking import forker
from support.runs import scripted, world
from support.thorough import amount

KILLS = amount(8, thorough=60)
SHARDS = amount(1, thorough=4)


@dataclass
class Seen:
    """What the killed processes said before they died."""

    acknowledged: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)

    def hear(self, words: list[str]) -> None:
        match words:
            case ["began", run_id, used]:
                self.seeds[run_id] = int(used)
            case ["ack", run_id, seq, kind, *path]:
                place = (int(seq), kind, path[0] if path else "")
                self.acknowledged.setdefault(run_id, []).append(place)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_killed_at_random_points_nothing_is_lost_and_nothing_is_done_twice(
    tmp_path: Path, shard: int
) -> None:
    chance = random.Random(shard)
    scripted(
        tmp_path / "data/providers",
        "fake",
        {"do": [{"text": "word ", "times": 20}, {"cost": 0.01}]},
    )
    seen = Seen()
    with forker("run_driver.py", tmp_path) as children:
        seed = shard * 10_000
        while children.kills < KILLS:
            seed += 1
            children.run(seed, chance.randint(2, 25), seen.hear)
        # The last one takes up what is left and is let live.
        assert children.run(seed + 1, None, seen.hear)
    async with world(tmp_path) as here:
        assert await here.service.recover() == ([], [], [])
        run_log = here.service.store.run_log
        effects = Counter((tmp_path / "work/effects.log").read_text().splitlines())
        for run_id in seen.seeds:
            recorded = await _everything(run_log, run_id)
            row = await run_log.run(run_id)
            assert row.status == "succeeded", (run_id, row.error)
            _nothing_missing(seen.acknowledged.get(run_id, []), recorded)
            _nothing_twice(recorded)
            _effects_fit(effects, f"run{seen.seeds[run_id]}", recorded)
            assert sum(isinstance(r.event, RunFinished) for r in recorded) == 1


async def _everything(run_log: RunLog, run_id: str) -> list[Recorded]:
    recorded: list[Recorded] = []
    after = 0
    while batch := await run_log.events(run_id, after):
        recorded += batch
        after = batch[-1].seq
    return recorded


def _nothing_missing(acknowledged: list[tuple[int, str, str]], recorded: list[Recorded]) -> None:
    from infloop.model.events import event_type, step_path

    stored = {(r.seq, event_type(r.event), step_path(r.event)) for r in recorded}
    assert set(acknowledged) <= stored


def _nothing_twice(recorded: list[Recorded]) -> None:
    finished: set[str] = set()
    for item in recorded:
        event = item.event
        if isinstance(event, StepStarted):
            assert event.path not in finished, f"{event.path} began again after it had finished"
        elif isinstance(event, StepFinished | StepPassed):
            assert event.path not in finished, f"{event.path} finished twice"
            finished.add(event.path)


def _effects_fit(effects: Counter[str], run: str, recorded: list[Recorded]) -> None:
    """Every effect had a durable start before it, and every finished one happened."""
    started = Counter(_effect(r.event, run) for r in recorded if isinstance(r.event, StepStarted))
    finished = Counter(_effect(r.event, run) for r in recorded if isinstance(r.event, StepFinished))
    for name, count in started.items():
        if " command-" in name:
            assert finished[name] <= effects[name] <= count


def _effect(event: StepStarted | StepFinished, run: str) -> str:
    return f"{run} {event.node.split('/')[-1]}"
