"""Runs through the service: stopping, resuming, rewinding, listening, limits."""

from __future__ import annotations

import asyncio
import gc
import resource
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from infloop.errors import UsageError, WorkflowError
from infloop.model.events import Notice, Output, Recorded, RunResumed, StepStarted
from infloop.runtime.clock import SetClock
from infloop.runtime.runs.feed import Feed
from infloop.runtime.runs.recorder import MAX_IN_FLIGHT, Recorder
from infloop.settings import load_settings
from infloop.store.interfaces.run_log import RunLog
from infloop.store.sqlite.store import DATABASE_FILE
from support.eventually import eventually_async
from support.runs import scripted, world
from support.thorough import amount
from support.workflows import agent, edges, node, workflow

START = node("s", "start")
END = node("e", "end", outcome="succeeded")


def unmet(id: str = "c") -> dict[str, Any]:
    return node(
        id, "condition", kind="sentinel", against="", sentinel={"pattern": "x", "isRegex": False}
    )


def loop(*children: dict[str, Any], **config: Any) -> dict[str, Any]:
    return node("l", "loop", list(children), **config)


async def started(here: Any, run_id: str, path: str) -> None:
    """Wait until a step has begun."""
    async with asyncio.timeout(30):
        async for batch in here.service.listen(run_id):
            if any(isinstance(r.event, StepStarted) and r.event.path == path for r in batch):
                return


async def test_every_event_says_which_run_when_where_and_why(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "hi"}]})
    async with world(tmp_path) as here:
        done = await here.run(workflow([START, agent("a")], edges("s next a")))
    assert [r.seq for r in done.recorded] == sorted({r.seq for r in done.recorded})
    assert {r.run_id for r in done.recorded} == {done.run_id}
    assert len({r.correlation_id for r in done.recorded}) == 1
    assert done.recorded[0].correlation_id.startswith("cid_")
    assert all(r.time > 1_700_000_000_000 for r in done.recorded)


@pytest.mark.parametrize("kind", ["command", "judge", "agent", "script"])
async def test_a_stop_interrupts_every_kind_of_effect_and_is_cancelled(
    tmp_path: Path, kind: str
) -> None:
    slow = {"do": [{"delayMs": 600_000}]}
    scripted(tmp_path / "data/providers", "fake", slow)
    made = {
        "command": node(
            "n", "condition", kind="command", command={"cmd": "sleep 600", "timeoutMs": 0}
        ),
        "judge": node("n", "judge", candidates=["a", "b"], criteria="x", providerId="fake"),
        "agent": node("n", "agent", providerId="fake", prompt="x"),
        "script": node(
            "n", "script", language="py", code="import time\ndef run(): time.sleep(600)"
        ),
    }[kind]
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, made], edges("s next n")))
        await started(here, run_id, "n")
        await here.service.stop(run_id, "enough")
        async with asyncio.timeout(30):
            done = await here.finish(run_id)
    assert done.status == "cancelled"
    assert "enough" in done.result.error


async def test_a_run_without_effects_has_ended_when_it_is_created(tmp_path: Path) -> None:
    rounds = workflow([START, loop(unmet(), maxIterations=3), END], edges("s next l", "l next e"))
    async with world(tmp_path) as here:
        run_id = await here.start(rounds)
        row = await here.service.store.run_log.run(run_id)
        assert (row.status, row.steps) == ("succeeded", 6)
        done = await here.finish(run_id)
        assert [r.seq for r in done.recorded] == [*range(1, len(done.recorded) + 1)]
        assert "c" in done.scope
        assert await here.service.wait(run_id) == done.result
        assert not here.service.live()


async def test_an_infinite_loop_without_effects_gives_way_and_can_be_stopped(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, max_run_node_executions=0) as here:
        run_id = await here.start(
            workflow([START, loop(unmet(), infinite=True)], edges("s next l"))
        )
        other = await here.run(workflow([START, END], edges("s next e"), id="other"))
        assert other.status == "succeeded"
        await here.service.stop(run_id, "enough")
        async with asyncio.timeout(30):
            assert (await here.service.wait(run_id)).status == "cancelled"


@pytest.mark.claim("I46", "I53")
async def test_the_operators_ceiling_fails_an_unbounded_run(tmp_path: Path) -> None:
    async with world(tmp_path, max_run_node_executions=300) as here:
        done = await here.run(workflow([START, loop(unmet(), infinite=True)], edges("s next l")))
    assert done.status == "failed"
    assert "limit of 300 node executions" in done.result.error


