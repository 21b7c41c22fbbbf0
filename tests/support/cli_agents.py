"""Programs that stand for an agent with a command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import psutil

from infloop.model.provider import CliProvider, parse_provider
from infloop.providers.base import (
    AnswerPart,
    Done,
    Request,
)
from infloop.providers.cli.agent import CliAgent
from infloop.sandbox.levels.host import HostSandbox
from support.provider_conformance import VARIABLES, program, recorded

DEADLINE_S = 30.0
CLAUDE_TEXT = recorded("claude.text.jsonl")


def manifest(**fields: Any) -> CliProvider:
    whole = {"id": "some", "label": "Some", "description": "some agent", "bin": "agent", **fields}
    read, problems = parse_provider(json.dumps(whole).encode())
    assert isinstance(read, CliProvider), problems
    return read


def request(prompt: str = "hello", **fields: Any) -> Request:
    return Request(prompt, fields.pop("cwd", "/"), **fields)


class Bench:
    """A program that runs `script`, as an agent; what it is asked, it keeps in its directory."""

    def __init__(self, folder: Path, sandbox: HostSandbox, script: str, **fields: Any) -> None:
        self.folder = folder
        (folder / "claude.text").write_text(CLAUDE_TEXT)
        settings = {name: fields.pop(name) for name in ("after_result_ms",) if name in fields}
        self.program = str(program(folder, script))
        self.manifest = manifest(**{"bin": self.program, "promptVia": "stdin", **fields})
        self.agent = CliAgent(self.manifest, sandbox, lambda _: dict(VARIABLES), **settings)

    def ask(self, prompt: str = "hello", **fields: Any) -> AsyncGenerator[AnswerPart]:
        asked = self.agent.ask(request(prompt, cwd=str(self.folder), **fields))
        return cast("AsyncGenerator[AnswerPart]", asked)

    async def parts(self, prompt: str = "hello", **fields: Any) -> list[AnswerPart]:
        async with asyncio.timeout(DEADLINE_S), aclosing(self.ask(prompt, **fields)) as parts:
            return [part async for part in parts]

    async def done(self, prompt: str = "hello", **fields: Any) -> Done:
        ending = (await self.parts(prompt, **fields))[-1]
        assert isinstance(ending, Done)
        return ending

    def running(self) -> list[int]:
        """The process ids that the program wrote into `pids`, of those that still run."""
        pids = map(int, (self.folder / "pids").read_text().split())
        return [pid for pid in pids if psutil.pid_exists(pid)]
