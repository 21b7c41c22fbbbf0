"""A whole application in a temporary directory: real journal, real children, scripted agents."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop.app.runs import open_service
from infloop.engine.graph import Definition
from infloop.model.events import Cause, Event, Output, Recorded, RunFinished
from infloop.settings import Settings
from support.eventually import eventually_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.runtime.runs.service import RunService
    from infloop.store.interfaces.ledger import Spending


@dataclass
class Finished:
    """A run that is over, with all it recorded."""

    run_id: str
    result: RunFinished
    scope: dict[str, Any]
    recorded: list[Recorded] = field(default_factory=list)

    @property
    def status(self) -> str:
        return self.result.status

    @property
    def events(self) -> list[Event]:
        return [r.event for r in self.recorded if not isinstance(r.event, Output)]

    def said(self, stream: str = "stdout") -> str:
        return "".join(
            r.event.text
            for r in self.recorded
            if isinstance(r.event, Output) and r.event.stream == stream
        )


class World:
    """A service and what tests do with it."""

    def __init__(self, service: RunService, settings: Settings, folder: Path) -> None:
        self.service = service
        self.settings = settings
        self.folder = folder

    async def start(
        self, root: dict[str, Any], *called: dict[str, Any], inputs: dict[str, Any] | None = None
    ) -> str:
        definition = Definition(root["id"], {each["id"]: each for each in (root, *called)})
        return await self.service.start(
            definition, inputs or {}, workdir=str(self.folder), cause=Cause()
        )

    async def run(
        self, root: dict[str, Any], *called: dict[str, Any], inputs: dict[str, Any] | None = None
    ) -> Finished:
        return await self.finish(await self.start(root, *called, inputs=inputs))

    async def finish(self, run_id: str) -> Finished:
        recorded = [item async for batch in self.service.listen(run_id) for item in batch]
        result = recorded[-1].event
        assert isinstance(result, RunFinished)
        await self.service.wait(run_id)
        scope = await self.service.store.run_log.scope(run_id)
        return Finished(run_id, result, scope or {}, recorded)

    async def settled(self, calls: int) -> Spending:
        """What so many calls cost, when all of them are over."""

        async def over() -> Spending | None:
            spent = await self.service.store.ledger.total()
            return spent if spent.calls >= calls and not spent.open else None

        return await eventually_async(over)


def scripted(settings_dir: Path, provider: str, *turns: Any) -> None:
    """Write a provider manifest and its file of turns."""
    settings_dir.mkdir(parents=True, exist_ok=True)
    (settings_dir / f"{provider}.turns.json").write_text(json.dumps({"turns": list(turns)}))
    manifest = {
        "id": provider,
        "label": provider,
        "description": "plays a file of turns",
        "transport": "scripted",
        "script": f"{provider}.turns.json",
    }
    (settings_dir / f"{provider}.json").write_text(json.dumps(manifest))


@asynccontextmanager
async def world(tmp_path: Path, **settings: Any) -> AsyncIterator[World]:
    """Open an application whose data directory and working directory are under `tmp_path`."""
    chosen = Settings(data_dir=tmp_path / "data", **{"isolation": "host", **settings})
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    async with open_service(chosen) as service:
        yield World(service, chosen, folder)
