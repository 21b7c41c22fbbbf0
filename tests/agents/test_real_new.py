"""What `infloop new` writes, with the real `claude` and `codex` and a fake model behind them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.record import PATCH
from support.agent_programs import Stage, leave_the_network, need_agents
from support.fake_model import FakeModel, Say, Use
from support.repositories import git

pytestmark = pytest.mark.agents

DONE = [Say("It is DONE")]
WRITING = {
    "claude": Use("Write", {"file_path": "hello.txt", "content": "hello\n"}),
    "codex": Use("exec_command", {"cmd": PATCH}),
}


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    need_agents()
    leave_the_network()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that is not in /tmp, where codex's sandbox lets everybody write."""
    with tempfile.TemporaryDirectory(prefix="infloop-agents-", dir="/var/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_a_new_file_runs_with_a_real_agent_and_its_work_is_applied(
    agent: str, folder: Path
) -> None:
    async with FakeModel([Say("I write."), WRITING[agent]], DONE) as model:
        stage = Stage(folder, model.url)
        project = stage.cwd
        git("init", cwd=project)
        (project / "Makefile").write_text("test:\n\ttest -e hello.txt\n")
        git("add", ".", cwd=project)
        git("commit", "-m", "a check that fails", cwd=project)

        async def infloop(*arguments: str) -> str:
            return await asyncio.to_thread(_infloop, stage, folder, arguments)

        assert f"{agent} works until `make test`" in await infloop("new", "fix", "--agent", agent)
        assert "fix.loop.yaml: ok" in await infloop("check", "fix.loop.yaml")
        assert "run succeeded" in await infloop("run", "./fix.loop.yaml")
        assert "Error 1" in str(model.asked[0].body), "the agent sees what the check printed"
        assert not (project / "hello.txt").exists()
        await infloop("apply", "last")
        assert (project / "hello.txt").read_text() == "hello\n"
        assert f"{agent}: " in await infloop("providers", agent)


def _infloop(stage: Stage, folder: Path, arguments: tuple[str, ...]) -> str:
    data = {"INFLOOP_DATA_DIR": str(folder / "data"), "INFLOOP_ISOLATION": "host"}
    done = subprocess.run(
        [sys.executable, "-m", "infloop", *arguments],
        cwd=stage.cwd,
        env={**stage.server_env, **data},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
