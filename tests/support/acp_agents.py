"""Agents that speak the Agent Client Protocol and do what a script says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from infloop.providers.base import (
    AnswerPart,
    Done,
    Request,
)
from infloop.sandbox.levels.host import HostSandbox
from support.paths import CHILDREN
from support.provider_conformance import acp_agent

RM = {"kind": "execute", "title": "`rm -rf build`", "rawInput": {"command": "rm -rf build"}}
STOP = {"stop": "end_turn"}


def bot(folder: Path, *do: dict[str, Any], decision: str = "ask") -> None:
    """Put an agent into the data directory that does these things; see acp_agent."""
    providers = folder / "data/providers"
    providers.mkdir(parents=True, exist_ok=True)
    script = folder / "script.json"
    script.write_text(json.dumps({"do": do or [{"ask": RM}, {"say": "done"}, STOP]}))
    manifest = {
        "id": "bot",
        "label": "Bot",
        "description": "does as it is told",
        "transport": "acp",
        "bin": sys.executable,
        "args": ["-S", str(CHILDREN / "acp_agent.py"), str(script)],
        "permissions": {"default": decision},
    }
    (providers / "bot.json").write_text(json.dumps(manifest))


DEADLINE_S = 30.0
ALL_ALLOWED = {"default": "allow"}


class Bench:
    """An agent that does what a script says, in a directory of its own."""

    def __init__(
        self,
        folder: Path,
        sandbox: HostSandbox,
        *do: dict[str, Any],
        permissions: dict[str, str] | None = None,
        settings: dict[str, Any] | None = None,
        **script: Any,
    ) -> None:
        self.folder = folder
        script = {"do": [*do], **script}
        self.agent = acp_agent(folder, sandbox, permissions, settings, **script)

    def ask(self, prompt: str = "hello", **fields: Any) -> AsyncGenerator[AnswerPart]:
        asked = self.agent.ask(Request(prompt, str(self.folder), **fields))
        return cast("AsyncGenerator[AnswerPart]", asked)

    async def parts(self, prompt: str = "hello", **fields: Any) -> list[AnswerPart]:
        async with asyncio.timeout(DEADLINE_S), aclosing(self.ask(prompt, **fields)) as parts:
            return [part async for part in parts]

    async def done(self, prompt: str = "hello", **fields: Any) -> Done:
        ending = (await self.parts(prompt, **fields))[-1]
        assert isinstance(ending, Done)
        return ending

    @property
    def heard(self) -> list[dict[str, Any]]:
        """Everything that the agent has read."""
        return list(map(json.loads, (self.folder / "heard.jsonl").read_text().splitlines()))

    def told(self, method: str) -> dict[str, Any]:
        """The params of the one message of ours with this method."""
        (params,) = [one["params"] for one in self.heard if one.get("method") == method]
        return cast("dict[str, Any]", params)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Our answers to what the agent asked."""
        return [one for one in self.heard if "method" not in one]
