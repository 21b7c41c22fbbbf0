"""Where a run is, from its journal: a step that waits, and limits that were raised."""

from __future__ import annotations

from pathlib import Path

from infloop.application.runs.activity import StepWait, read_activity
from infloop.engine.state import Frame, State, Step, encode_state
from infloop.model.events import RunBudget, RunResumed, RunStarted, StepStarted, StepWaiting
from infloop.store.interfaces.run_log import definition_hash
from support.stores import at, new_run, said, started, store_in


async def test_a_step_that_waits_is_named_with_its_time_and_reason(tmp_path: Path) -> None:
    items = [
        at(2, StepStarted("agent-1", "agent-1", "agent", {})),
        at(3, StepWaiting("agent-1", "agent-1", "agent", 99_000, "usage limit", {})),
        at(4, RunResumed(2, RunBudget(max_cost_usd=7.5))),
        at(5, said("still here")),
    ]
    async with store_in(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, items)
        found = await read_activity(store.run_log, await store.run_log.run("r1"))
        assert found.waiting == StepWait(path="agent-1", until=99_000, reason="usage limit")
        assert found.max_cost_usd == 7.5
        assert found.last_sign_at == items[-1].time


async def test_a_wait_before_the_last_checkpoint_is_still_known(tmp_path: Path) -> None:
    step = Step("agent-1", "agent-1", "", "waiting", attempt=1, started_at=4_000, until=99_000)
    state = State(
        {"": Frame("run", "", "w")}, {"agent-1": step}, limits=RunBudget(max_cost_usd=2.0)
    )
    definition = b'{"root":"w","workflows":{"w":{"nodes":[{"id":"agent-1","type":"agent"}]}}}'
    first = at(1, RunStarted("w", "w", definition_hash(definition), {}, "/work"))
    async with store_in(tmp_path) as store:
        await store.run_log.create_run(new_run(definition=definition), first)
        await store.run_log.append("r1", 1, [at(2, said("before"))])
        await store.run_log.checkpoint("r1", 1, 2, encode_state(state))
        found = await read_activity(store.run_log, await store.run_log.run("r1"))
        assert found.waiting == StepWait(path="agent-1", until=99_000, reason="")
        assert (found.max_cost_usd, found.open_steps[0].started_at) == (2.0, 4_000)
