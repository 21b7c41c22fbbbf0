"""Steps that wait for a time to come, runs that pause for money, loops that get nowhere."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from infloop.model.events import (
    BudgetExceeded,
    Notice,
    RunBudget,
    RunFinished,
    RunResumed,
    StepStarted,
    StepWaiting,
)
from infloop.runtime.clock import SystemClock
from support.playbook import Playbook
from support.runs import World, scripted, world
from support.workflows import agent, edges, node, workflow

if TYPE_CHECKING:
    from pathlib import Path

START = node("s", "start")
AGENT = workflow([START, agent("a"), node("e", "end")], edges("s next a next e"))
HOUR = 3_600_000
PAUSING = RunBudget(max_cost_usd=1.0, on_budget="pause")


def finished(play: Playbook) -> RunFinished:
    last = play.events[-1]
    assert isinstance(last, RunFinished)
    return last


# -- waiting ---------------------------------------------------------------------------------


def test_a_step_that_waits_is_tried_again_when_its_time_has_come() -> None:
    play = Playbook(AGENT).settle()
    play.defer("a", play.now + HOUR)
    assert play.waiting == {}
    play.wake("a")
    assert play.waiting["a"].attempt == 2
    play.finish("a", "next", {"stdout": "done"})
    assert play.settle().result.status == "succeeded"


def test_a_step_that_waits_goes_on_waiting_for_the_same_time_after_a_crash() -> None:
    play = Playbook(AGENT).settle()
    play.defer("a", play.now + HOUR)
    until = play.timers["a"].until
    play.crash()
    assert play.waiting == {}
    assert play.timers["a"].until == until


def test_a_wait_that_is_too_long_fails_the_step_with_the_reason() -> None:
    short = node("a", "agent", providerId="fake", prompt="go", rateLimitMaxWaitMs=1_000)
    play = Playbook(workflow([START, short], edges("s next a"))).settle()
    play.defer("a", play.now + HOUR, {"stdout": "limit reached"})
    assert play.result.status == "failed"
    assert "longer than this step may wait" in play.result.error
    assert play.scope["a"]["stdout"] == "limit reached"


def test_waits_add_up_to_the_longest_wait() -> None:
    limited = node("a", "agent", providerId="fake", prompt="go", rateLimitMaxWaitMs=90_000)
    play = Playbook(workflow([START, limited], edges("s next a"))).settle()
    for _ in range(10):
        if "a" not in play.waiting:
            break
        play.defer("a", play.now + 40_000)
        if "a" in play.timers:
            play.wake("a")
    assert play.result.status == "failed"
    waits = [event for event in play.events if isinstance(event, StepWaiting)]
    assert len(waits) == 3, "two waits fit into the longest wait, the third does not"


def test_a_limit_that_is_lifted_in_the_past_does_not_make_a_busy_loop() -> None:
    play = Playbook(AGENT).settle()
    play.defer("a", play.now - HOUR)
    assert play.timers["a"].until >= play.now + 1_000


def test_a_run_that_waits_can_be_stopped() -> None:
    play = Playbook(AGENT).settle()
    play.defer("a", play.now + HOUR)
    assert play.stop().result.status == "cancelled"


def test_what_a_deferred_attempt_cost_counts() -> None:
    play = Playbook(AGENT, limits=RunBudget(max_cost_usd=1.0)).settle()
    play.defer("a", play.now + HOUR, {"costUsd": 1.5})
    assert play.result.status == "failed"
    assert "$1.5000" in play.result.error


@pytest.mark.parametrize("mode", ["fail", "wait"])
async def test_an_agent_at_its_usage_limit_fails_or_waits_as_its_node_says(
    tmp_path: Path, mode: str
) -> None:
    """The agent is a program that prints what claude prints at its limit."""
    program = tmp_path / "claude-at-its-limit"
    counter = tmp_path / "asked"
    program.write_text(
        "#!/bin/sh\n"
        f"echo x >> {counter}\n"
        f'if [ "$(wc -l < {counter})" = 1 ]; then\n'
        '  echo \'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected",'
        f'"resetsAt":{SystemClock().now_ms() // 1000}}}}}\'\n'
        '  echo \'{"type":"result","subtype":"success","is_error":true,"result":"limit",'
        '"api_error_status":429}\'\n'
        "  exit 1\n"
        "fi\n"
        'echo \'{"type":"result","subtype":"success","is_error":false,"result":"done"}\'\n'
    )
    program.chmod(0o755)
    providers = tmp_path / "data" / "providers"
    providers.mkdir(parents=True)
    manifest = {
        "id": "limited",
        "label": "limited",
        "description": "at its limit once",
        "bin": str(program),
        "args": ["{prompt}"],
        "outputFormat": "claude-stream-json",
    }
    (providers / "limited.json").write_text(json.dumps(manifest))
    asks = node("a", "agent", providerId="limited", prompt="go", onRateLimit=mode)
    async with world(tmp_path) as here:
        ended = await here.run(workflow([START, asks], edges("s next a")))
    waits = [r.event for r in ended.recorded if isinstance(r.event, StepWaiting)]
    if mode == "fail":
        assert ended.result.status == "failed"
        assert waits == []
    else:
        assert ended.result.status == "succeeded", ended.result
        assert len(waits) == 1
        starts = [r.event for r in ended.recorded if isinstance(r.event, StepStarted)]
        assert [event.attempt for event in starts if event.path == "a"] == [1, 2]


# -- pausing ---------------------------------------------------------------------------------

TWO = workflow([START, agent("a"), agent("b")], edges("s next a next b"))


def spent(usd: float) -> tuple[str, dict[str, Any]]:
    return "next", {"stdout": "x", "costUsd": usd}


def test_a_run_out_of_money_pauses_before_the_next_step_that_costs() -> None:
    play = Playbook(TWO, answers={"a": spent(1.5)}, limits=PAUSING).settle()
    assert finished(play).status == "paused"
    assert finished(play).failed_step == "b"
    assert "b" not in play.paths


def test_a_paused_run_goes_on_at_the_held_step_when_money_is_granted() -> None:
    play = Playbook(TWO, answers={"a": spent(1.5), "b": spent(0.1)}, limits=PAUSING).settle()
    play.record(RunResumed(2, RunBudget(max_cost_usd=5.0, on_budget="pause")))
    play.crash()
    assert play.result.status == "succeeded"
    assert play.paths.count("a") == 1


def test_a_paused_run_that_gets_no_money_pauses_again() -> None:
    play = Playbook(TWO, answers={"a": spent(1.5), "b": spent(0.1)}, limits=PAUSING).settle()
    play.record(RunResumed(2, PAUSING))
    play.crash()
    assert finished(play).status == "paused"
    assert "b" not in play.paths


def test_steps_that_cost_nothing_go_on_while_there_is_no_money() -> None:
    script = node("b", "script", language="py", code="")
    both = workflow([START, agent("a"), script, agent("c")], edges("s next a next b next c"))
    answers = {"a": spent(2.0), "b": ("next", {"stdout": ""})}
    play = Playbook(both, answers=answers, limits=PAUSING).settle()
    assert finished(play).status == "paused"
    assert "b" in play.paths
    assert "c" not in play.paths


def test_a_refused_step_is_held_while_the_other_branch_finishes() -> None:
    fork = node("p", "parallel", [agent("a"), agent("b")], mode="wait-all")
    play = Playbook(workflow([START, fork], edges("s next p")), limits=PAUSING).settle()
    left, right = sorted(play.waiting)
    play.waiting.pop(left)
    play.record(BudgetExceeded("all that may be spent is spent", left))
    play.settle()
    assert not isinstance(play.events[-1], RunFinished), "the other branch still works"
    play.finish(right, "next", {"stdout": "x"})
    play.settle()
    assert finished(play).status == "paused"
    play.record(RunResumed(2, PAUSING))
    play.crash()
    assert list(play.waiting) == [left]
    play.finish(left, "next", {"stdout": "x"})
    assert play.settle().result.status == "succeeded"


def test_a_refused_step_fails_the_run_where_the_workflow_does_not_pause() -> None:
    play = Playbook(AGENT).settle()
    play.waiting.pop("a")
    play.record(BudgetExceeded("all that may be spent is spent", "a"))
    assert play.settle().result.status == "failed"
    assert "spent" in play.result.error


def test_a_paused_run_can_be_stopped() -> None:
    play = Playbook(TWO, answers={"a": spent(1.5)}, limits=PAUSING).settle()
    play.record(RunResumed(2, PAUSING))
    play.queue.clear()
    assert play.stop().result.status == "cancelled"


@pytest.mark.claim("I48")
async def test_a_run_pauses_for_money_is_listed_resumed_with_more_and_finishes(
    tmp_path: Path,
) -> None:
    scripted(
        tmp_path / "data" / "providers",
        "fake",
        {"do": [{"cost": 0.6}]},
        {"do": [{"cost": 0.6}]},
        {"do": [{"cost": 0.6}]},
    )
    rounds = node("l", "loop", [agent("a")], maxIterations=3)
    paid = workflow(
        [START, rounds], edges("s next l"), onBudget="pause", limits={"maxCostUsd": 1.0}
    )
    async with world(tmp_path) as here:
        ended = await here.run(paid)
        assert ended.result.status == "paused", ended.result
        row = await here.service.store.run_log.run(ended.run_id)
        assert row.status == "paused"
    async with world(tmp_path) as here:
        await here.service.resume(ended.run_id, max_cost_usd=5.0)
        again = await here.finish(ended.run_id)
        assert again.result.status == "succeeded", again.result
        starts = [r.event.path for r in again.recorded if isinstance(r.event, StepStarted)]
        assert [path for path in starts if path.endswith("/a")] == ["l[1]/a", "l[2]/a", "l[3]/a"]


async def test_a_paused_run_can_be_cancelled_by_another_process(tmp_path: Path) -> None:
    scripted(
        tmp_path / "data" / "providers", "fake", {"do": [{"cost": 2.0}]}, {"do": [{"cost": 2.0}]}
    )
    paid = workflow(TWO["nodes"], TWO["edges"], onBudget="pause", limits={"maxCostUsd": 1.0})
    async with world(tmp_path) as here:
        ended = await here.run(paid)
        assert ended.result.status == "paused"
    async with world(tmp_path) as here:
        await here.service.cancel_undriven(ended.run_id, "enough")
        assert (await here.service.store.run_log.run(ended.run_id)).status == "cancelled"


# -- no progress -----------------------------------------------------------------------------


def looping(limit: object, **condition: Any) -> dict[str, Any]:
    check = node("c", "condition", kind="command", command={"cmd": "check"}, **condition)
    body = [agent("a"), check]
    loop = node("l", "loop", body, maxIterations=20, noProgressLimit=limit)
    return workflow([START, loop], edges("s next l", "a next c"))


def play_rounds(play: Playbook, trees: list[str], details: list[str]) -> None:
    for number, (tree, detail) in enumerate(zip(trees, details, strict=True), 1):
        if f"l[{number}]/a" not in play.waiting:
            return
        play.finish(f"l[{number}]/a", "next", {"stdout": "worked"}, tree=tree)
        play.settle()
        said = {"met": False, "detail": detail, "stdout": f"took {number}s\n2 failed"}
        play.finish(f"l[{number}]/c", "not_met", said)
        play.settle()


@pytest.mark.parametrize(
    ("limit", "trees", "details", "rounds"),
    [
        (True, ["t"] * 9, ["exit 1"] * 9, 3),
        (2, ["t"] * 9, ["exit 1"] * 9, 2),
        (3, ["t", "u", "t", "u", "v", "v", "v"], ["exit 1"] * 7, 7),
        (3, ["t"] * 5, ["exit 1", "exit 1", "exit 2", "exit 2", "exit 2"], 5),
    ],
    ids=["three by default", "as many as it says", "files that change", "answers that change"],
)
def test_a_loop_stops_when_rounds_end_alike(
    limit: object, trees: list[str], details: list[str], rounds: int
) -> None:
    play = Playbook(looping(limit)).settle()
    play_rounds(play, trees, details)
    assert play.result.status == "failed"
    assert "no progress" in play.result.error
    assert "2 failed" in play.result.error, "the failure that repeats is named"
    assert play.scope["l"] == {
        "iterations": rounds,
        "broke": False,
        "noProgress": True,
        "errorMessage": play.scope["l"]["errorMessage"],
    }


@pytest.mark.parametrize("limit", [False, 0])
def test_a_loop_without_the_limit_goes_on(limit: object) -> None:
    play = Playbook(looping(limit)).settle()
    play_rounds(play, ["t"] * 8, ["exit 1"] * 8)
    assert "l[9]/a" in play.waiting


def test_a_loop_whose_files_nobody_looks_after_goes_on_and_says_so() -> None:
    play = Playbook(looping(3)).settle()
    play_rounds(play, [""] * 5, ["exit 1"] * 5)
    assert "l[6]/a" in play.waiting
    notices = [event.message for event in play.events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "INFLOOP_SNAPSHOTS" in notices[0]


async def test_an_agent_that_changes_nothing_is_stopped_and_one_that_does_is_not(
    tmp_path: Path,
) -> None:
    providers = tmp_path / "data" / "providers"
    scripted(providers, "idle", *({"do": [{"text": "I tried"}]} for _ in range(9)))
    scripted(
        providers,
        "busy",
        *({"do": [{"write": "work.txt", "content": f"try {number}"}]} for number in range(9)),
    )
    check = node("c", "condition", kind="command", command={"cmd": "echo still broken; false"})
    for provider, rounds in (("idle", 3), ("busy", 5)):
        asks = node("a", "agent", providerId=provider, prompt="go")
        loop = node("l", "loop", [asks, check], maxIterations=5, noProgressLimit=True)
        async with world(tmp_path) as here:
            ended = await here.run(workflow([START, loop], edges("s next l", "a next c")))
        assert ended.scope["l"]["iterations"] == rounds
        if provider == "idle":
            assert "still broken" in ended.result.error


# -- waiting, as people see it ----------------------------------------------------------------


def limited_until(folder: Path, resets_at: int) -> None:
    """Write a provider whose program prints what claude prints at its limit."""
    program = folder / "claude-at-its-limit"
    limit = {"status": "rejected", "resetsAt": resets_at}
    frames = [
        {"type": "rate_limit_event", "rate_limit_info": limit},
        {"type": "result", "is_error": True, "result": "limit", "api_error_status": 429},
    ]
    lines = "".join(f"echo '{json.dumps(frame)}'\n" for frame in frames)
    program.write_text(f"#!/bin/sh\necho x >> {folder}/asked\n{lines}exit 1\n")
    program.chmod(0o755)
    providers = folder / "data" / "providers"
    providers.mkdir(parents=True)
    manifest = {"id": "limited", "label": "limited", "description": "at its limit"}
    how = {"bin": str(program), "args": ["{prompt}"], "outputFormat": "claude-stream-json"}
    (providers / "limited.json").write_text(json.dumps(manifest | how))


async def waiting(here: World, run_id: str) -> StepWaiting:
    async with asyncio.timeout(20):
        async for batch in here.service.listen(run_id):
            for item in batch:
                if isinstance(item.event, StepWaiting):
                    return item.event
    raise AssertionError("it ended without waiting")


async def test_a_wait_is_shown_survives_a_restart_and_can_be_stopped(tmp_path: Path) -> None:
    limited_until(tmp_path, SystemClock().now_ms() // 1000 + 3_600)
    asks = node("a", "agent", providerId="limited", prompt="go", onRateLimit="wait")
    async with world(tmp_path) as here:
        run_id = await here.start(workflow([START, asks], edges("s next a")))
        first = await waiting(here, run_id)
        why = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "infloop", "why", run_id],
            env={"INFLOOP_DATA_DIR": str(tmp_path / "data"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "waiting until" in why.stdout, why
    async with world(tmp_path) as here:
        await here.service.resume(run_id)
        again = [r.event for r in await here.service.store.run_log.events(run_id)]
        assert [event.until for event in again if isinstance(event, StepWaiting)] == [first.until]
        await here.service.stop(run_id, "enough")
        ended = await here.finish(run_id)
    assert ended.result.status == "cancelled"
    assert (tmp_path / "asked").read_text().split() == ["x"], "it was asked once"
