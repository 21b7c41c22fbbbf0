"""The real `claude` and `codex` as clients of infloop's tools, with a fake model behind them.

`make test-agents` runs these too. The model asks for the tool of a workflow and then for the status
of its run; the agents really call them, and the run is in the journal.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infloop.app.storage import open_store
from infloop.model.events import Cause
from infloop.settings import Settings
from support.agent_programs import PROGRAMS, Stage, leave_the_network, need_agents
from support.eventually import eventually
from support.fake_model import FakeModel, Say, Use
from support.server import TOKEN, environment, process, put_workflow, workflow

pytestmark = pytest.mark.agents

DEADLINE_S = 120.0
GREET, STATUS = "greet", "infloop_get_run_status"
WHO, WHICH = {"who": "the agent's user"}, {"workflowId": "greet"}
DONE = [Say("It is DONE")]


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    need_agents()
    leave_the_network()


def greeting(folder: Path) -> dict[str, Any]:
    line = f'echo "hello $WHO" > {folder}/greeted'
    made = workflow("greet", line, inputs=[{"name": "who", "type": "text"}])
    made["nodes"][1]["config"]["command"]["env"] = {"WHO": "{{inputs.who}}"}
    return made


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """How an agent is told of infloop: a program to start, or the address of a server."""
    put_workflow(tmp_path / "data", greeting(tmp_path))
    if request.param == "stdio":
        env = environment(tmp_path)
        yield {"command": sys.executable, "args": ["-m", "infloop", "mcp"], "env": env}
    else:
        with process(tmp_path, api_token=TOKEN) as served:
            url = f"http://127.0.0.1:{served.client.port}/api/mcp"
            headers = {"Authorization": f"Bearer {TOKEN}"}
            yield {"type": "http", "url": url, "headers": headers}


def claude(stage: Stage, server: dict[str, Any]) -> Sequence[str]:
    """Tell `claude` of the tools; return the command."""
    config = stage.cwd / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"infloop": server}}))
    tools = ",".join(f"mcp__infloop__{name}" for name in (GREET, STATUS))
    given = ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", tools]
    return [str(PROGRAMS / "claude"), "-p", "Greet my user.", *given]


def codex(stage: Stage, server: dict[str, Any]) -> Sequence[str]:
    """Tell `codex` of the tools; return the command."""
    told: dict[str, Any] = {"required": True, "default_tools_approval_mode": "approve"}
    if "url" in server:
        told |= {"url": server["url"], "http_headers": server["headers"]}
    else:
        told |= server
    file = stage.home / ".codex/config.toml"
    table = "\n".join(f"{name} = {_toml(value)}" for name, value in told.items())
    file.write_text(f"{file.read_text()}\n[mcp_servers.infloop]\n{table}\n")
    return [str(PROGRAMS / "codex"), "exec", "--skip-git-repo-check", "Greet my user."]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
    return json.dumps(value)


async def run(stage: Stage, command: Sequence[str]) -> None:
    """Let an agent do what its model says, and come to its end."""
    ran = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=stage.cwd,
        env=stage.server_env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "It is DONE" in ran.stdout


async def in_the_journal(folder: Path, results: Sequence[str], server: dict[str, Any]) -> None:
    """See that the tools answered with a run, and that the run is there."""
    started, status = map(json.loads, results)
    way = "http" if "url" in server else "stdio"
    assert (started["status"], status["runId"]) == ("queued", started["runId"])
    async with open_store(Settings(data_dir=folder / "data")) as store:
        row = await store.run_log.run(started["runId"])
    assert row.cause == Cause("mcp", way, untrusted=("who",))
    if way == "http":  # the other one ended with its client
        eventually((folder / "greeted").exists)
        assert (folder / "greeted").read_text() == "hello the agent's user\n"


@pytest.mark.parametrize("server", ["stdio", "http"], indirect=True)
async def test_claude_starts_a_workflow_and_asks_how_it_is(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    turns = (
        [Use("WaitForMcpServers", {"servers": ["infloop"]})],
        [Use(f"mcp__infloop__{GREET}", WHO)],
        [Use(f"mcp__infloop__{STATUS}", WHICH)],
        DONE,
    )
    async with FakeModel(*turns) as model:
        stage = Stage(tmp_path, model.url)
        await run(stage, claude(stage, server))
    blocks = [
        block
        for message in model.asked[-1].body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    await in_the_journal(tmp_path, [_text(block["content"]) for block in blocks[-2:]], server)


@pytest.mark.parametrize("server", ["stdio", "http"], indirect=True)
async def test_codex_starts_a_workflow_and_asks_how_it_is(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    turns = ([Use(GREET, WHO, "mcp__infloop")], [Use(STATUS, WHICH, "mcp__infloop")], DONE)
    async with FakeModel(*turns) as model:
        stage = Stage(tmp_path, model.url)
        await run(stage, codex(stage, server))
    told = model.asked[-1].body["input"]
    results = [_text(item["output"]) for item in told if item["type"] == "function_call_output"]
    await in_the_journal(tmp_path, [text[text.index("{") :] for text in results[-2:]], server)


def _text(content: Any) -> str:
    return str(content if isinstance(content, str) else content[0]["text"])
