"""Cancelling runs that nobody drives: those that paused, and those whose process died."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from support import forkserver
from support.canaries import place
from support.confinement import need_level
from support.eventually import eventually, eventually_async
from support.processes import alive, new_token
from support.runs import scripted, world
from support.server import PATIENCE, environment, infloop, process, put_workflow
from support.workflows import agent, edges, node
from support.workflows import workflow as graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = node("s", "start")
NOTHING_LEFT: dict[str, Any] = {"max_total_cost_usd": "0.5", "cost_window": "day"}
LINE = "touch begun; until test -e go; do sleep 0.02; done"


def pause(folder: Path) -> None:
    """Let a run spend more than it may, so that it stands still."""
    limits: dict[str, Any] = {"onBudget": "pause", "limits": {"maxCostUsd": 1.0}}
    asking = graph([START, agent("a"), agent("b")], edges("s next a next b"), **limits)
    put_workflow(folder / "data", asking)
    infloop(folder, "run", "w", code=75)


def interrupt(folder: Path) -> None:
    """Kill what drives a run while a step of it goes on inside another."""
    check = node("c", "condition", kind="command", command={"cmd": LINE})
    loop = node("l", "loop", [check], maxIterations=2)
    put_workflow(folder / "data", graph([START, agent("a"), loop], edges("s next a next l")))
    with forkserver.Command(("run", "w"), folder, environment(folder)) as driving:
        eventually((folder / "begun").exists)
        driving.kill()
    (folder / "begun").unlink()


def the_run(folder: Path) -> dict[str, Any]:
    (line,) = infloop(folder, "runs", "--json").stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("door", ["command line", "api"])
@pytest.mark.parametrize(
    ("stop_short", "status"),
    [(pause, "paused"), (interrupt, "interrupted")],
    ids=["paused", "died"],
)
def test_a_run_that_nobody_drives_is_cancelled_although_all_money_is_spent(
    tmp_path: Path, stop_short: Callable[[Path], None], status: str, door: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 2.0}]}, {"do": [{"cost": 2.0}]})
    with ExitStack() as opened:
        if door == "api":
            server = opened.enter_context(process(tmp_path, **NOTHING_LEFT))
            assert server.said
        stop_short(tmp_path)
        before = the_run(tmp_path)
        assert before["status"] == status
        if door == "api":
            path = f"/api/runs/{before['runId']}/cancel"
            assert server.client.post(path).status == 202
            assert server.client.post(path).status == 409
        else:
            said = infloop(tmp_path, "cancel", "last", **NOTHING_LEFT).stdout
            assert said.startswith(f"{before['runId'][:8]}  cancelled (")
    assert the_run(tmp_path)["status"] == "cancelled"
    assert not (tmp_path / "begun").exists()
    assert json.loads(infloop(tmp_path, "costs", "--json").stdout)["total"]["costUsd"] == 2.0


async def test_of_very_many_steps_at_once_none_begins_again(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    steps = [agent(f"a{number}") for number in range(300)]
    together = graph([START, node("p", "parallel", steps)], edges("s next p"))
    async with world(tmp_path) as here:
        run_id = await here.start(together)

        async def all_are_asked() -> bool:
            return (await here.service.store.ledger.total()).calls == len(steps)

        await eventually_async(all_are_asked)
    async with world(tmp_path) as here:
        async with asyncio.timeout(PATIENCE):
            ended = await here.service.cancel_undriven(run_id, "enough")
        assert (ended.status, ended.error) == ("cancelled", "enough")
        assert (await here.service.store.ledger.total()).calls == len(steps)


TREE = """
setsid sh -c 'trap "" TERM HUP; sleep {token}; sleep {token}' {token} &
( ( setsid sleep {token} & ) & )
sleep {token} &
trap '' TERM; while :; do sleep {token}; done
"""
"""An agent whose processes have sessions of their own, or hear no TERM."""


@pytest.mark.claim("I54")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_when_a_run_is_cancelled_all_processes_of_its_agent_end(level: str) -> None:
    need_level(level)
    token = new_token()
    manifest = {"id": "sh", "label": "Sh", "description": "runs its prompt", "bin": "sh"}
    asking = node("a", "agent", providerId="sh", prompt=TREE.format(token=token))
    user = "nobody" if os.geteuid() == 0 else ""
    with place() as folder:
        (folder / "data/providers").mkdir(parents=True)
        (folder / "work").mkdir()
        if user:
            shutil.chown(folder / "work", user)
        manifest_file = folder / "data/providers/sh.json"
        manifest_file.write_text(json.dumps({**manifest, "args": ["-c", "{prompt}"]}))
        async with world(folder, isolation=level, service_user=user, snapshots=False) as here:
            run_id = await here.start(graph([START, asking], edges("s next a")))
            await eventually_async(lambda: len(alive(token)) >= 5)
            groups = {os.getpgid(pid) for pid in alive(token)}
            assert os.getpgrp() not in groups
            await here.service.stop(run_id, "enough")
            ended = await here.finish(run_id)
            assert alive(token) == []
    assert ended.status == "cancelled"