@pytest.mark.claim("I47")
@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"INFLOOP_MAX_RUN_DURATION_MS": "100"}, "failed"),
        ({"INFLOOP_MAX_RUN_DURATION_MS": "0"}, "succeeded"),
        ({}, "succeeded"),
    ],
    ids=["100 ms", "none", "a day"],
)
async def test_the_operators_duration_is_checked_between_steps(
    tmp_path: Path, variables: dict[str, str], status: str
) -> None:
    chosen = load_settings(variables).max_run_duration_ms
    assert variables or chosen == 86_400_000
    nap = node("n", "condition", kind="command", command={"cmd": "sleep 0.15"})
    late = node("late", "condition", kind="command", command={"cmd": f"touch {tmp_path}/late"})
    tree = workflow([START, nap, late, END], edges("s next n met late met e"))
    async with world(tmp_path, max_run_duration_ms=chosen) as here:
        done = await here.run(tree)
    assert done.status == status
    assert ("limit of 100 ms" in (done.result.error or "")) is (status == "failed")
    assert done.scope["n"]["met"] is True  # a step that has begun ends
    assert (tmp_path / "late").exists() is (status == "succeeded")


@pytest.mark.parametrize(("asked", "expected"), [(50, 50), (5000, 300), (0, 300)])
async def test_a_workflow_may_tighten_a_limit_and_never_widen_it(
    tmp_path: Path, asked: int, expected: int
) -> None:
    tree = workflow(
        [START, loop(unmet(), infinite=True)],
        edges("s next l"),
        limits={"maxNodeExecutions": asked},
    )
    async with world(tmp_path, max_run_node_executions=300) as here:
        done = await here.run(tree)
    assert f"limit of {expected} node" in done.result.error


@pytest.mark.parametrize("level", ["guard", "sandbox", "container"])
async def test_a_workflow_that_asks_for_more_isolation_than_there_is_does_not_run(
    tmp_path: Path, level: str
) -> None:
    tree = workflow([START, END], edges("s next e"), isolation=level)
    async with world(tmp_path) as here:
        with pytest.raises(WorkflowError, match=f"asks for isolation '{level}'"):
            await here.start(tree)
        assert await here.service.store.run_log.count() == 0


@pytest.mark.claim("I48")
async def test_a_run_fails_once_its_reported_cost_passes_the_operators_limit(
    tmp_path: Path,
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 0.4}, {"text": "hm"}]})
    judged = node("c", "condition", kind="judge", judge={"rubric": "r", "providerId": "fake"})
    tree = workflow([START, loop(agent("a"), judged, infinite=True)], edges("s next l", "a next c"))
    async with world(tmp_path, max_run_cost_usd=1.5) as here:
        done = await here.run(tree)
    assert done.status == "failed"
    assert "spent $1.6000, more than its limit of $1.5000" in done.result.error


