"""Runs of the real agents under confinement: directories for them, and workflows."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from infloop.providers import SHIPPED_DIR
from support.agent_programs import PROGRAMS
from support.runs import World, world
from support.service_user import SERVICE_USER, folder_for_children, give
from support.workflows import edges, node, workflow

MARK = "PLACE_OF_A_TEST"
START = node("s", "start")


def asking(provider: str, prompt: str = "Please say DONE", **config: Any) -> dict[str, Any]:
    """A step that asks an agent which may do everything."""
    model = {"claude": "claude-sonnet-4-5", "codex": "gpt-5-codex"}[provider]
    fields = {"providerId": provider, "prompt": prompt, "profile": model, "skipPermissions": True}
    return node("a", "agent", **{**fields, **config})


def once(agent: dict[str, Any], **more: Any) -> dict[str, Any]:
    return workflow([START, agent], edges("s next a"), **more)


def rounds(agent: dict[str, Any], times: int, **more: Any) -> dict[str, Any]:
    loop = node("l", "loop", [agent], maxIterations=times, mode="unbounded")
    return workflow([START, loop], edges("s next l"), **more)


class Place:
    """A directory that the children's user can enter; its workspace and home belong to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.data = folder / "data"

    def put(self, name: str, text: str) -> Path:
        """Write a file into the home."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        give(file.parent, file)
        return file

    def manifest(self, provider: str, **changes: Any) -> None:
        """Let the operator have a changed copy of a shipped manifest; None takes a field out."""
        shipped = json.loads((SHIPPED_DIR / f"{provider}.json").read_text())
        mine = {name: value for name, value in {**shipped, **changes}.items() if value is not None}
        folder = self.data / "providers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{provider}.json").write_text(json.dumps(mine))

    @asynccontextmanager
    async def world(self, level: str, **settings: Any) -> AsyncIterator[World]:
        settings = {"service_user": SERVICE_USER, "snapshots": False, **settings}
        settings |= {"isolation": level, "child_env_passthrough": MARK}
        async with world(self.folder, **settings) as here:
            yield here

    def texts(self) -> Iterator[tuple[Path, bytes]]:
        """All that lies in the home, the workspace and the data directory."""
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes()

    def processes(self) -> list[str]:
        """Everything that was started for this place, by a variable that all children get."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.folder):
                    found.append(f"{process.pid} {process.name()}")
            except (psutil.Error, OSError):
                continue
        return found


@contextmanager
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Make such a place, and an environment for infloop in which the agents are found."""
    with folder_for_children("home", "work") as folder:
        made = Place(folder)
        monkeypatch.setenv("PATH", f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin")
        monkeypatch.setenv("HOME", str(made.home))
        monkeypatch.setenv(MARK, str(folder))
        monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENAI_API_KEY", "CODEX_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        yield made
