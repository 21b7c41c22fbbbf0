"""`infloop agent`: infloop's own agent on the command line, with a model on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from support import forkserver
from support.fake_model import FakeModel, Say, Use
from support.repositories import git
from support.server import PATIENCE, environment
from support.terminal import on_terminal

KEY = "Zq81-planted-Wv07-secret-Lk55"


class Machine:
    """A home with settings that name a fake model, and a project."""

    def __init__(self, top: Path, model: FakeModel) -> None:
        self.top = top
        self.project = top / "project"
        self.project.mkdir()
        self.config = top / "infloop.toml"
        self.config.write_text(
            f"""
            [providers.fake]
            kind = "openai-compatible"
            base_url = "{model.url}/v1"
            default_model = "fake-1"
            api_key_env = "FAKE_KEY"
            """
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**environment(self.top, config=str(self.config)), "FAKE_KEY": KEY}

    async def infloop(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = await asyncio.to_thread(
            forkserver.run, arguments, self.top, self.environment, 4 * PATIENCE
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done

    async def agent(self, action: str, *more: str, code: int = 0) -> str:
        arguments = ("agent", action, "--workspace", str(self.project), *more)
        done = await self.infloop(*arguments, code=code)
        return done.stdout + done.stderr


@pytest.mark.claim("L12")
async def test_a_prompt_is_answered_in_a_directory_and_the_key_is_in_no_file(
    tmp_path: Path,
) -> None:
    write = Use("fs_write", {"path": "a.txt", "content": "hello"})
    async with FakeModel([write], [Say("I wrote it.")], [Say("You asked.")]) as model:
        here = Machine(tmp_path, model)
        await here.infloop("settings")
        said = await here.agent("run", "--prompt", "Write {{this}}", "--tools", "fs_write")
        assert said.splitlines().count("I wrote it.") == 1
        assert (here.project / "a.txt").read_text() == "hello"
        assert "Write {{this}}" in json.dumps(model.asked[0].body)
        assert [tool["function"]["name"] for tool in model.asked[0].body["tools"]] == ["fs_write"]
        session = said.partition("session: ")[2].split()[0]
        said = await here.agent("run", "--prompt", "And?", "--session", session, "--json")
        assert '"result":"You asked."' in said.replace(": ", ":")
        assert "Write {{this}}" in json.dumps(model.asked[2].body)
        listed = (await here.infloop("runs", "--json")).stdout
        assert listed.count('"workflowId"') == 2
        assert model.asked[0].headers["authorization"] == f"Bearer {KEY}"
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert len(files) > 10
        for file in files:
            assert KEY.encode() not in file.read_bytes(), file


async def test_the_agent_works_until_the_check_succeeds(tmp_path: Path) -> None:
    write = Use("fs_write", {"path": "done.txt", "content": "1"})
    async with FakeModel([write], [Say("Written.")]) as model:
        here = Machine(tmp_path, model)
        git("init", cwd=here.project)
        (here.project / "README").write_text("x")
        git("add", ".", cwd=here.project)
        git("commit", "-m", "first", cwd=here.project)
        said = await here.agent("loop", "--check", "test -f done.txt", "--rounds", "2")
        assert "run succeeded" in said
        assert not (here.project / "done.txt").exists()
        await here.infloop("apply", "last")
        assert (here.project / "done.txt").read_text() == "1"


async def test_the_person_at_the_terminal_is_asked(tmp_path: Path) -> None:
    turns = [Use("shell", {"command": "echo $((6 * 7))"})], [Say("done")]
    async with FakeModel(*turns, *turns) as model:
        here = Machine(tmp_path, model)
        command = ["agent", "run", "--prompt", "Count"]
        for answer, got in (("y", "42"), ("n", "error (denied)")):
            with on_terminal(command, here.project, here.environment) as terminal:
                await asyncio.to_thread(terminal.read_until, "[y/N]")
                terminal.type(f"{answer}\n")
                assert await asyncio.to_thread(terminal.end) == 0
            assert got in json.dumps(model.asked[-1].body["messages"][-1])


async def test_a_failure_is_an_exit_code_and_says_what_to_do(tmp_path: Path) -> None:
    async with FakeModel([Say("fine")]) as model:
        here = Machine(tmp_path, model)
        said = await here.agent("run", "--prompt", "x", "--model", "nobody:m", code=1)
        assert "there is no model provider 'nobody'; known are: fake" in said
        assert "prompt is empty" in await here.agent("run", "--prompt", " ", code=2)
