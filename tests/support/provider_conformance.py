"""What every provider must do, with every adapter.

A `Stand` can put a provider into the scenes of this suite; a new adapter is one stand in `STANDS`.
`test_provider_conformance.py` plays every scene on every stand.

    text       says `said` and ends; some part of it comes before `go` exists in the directory,
               and the rest only then
    denied     is refused a tool
    hang       starts, writes its own process id to `child` and that of its child to `grandchild`,
               if it has processes at all, and never ends
    crash      fails by itself, with exit code 3 if it has one to choose
    killed     its program is killed, if it is one, which runs on while nobody listens
    garbage    answers with noise, and ends well all the same
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from infloop.model.provider import AcpProvider, CliProvider
from infloop.providers.acp.agent import AcpAgent
from infloop.providers.base import Provider, Usage
from infloop.providers.cli.agent import CliAgent
from infloop.providers.scripted import ScriptedAgent
from infloop.sandbox.base import Sandbox
from support.http_conformance import HTTP_STANDS
from support.paths import CHILDREN, TRANSCRIPTS

SCENES = ("text", "denied", "hang", "crash", "killed", "garbage")
VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

WAIT = "while [ ! -e go ]; do sleep 0.02; done"
HANG = "sleep 1000 & echo $! > grandchild.new; mv grandchild.new grandchild; echo $$ > child.new; "
HANG += "mv child.new child; wait"
# Not UTF-8, half a frame, control characters, a nesting, a long line.
NOISE = (
    r"printf '\377\376\000\033[2J\n{\"type\":\"assist\n\n\r\n[1,2]\n{\"a\":\"\\ud800\"}\n'; "
    r"head -c 40000 /dev/zero | tr '\0' '['; echo; head -c 9000000 /dev/zero | tr '\0' 'x'; echo"
)


class Stand(Protocol):
    """An adapter, and what can be seen of an agent through it."""

    @property
    def name(self) -> str: ...
    @property
    def scenes(self) -> Sequence[str]: ...
    @property
    def said(self) -> str: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def cost_usd(self) -> float | None: ...
    @property
    def crash(self) -> tuple[int, str]:
        """The exit code of the scene `crash`, and what its reason says."""

    def is_under_way(self, folder: Path) -> bool:
        """Whether the scene `hang` has come to where it hangs."""

    def left_behind(self, folder: Path) -> Sequence[object]:
        """What is left of the scene `hang`."""

    def provider(self, scene: str, folder: Path, sandbox: Sandbox) -> Provider:
        """Return a provider that will play the scene in the directory `folder`."""


@dataclass(frozen=True)
class Processes:
    """What a stand has whose agent is processes."""

    crash: tuple[int, str] = field(default=(3, "exit code 3"), kw_only=True)

    def is_under_way(self, folder: Path) -> bool:
        return all((folder / name).exists() for name in ("child", "grandchild"))

    def left_behind(self, folder: Path) -> list[int]:
        pids = [int((folder / name).read_text()) for name in ("child", "grandchild")]
        return [pid for pid in pids if psutil.pid_exists(pid)]


@dataclass(frozen=True)
class Scripted(Processes):
    """A file of turns, which is no program and cannot be refused anything."""

    name: str = "scripted"
    scenes: tuple[str, ...] = ("text", "hang", "crash")
    said: str = "It is DONE"
    usage: Usage = field(default=Usage(100, 20))
    cost_usd: float | None = 0.02

    def provider(self, scene: str, folder: Path, sandbox: Sandbox) -> Provider:
        actions = {
            "text": [
                {"text": "It is "},
                {"shell": WAIT},
                {"tokens": {"input": 100, "output": 20}},
                {"cost": 0.02},
                {"text": "DONE"},
            ],
            "hang": [{"text": "It is "}, {"shell": HANG}],
            "crash": [{"text": "oh"}, {"exit": 3}],
        }
        script = folder / "turns.json"
        script.write_text(json.dumps({"turns": [{"do": actions[scene]}]}))
        return ScriptedAgent(self.name, script, sandbox, lambda: dict(VARIABLES))


@dataclass(frozen=True)
class Cli(Processes):
    """A program that prints what a real one printed, read by one of the output formats."""

    name: str
    manifest: CliProvider
    said: str
    usage: Usage
    cost_usd: float | None
    text: str
    begins_with: int
    denied: tuple[str, str] = ("", "")
    scenes: tuple[str, ...] = field(default=SCENES)

    def provider(self, scene: str, folder: Path, sandbox: Sandbox) -> Provider:
        for name, text in (("text", self.text), ("out", self.denied[0]), ("err", self.denied[1])):
            (folder / name).write_text(text)
        begin, rest = f"head -n {self.begins_with} text", f"tail -n +{self.begins_with + 1} text"
        script = {
            "text": f"{begin}; {WAIT}; {rest}",
            "denied": "cat out; cat err >&2",
            "hang": f"{begin}; {HANG}",
            "crash": f"{begin}; echo 'no luck' >&2; exit 3",
            "killed": f"{begin}; kill -9 $$",
            "garbage": f"{NOISE}; cat text",
        }[scene]
        manifest = self.manifest.model_copy(update={"bin": str(program(folder, script))})
        return CliAgent(manifest, sandbox, lambda _: dict(VARIABLES))


@dataclass(frozen=True)
class Acp(Processes):
    """A program that speaks the Agent Client Protocol; see acp_agent."""

    name: str = "acp"
    scenes: tuple[str, ...] = SCENES
    said: str = "It is DONE"
    usage: Usage = field(default=Usage(100, 20, 30, 10))
    cost_usd: float | None = 0.02

    def provider(self, scene: str, folder: Path, sandbox: Sandbox) -> Provider:
        tokens = {"inputTokens": 60, "cachedReadTokens": 30, "cachedWriteTokens": 10}
        usage = {**tokens, "outputTokens": 20, "totalTokens": 120}
        cost = {"amount": 0.02, "currency": "USD"}
        spent = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}
        begin: list[dict[str, Any]] = [{"think": "DONE?"}, {"say": "It is "}]
        stop = {"stop": "end_turn", "usage": usage}
        end: list[dict[str, Any]] = [{"update": spent}, {"say": "DONE"}, stop]
        actions: dict[str, list[dict[str, Any]]] = {
            "text": [*begin, {"wait": "go"}, *end],
            "denied": [*begin, {"ask": {"kind": "edit", "title": "Write x"}}, *end],
            "hang": [*begin, {"hang": True}],
            "crash": [*begin, {"exit": 3}],
            "killed": [*begin, {"kill": 9}],
            "garbage": [{"noise": True}, *begin, *end],
        }
        return acp_agent(folder, sandbox, do=actions[scene])


def acp_agent(
    folder: Path,
    sandbox: Sandbox,
    permissions: dict[str, str] | None = None,
    settings: dict[str, Any] | None = None,
    **script: Any,
) -> AcpAgent:
    """An agent that does what a script says; see acp_agent."""
    file = folder / "script.json"
    file.write_text(json.dumps(script))
    fields = {
        "id": "acp",
        "label": "ACP",
        "description": "does as it is told",
        "transport": "acp",
        "bin": sys.executable,
        "args": ["-S", str(CHILDREN / "acp_agent.py"), str(file)],
        "permissions": permissions or {},
    }
    manifest = AcpProvider.model_validate(fields)
    return AcpAgent(manifest, sandbox, lambda _: dict(VARIABLES), **(settings or {}))


def program(folder: Path, script: str) -> Path:
    """Make a program of a shell script; it works in `folder` and reads its input first."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\ncat > stdin\ncd {shlex.quote(str(folder))}\n{script}\n")
    path.chmod(0o755)
    return path


