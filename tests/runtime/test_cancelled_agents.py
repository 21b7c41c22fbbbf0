"""Cancelling a run ends the agent and every process that the agent started."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from support.confinement import need_bubblewrap
from support.eventually import eventually_async
from support.processes import alive, new_token
from support.prompt_agent import agent_folder, asking, manifest, settings
from support.runs import world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 60.0
DEAF = "trap '' HUP INT TERM; sleep {token}; sleep {token}"
AGENT = """
subprocess.Popen(["sleep", "{token}"])
subprocess.Popen(["sh", "-c", "{deaf}"])
subprocess.Popen(["sh", "-c", "{deaf}"], start_new_session=True)
subprocess.Popen(["sh", "-c", "(setsid sh -c \\"{deaf}\\" &) ; exit"])
subprocess.run(["sleep", "{token}"])
"""
STARTED = 8


@pytest.fixture
def top() -> Iterator[Path]:
    with agent_folder() as folder:
        yield folder


@pytest.mark.claim("I54")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_cancelling_a_run_ends_the_agent_and_what_it_started(top: Path, level: str) -> None:
    if level == "sandbox":
        need_bubblewrap()
    token = new_token()
    prompt = AGENT.format(token=token, deaf=DEAF.format(token=token))
    manifest(top)
    async with world(top, **settings(level)) as app, asyncio.timeout(DEADLINE_S):
        run_id = await app.start(asking(prompt))
        await eventually_async(lambda: len(alive(token)) >= STARTED)
        assert os.getpgrp() not in {os.getpgid(pid) for pid in alive(token)}
        await app.service.stop(run_id, "enough")
        assert (await app.finish(run_id)).status == "cancelled"
        assert alive(token) == []
