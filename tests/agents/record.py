"""Records what the real agents print, into tests/fixtures/transcripts/.

    tools/test_parts.sh agents
    PYTHONPATH=tests .venv/bin/python tests/agents/record.py

Paths and the time of the limit are made the same each time; all else is as it was printed.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infloop.providers.base import Request
from infloop.providers.cli.arguments import command_line
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox
from support.agent_programs import Stage, leave_the_network, shipped
from support.fake_model import FakeModel, Refuse, Say, Turn, Use
from support.paths import TRANSCRIPTS

LIMIT_ENDS_S = 1_800_000_000
WRITE = Use("Write", {"file_path": "{cwd}/hello.txt", "content": "hello\n"})
PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: hello.txt\n+hello\n*** End Patch\nEOF"
TASK = {"description": "look around", "prompt": "look", "subagent_type": "general-purpose"}
DONE = [Say("It is DONE")]


@dataclass(frozen=True)
class Scene:
    """What an agent is asked, and what its model answers."""

    provider: str
    turns: tuple[Turn, ...]
    request: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def claude_limit(ends_s: int) -> Refuse:
    unified = "anthropic-ratelimit-unified"
    return Refuse(
        429,
        {"type": "error", "error": {"type": "rate_limit_error", "message": "over the limit"}},
        {
            f"{unified}-status": "rejected",
            f"{unified}-reset": str(ends_s),
            f"{unified}-representative-claim": "five_hour",
            f"{unified}-5h-status": "rejected",
            f"{unified}-5h-reset": str(ends_s),
            f"{unified}-overage-status": "rejected",
            "x-should-retry": "false",
        },
    )


def codex_limit(ends_s: int) -> Refuse:
    body = {"type": "usage_limit_reached", "message": "over", "plan_type": "pro"}
    return Refuse(429, {"error": {**body, "resets_at": ends_s}})


BROKEN = Refuse(400, {"type": "error", "error": {"type": "api_error", "message": "bad thing"}})
SKIP: dict[str, Any] = {"skip_permissions": True}
SCENES = {
    "claude.text": Scene("claude", (DONE,)),
    "claude.tool": Scene("claude", ([Say("I will write."), WRITE], DONE), SKIP),
    "claude.denied": Scene("claude", ([Say("I will write."), WRITE], DONE)),
    "claude.subagent": Scene(
        "claude",
        (
            [Say("I ask another."), Use("Task", TASK)],
            [Say("A secret DONE"), Use("Bash", {"command": "echo DONE", "description": "say it"})],
            [Say("The other is DONE")],
            [Say("All is well")],
        ),
    ),
    "claude.error": Scene("claude", (BROKEN,)),
    "claude.limit": Scene(
        "claude",
        (claude_limit(LIMIT_ENDS_S),),
        variables={"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test"},
    ),
    "codex.text": Scene("codex", (DONE,)),
    "codex.tool": Scene(
        "codex",
        (
            [Say("I will write."), Use("exec_command", {"cmd": PATCH})],
            [Use("exec_command", {"cmd": "cat hello.txt; exit 3"})],
            DONE,
        ),
        SKIP,
    ),
    "codex.denied": Scene("codex", ([Use("exec_command", {"cmd": PATCH})], DONE)),
    "codex.error": Scene("codex", (BROKEN,)),
    "codex.limit": Scene("codex", (codex_limit(int(time.time()) + 200_000),)),
}


async def record(name: str, scene: Scene, folder: Path) -> None:
    turns = [_in_place(turn, str(folder / "workspace")) for turn in scene.turns]
    async with FakeModel(*turns) as model:
        stage = Stage(folder, model.url, **scene.variables)
        manifest = shipped(scene.provider)
        request = Request("Please say DONE", str(stage.cwd), **scene.request)
        command = command_line(manifest, request)
        environment = stage.environment(manifest.env_passthrough)
        sandbox = HostSandbox()
        try:
            result = await sandbox.run(
                ChildRequest(
                    command.argv,
                    str(stage.cwd),
                    {name: value for name, value in environment.items() if value},
                    command.stdin,
                    timeout_ms=120_000,
                )
            )
        finally:
            await sandbox.close()
    assert not result.timed_out, result
    (TRANSCRIPTS / f"{name}.jsonl").write_text(_neutral(result.stdout, folder, model.url))
    if name == "codex.denied":
        (TRANSCRIPTS / f"{name}.stderr").write_text(_neutral(result.stderr, folder, model.url))
    print(f"{name}: exit {result.exit_code}, {len(result.stdout)} characters")


def _in_place(turn: Turn, cwd: str) -> Turn:
    if not isinstance(turn, list):
        return turn
    return [
        Use(one.name, {key: str(value).replace("{cwd}", cwd) for key, value in one.input.items()})
        if isinstance(one, Use)
        else one
        for one in turn
    ]


def _neutral(text: str, folder: Path, url: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(folder / "workspace"))
    text = text.replace(slug, "-workspace").replace(str(folder / "workspace"), "/workspace")
    text = text.replace(str(folder / "home"), "/home/dev").replace(url, "http://127.0.0.1:8080")
    return re.sub(r"(?<=try again at ).+? [AP]M", "Nov 17th, 2026 10:54 PM", text)


async def main() -> None:
    TRANSCRIPTS.mkdir(exist_ok=True)
    for name, scene in SCENES.items():
        with tempfile.TemporaryDirectory() as folder:
            await record(name, scene, Path(folder))


if __name__ == "__main__":
    leave_the_network()
    asyncio.run(main())
