"""The first hour with the real `claude` and `codex`: from the wheel to a green check.

`make test-agents` runs these too. The model is a fake one on loopback that makes the right edit.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from infloop.providers import SHIPPED_DIR
from support.agent_programs import PROGRAMS, leave_the_network, need_agents
from support.fake_model import Asked, FakeModel, FixedTurn, Say, Turn, Use
from support.installed import CHECK, CODE, FIXED, Installed, failing_project, is_green
from support.service_user import SERVICE_USER, folder_for_children

pytestmark = pytest.mark.agents

KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY"}
DONE: Turn = [Say("A discount is a percentage now.")]
PATCH = f"cat > prices.py <<'END'\n{FIXED}END\n"


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    need_agents()
    leave_the_network()


@pytest.fixture(scope="module")
def infloop(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_children("home") as made:
        yield made


def edits(provider: str, data: Path) -> list[Turn]:
    """What a model answers that finds the mistake and mends it with the agent's own tools."""
    if provider == "codex":
        return [[Say("I mend it."), Use("exec_command", {"cmd": PATCH})], DONE]

    def file() -> str:
        (found,) = (path for path in data.glob("worktrees/**/prices.py"))
        return str(found)

    def read(_: Asked) -> FixedTurn:
        return [Say("I read it."), Use("Read", {"file_path": file()})]

    def edit(_: Asked) -> FixedTurn:
        old, new = CODE.splitlines()[1], FIXED.splitlines()[1]
        given = {"file_path": file(), "old_string": old, "new_string": new}
        return [Say("I mend it."), Use("Edit", given)]

    return [read, edit, DONE]


def machine(infloop: Installed, folder: Path, provider: str, model: FakeModel) -> dict[str, str]:
    """Return the environment of a person who has this agent, and whose model is the fake one."""
    data = folder / "data"
    env = {
        "PATH": f"{PROGRAMS}:{infloop.programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "INFLOOP_DATA_DIR": str(data),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        KEYS[provider]: f"sk-{secrets.token_hex(24)}",
    }
    if provider == "claude":
        return {**env, "ANTHROPIC_BASE_URL": model.url}
    shipped = json.loads((SHIPPED_DIR / "codex.json").read_text())
    (data / "providers").mkdir()
    # Another address of the API, and a model whose tools the fake one knows.
    args = [arg.replace("{model}", "gpt-5-codex") for arg in shipped["args"]]
    broker = {**shipped["broker"], "baseUrl": model.url}
    changed = {**shipped, "args": args, "broker": broker}
    (data / "providers/codex.json").write_text(json.dumps(changed))
    return env


@pytest.mark.parametrize("level", ["host", "sandbox"])
@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_an_agent_as_it_is_shipped_makes_a_red_check_green(
    infloop: Installed, folder: Path, provider: str, level: str
) -> None:
    data = folder / "data"
    project = failing_project(folder / "shop")
    data.mkdir()
    async with FakeModel(*edits(provider, data)) as model:
        env = machine(infloop, folder, provider, model) | {
            "INFLOOP_SERVICE_USER": SERVICE_USER if level == "sandbox" else "",
            "INFLOOP_ISOLATION": level,
        }

        async def run(*arguments: str) -> str:
            return await asyncio.to_thread(infloop.run, *arguments, cwd=project, env=env)

        assert not is_green(project)
        task = ("loop", "Fix the failing tests", "--check", CHECK, "--agent", provider)
        done = await run(*task, "--rounds", "2")
        assert "run succeeded" in done
        assert "Fix the failing tests" in str(model.asked[0].body)
        assert "FAILED" in str(model.asked[0].body), "it is told what the check printed"
        assert "-    return sum(prices) - discount" in (await run("diff", "last")).splitlines()
        await run("apply", "last")
    assert (project / "prices.py").read_text() == FIXED
    assert is_green(project)


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_a_new_file_works_as_it_is_at_the_level_that_this_machine_chooses(
    infloop: Installed, folder: Path, provider: str
) -> None:
    data = folder / "data"
    project = failing_project(folder / "shop")
    (project / "Makefile").write_text(f"test:\n\t{CHECK}\n")
    data.mkdir()
    async with FakeModel(*edits(provider, data)) as model:
        env = machine(infloop, folder, provider, model)

        async def run(*arguments: str) -> str:
            return await asyncio.to_thread(infloop.run, *arguments, cwd=project, env=env)

        assert "`make test`" in await run("new", "fix", "--agent", provider)
        done = await run("run", "./fix.loop.yaml")
        assert "run succeeded" in done
        assert "isolation    host" not in await run("show", "last")
        assert "-    return sum(prices) - discount" in (await run("diff", "last")).splitlines()
        await run("apply", "last")
    assert is_green(project)