def manifest(output_format: str) -> CliProvider:
    return CliProvider.model_validate(
        {
            "id": f"cli-{output_format}",
            "label": "A program",
            "description": "prints what it is told",
            "bin": "set by each scene",
            "promptVia": "stdin",
            "outputFormat": output_format,
        }
    )


def recorded(name: str) -> str:
    return (TRANSCRIPTS / name).read_text()


STANDS: tuple[Stand, ...] = (
    Scripted(),
    *HTTP_STANDS,
    Acp(),
    Cli(
        "cli-plain",
        manifest("plain"),
        said="It is\n\nDONE",
        usage=Usage(),
        cost_usd=None,
        text="It is\n\nDONE",
        begins_with=1,
        scenes=("text", "hang", "crash", "killed", "garbage"),
    ),
    Cli(
        "cli-claude",
        manifest("claude-stream-json"),
        said="It is DONE",
        usage=Usage(100, 20, 30, 0, "claude-opus-4-8"),
        cost_usd=0.000865,
        text=recorded("claude.text.jsonl"),
        begins_with=5,
        denied=(recorded("claude.denied.jsonl"), ""),
    ),
    Cli(
        "cli-codex",
        manifest("codex-json"),
        said="It is DONE",
        usage=Usage(100, 20, 30),
        cost_usd=None,
        text=recorded("codex.text.jsonl"),
        begins_with=1,
        denied=(recorded("codex.denied.jsonl"), recorded("codex.denied.stderr")),
    ),
)