async def test_no_effect_begins_before_its_start_is_durable(tmp_path: Path) -> None:
    """While another process holds the database, what could not be written is not done either."""
    wait = node("a", "condition", kind="command",
                command={"cmd": "until test -f go; do sleep 0.01; done"})  # fmt: skip
    touch = node("b", "condition", kind="command", command={"cmd": "touch done"})
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, wait, touch], edges("s next a met b")))
        await started(here, run_id, "a")
        other = sqlite3.connect(here.settings.data_dir / DATABASE_FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        (here.folder / "go").touch()
        await asyncio.sleep(0.5)  # not a wait for anything: time in which it must not happen
        assert not (here.folder / "done").exists()
        other.execute("ROLLBACK")
        other.close()
        done = await here.finish(run_id)
    assert done.status == "succeeded"
    assert (tmp_path / "work/done").exists()


class SlowDisk:
    """A journal whose writes are durable when the test says so."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Future[None]] = []

    def append(self, *_: object, **__: object) -> asyncio.Future[None]:
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]


async def test_an_event_is_published_when_it_is_durable_and_no_sooner() -> None:
    disk, published = SlowDisk(), list[Recorded]()

    async def nothing(_after_seq: int, _limit: int) -> list[Recorded]:
        return []

    recorder = Recorder(
        run_log=cast("RunLog", disk),
        feed=Feed(nothing, 0, published.append),
        clock=SetClock(1),
        run_id="r",
        correlation_id="c",
        epoch=1,
        seq=0,
        on_failure=lambda error: None,
    )
    for number in range(3):  # each is recorded while the one before is still being written
        recorder.event(Notice(str(number)))
        recorder.write()
    for number, write in enumerate(disk.writes):
        write.set_result(None)
        await asyncio.sleep(0)
        assert [each.seq for each in published] == [*range(1, number + 2)]


async def test_a_step_that_is_stopped_before_its_start_is_durable_never_begins(
    tmp_path: Path,
) -> None:
    wait = node("a", "condition", kind="command",
                command={"cmd": "until test -f go; do sleep 0.01; done"})  # fmt: skip
    touch = node("b", "condition", kind="command", command={"cmd": "touch done"})
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, wait, touch], edges("s next a met b")))
        await started(here, run_id, "a")
        other = sqlite3.connect(here.settings.data_dir / DATABASE_FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        (here.folder / "go").touch()

        def is_planned() -> bool:
            progress = here.service.progress(run_id)
            return progress is not None and "b" in progress.nodes

        await eventually_async(is_planned, "step b waits for its start to be durable")
        await here.service.stop(run_id, "enough")
        other.execute("ROLLBACK")
        other.close()
        done = await here.finish(run_id)
    assert done.status == "cancelled"
    assert not (tmp_path / "work/done").exists()


async def test_a_run_that_is_going_on_is_not_resumed(tmp_path: Path) -> None:
    wait = node("a", "condition", kind="command",
                command={"cmd": "until test -f go; do sleep 0.01; done"})  # fmt: skip
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, wait], edges("s next a")))
        await started(here, run_id, "a")
        with pytest.raises(UsageError, match="is running"):
            await here.service.resume(run_id)
        (here.folder / "go").touch()
        done = await here.finish(run_id)
    assert done.status == "succeeded"
    assert [e for e in done.events if isinstance(e, RunResumed)] == []


async def test_a_process_that_lost_its_run_stops_working_on_it(tmp_path: Path) -> None:
    wait = node("a", "condition", kind="command",
                command={"cmd": "until test -f go; do sleep 0.01; done"})  # fmt: skip
    touch = node("b", "condition", kind="command", command={"cmd": "touch done"})
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, wait, touch], edges("s next a met b")))
        await started(here, run_id, "a")
        run_log = here.service.store.run_log
        await run_log.take_over(run_id, "another process", force=True)
        (here.folder / "go").touch()
        await eventually_async(lambda: run_id not in here.service.live(), "it is let go")
        assert (await run_log.run(run_id)).owner == "another process"
    assert not (tmp_path / "work/done").exists()


async def test_an_interrupted_run_is_recorded_as_failed_once_and_can_be_resumed(
    tmp_path: Path,
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    first = node("c", "condition", kind="command", command={"cmd": "echo once >> log"})
    tree = workflow([START, first, agent("a"), END], edges("s next c met a next e"))
    async with world(tmp_path) as here:
        run_id = await here.start(tree)
        await started(here, run_id, "a")
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "quick"}]})
    async with world(tmp_path) as here:
        assert await here.service.recover() == ([run_id], [], [])
        assert await here.service.recover() == ([], [], [])
        row = await here.service.store.run_log.run(run_id)
        assert row.status == "failed"
        assert f"infloop resume {run_id}" in row.error
        await here.service.resume(run_id)
        done = await here.finish(run_id)
    assert done.status == "succeeded"
    assert (tmp_path / "work/log").read_text() == "once\n"
    attempts = [e.attempt for e in done.events if isinstance(e, StepStarted) and e.path == "a"]
    assert attempts == [1, 2]
    # A client may have seen more output than was stored, under the numbers that follow.
    at = next(i for i, r in enumerate(done.recorded) if isinstance(r.event, RunResumed))
    assert done.recorded[at].seq - done.recorded[at - 1].seq >= MAX_IN_FLIGHT


async def test_a_run_of_a_living_process_is_not_recovered_by_another(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    async with world(tmp_path) as here, world(tmp_path) as other:
        run_id = await here.start(workflow([START, agent("a")], edges("s next a")))
        await started(here, run_id, "a")
        assert await other.service.recover() == ([], [], [])
        row = await other.service.store.run_log.run(run_id)
        assert (row.status, row.owner, row.epoch) == ("running", here.service.instance.id, 1)


async def test_a_workflow_that_asks_for_it_is_left_for_resuming(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    tree = workflow([START, agent("a")], edges("s next a"), onCrash="resume")
    async with world(tmp_path) as here:
        run_id = await here.start(tree)
        await started(here, run_id, "a")
    async with world(tmp_path) as here:
        assert await here.service.recover() == ([], [run_id], [])


async def test_a_run_that_is_over_cannot_be_resumed_and_says_what_can_be_done(
    tmp_path: Path,
) -> None:
    bad = node("c", "condition", kind="nonsense")
    async with world(tmp_path) as here:
        done = await here.run(workflow([START, bad], edges("s next c")))
        with pytest.raises(UsageError, match=r"rewind .* --to STEP"):
            await here.service.resume(done.run_id)


async def test_rewind_forks_with_the_prefix_and_runs_only_what_follows(tmp_path: Path) -> None:
    def append(name: str) -> dict[str, Any]:
        return node(name, "condition", kind="command", command={"cmd": f"echo {name} >> log"})

    tree = workflow(
        [START, append("one"), append("two"), append("three")],
        edges("s next one met two met three"),
    )
    async with world(tmp_path) as here:
        first = await here.run(tree)
        second_id = await here.service.rewind(first.run_id, "two")
        second = await here.finish(second_id)
        with pytest.raises(
            UsageError, match=r"no step 'four'; its last steps are: s, one, two, three"
        ):
            await here.service.rewind(first.run_id, "four")
        row = await here.service.store.run_log.run(second_id)
    assert (tmp_path / "work/log").read_text().split() == ["one", "two", "three", "two", "three"]
    assert second.status == "succeeded"
    assert second.run_id != first.run_id
    assert (row.cause.kind, row.cause.parent_run, row.cause.parent_step) == (
        "rewind", first.run_id, "two",
    )  # fmt: skip
    assert any(isinstance(e, RunResumed) for e in second.events)


async def test_rewind_to_a_round_of_a_loop(tmp_path: Path) -> None:
    scripted(
        tmp_path / "data/providers", "fake",
        *[{"do": [{"shell": f"echo {n} >> log"}]} for n in (1, 2, 3)],
    )  # fmt: skip
    tree = workflow([START, loop(agent("a"), maxIterations=3)], edges("s next l"))
    async with world(tmp_path) as here:
        first = await here.run(tree)
        again = await here.finish(await here.service.rewind(first.run_id, "l[2]"))
    assert (tmp_path / "work/log").read_text().split() == ["1", "2", "3"]
    after = next(n for n, e in enumerate(again.events) if isinstance(e, RunResumed))
    begun = [e.path for e in again.events[after:] if isinstance(e, StepStarted)]
    assert begun == ["l[2]/a", "l[3]/a"]


async def test_a_listener_gets_all_that_is_said_and_may_begin_anywhere(tmp_path: Path) -> None:
    text = "0123456789" * 300  # two of them are not joined
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": text, "times": 500}]})
    async with world(tmp_path) as here:
        done = await here.run(workflow([START, agent("a")], edges("s next a")))
        assert done.said() == text * 500
        assert sum(isinstance(r.event, Output) for r in done.recorded) == 500
        for at in (0, 3, 250, len(done.recorded) - 1):
            after = done.recorded[at].seq
            rest = [r async for batch in here.service.listen(done.run_id, after) for r in batch]
            assert rest == done.recorded[at + 1 :]


@pytest.mark.thorough
async def test_a_listener_that_never_reads_costs_nothing_and_loses_nothing(tmp_path: Path) -> None:
    deltas = amount(6_000, thorough=20_000)
    text = "x" * 3_000  # two of them are not joined
    wait = {"shell": "until test -f go; do sleep 0.01; done"}
    turn = {"do": [wait, {"text": text, "times": deltas}]}
    scripted(tmp_path / "data/providers", "fake", turn)
    tree = workflow([START, agent("a")], edges("s next a"))
    async with world(tmp_path) as here:
        run_id = await here.start(tree)
        idle = [here.service.listen(run_id) for _ in range(50)]
        begun = [await anext(listener) for listener in idle]
        (here.folder / "go").touch()
        await here.service.wait(run_id)
        gc.collect()
        kept = sum(type(each) is Recorded for each in gc.get_objects())
        late = [*begun[0], *[r async for batch in idle[0] for r in batch]]
        for listener in idle:
            await listener.aclose()
    assert kept < deltas / 2  # for all fifty, who have hardly begun
    assert sum(isinstance(r.event, Output) and not r.event.tool for r in late) == deltas
    assert [r.seq for r in late] == sorted({r.seq for r in late})


@pytest.mark.thorough
async def test_very_many_rounds_run_in_constant_memory_and_resume_from_a_checkpoint(
    tmp_path: Path,
) -> None:
    tree = workflow(
        [START, loop(unmet(), maxIterations=amount(40_000, thorough=100_000)), agent("a"), END],
        edges("s next l next a next e"),
    )
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    async with world(tmp_path, max_run_node_executions=0) as here:
        run_id = await here.start(tree)
        early = late = 0
        async for batch in here.service.listen(run_id):
            seq = batch[-1].seq
            if not early and seq > 10_000:
                early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if any(isinstance(r.event, StepStarted) and r.event.path == "a" for r in batch):
                late = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                break
    assert late - early < 30_000
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "quick"}]})
    async with world(tmp_path, max_run_node_executions=0) as here:
        await here.service.recover()
        loaded = await here.service.store.run_log.load(run_id)
        assert loaded.checkpoint is not None
        assert len(loaded.events) < 5_000
        await here.service.resume(run_id)
        finished = await here.service.wait(run_id)
    assert finished.status == "succeeded"


async def test_a_large_output_is_whole_in_templates_and_after_a_restart(tmp_path: Path) -> None:
    big = "0123456789abcdef" * 20_000
    code = f"def run():\n    return {{'big': '{big}'}}\n"
    tree = workflow(
        [START, node("n", "script", language="py", code=code, outputs=["big"]),
         node("b", "branch", lhs="{{n.big}}", op="==", rhs=big), agent("a"), END],
        edges("s next n next b true a next e"),
    )  # fmt: skip
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    async with world(tmp_path) as here:
        run_id = await here.start(tree)
        await started(here, run_id, "a")
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "ok"}]})
    async with world(tmp_path) as here:
        await here.service.recover()
        await here.service.resume(run_id)
        await here.service.wait(run_id)
        scope = await here.service.store.run_log.scope(run_id)
        page = await here.service.store.run_log.output_page(run_id, "n", "big", 10, 6)
    assert scope is not None
    assert scope["n"]["big"] == big  # type: ignore[call-overload, index]
    assert page.text == big[10:16]
    assert page.total == len(big)


@pytest.mark.claim("I76")
async def test_history_is_capped_per_workflow(tmp_path: Path) -> None:
    async with world(tmp_path, run_history_limit=3) as here:
        kept = [
            (await here.run(workflow([START, END], edges("s next e"), id="w"))).run_id
            for _ in range(5)
        ]
        await here.run(workflow([START, END], edges("s next e"), id="other"))
    async with world(tmp_path) as here:
        rows = await here.service.store.run_log.runs(workflow_id="w")
        assert [row.id for row in rows] == kept[:1:-1]
        assert await here.service.store.run_log.count() == 4


async def test_a_run_keeps_the_definition_it_began_with(tmp_path: Path) -> None:
    child = workflow(
        [START, node("b", "branch", lhs="1", op="==", rhs="1")], edges("s next b"), id="child"
    )
    call = node("c", "subworkflow", workflowId="child", outputs={"r": "b.result"})
    tree = workflow([START, call], edges("s next c"))
    async with world(tmp_path) as here:
        run_id = await here.start(tree, child)
        child["nodes"].clear()
        done = await here.finish(run_id)
    assert done.scope["c"]["r"] is True


async def test_a_team_of_agents_and_a_judge_picks_the_best(tmp_path: Path) -> None:
    """Three branches see `__inputs`; the judge sees their bare ids and templated criteria."""
    verdict = '{"winner_index": 2, "scores": [1, 2, 9]}'
    scripted(
        tmp_path / "data/providers", "fake",
        {"node": "one", "contains": "Implement sort", "do": [{"text": "A"}]},
        {"node": "two", "contains": "Implement sort", "do": [{"text": "B"}]},
        {"node": "three", "contains": "Implement sort", "do": [{"text": "C"}]},
        {"contains": "Criteria: short\n\nCandidates:\n[0] A\n[1] B\n[2] C",
         "do": [{"text": verdict}]},
    )  # fmt: skip
    team = node(
        "p",
        "parallel",
        [agent(name, "Implement {{__inputs.task}}") for name in ("one", "two", "three")],
    )
    judge = node(
        "j", "judge", criteria="{{__inputs.criteria}}", providerId="fake",
        candidates=["{{one.stdout}}", "{{two.stdout}}", "{{three.stdout}}"],
    )  # fmt: skip
    tree = workflow([START, team, judge, END], edges("s next p all_done j next e"))
    async with world(tmp_path) as here:
        done = await here.run(tree, inputs={"task": "sort", "criteria": "short"})
    assert done.status == "succeeded", done.result
    assert done.scope["j"]["winner"] == "C"
    assert not any(type(e).__name__ == "TemplateWarning" for e in done.events)
