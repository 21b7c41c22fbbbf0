"""Runs whose store is away for longer than anybody waits for it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from support.eventually import eventually_async
from support.postgresql import Server
from support.server import here, put_workflow, workflow


async def test_a_run_that_could_not_be_stored_is_recovered_and_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("connections", "writer", "readers"):
        monkeypatch.setattr(f"infloop.store.postgresql.{module}.PATIENCE_SECONDS", 0.5)
    gate, line = tmp_path / "gate", f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done"
    put_workflow(tmp_path / "data", workflow("fails", f"touch {tmp_path}/fails; {line}"))
    put_workflow(
        tmp_path / "data",
        workflow("resumes", f"touch {tmp_path}/resumes; {line}", onCrash="resume"),
    )
    database = Server()
    try:
        database.execute("CREATE DATABASE away")
        async with here(tmp_path, database=database.address("away")) as served:
            asked = [
                (await served.ask("POST", "/api/run", {"workflowId": name})).json()["runId"]
                for name in ("fails", "resumes")
            ]
            await eventually_async(
                lambda: (tmp_path / "fails").exists() and (tmp_path / "resumes").exists()
            )
            await asyncio.to_thread(database.stop, "immediate")
            gate.touch()
            await eventually_async(lambda: not served.server.service.live(), "both give up")
            database.start()
            fails, resumes = [
                await eventually_async(partial(ended, database, run_id)) for run_id in asked
            ]
            assert "interrupted: this process could not go on with it" in fails
            assert resumes.startswith("succeeded")
    finally:
        database.remove()


def ended(database: Server, run_id: str) -> str:
    """Return how a run ended, and why; nothing as long as it is stored as running."""
    how = "status || ' ' || error"
    sql = f"SELECT {how} FROM infloop.run WHERE id = '{run_id}' AND status <> 'running'"
    return "".join(str(row[0]) for row in database.execute(sql, "away"))
