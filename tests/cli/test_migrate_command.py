"""`infloop migrate`: an installation moves from a file to PostgreSQL, with its history."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import msgspec

from infloop.app.storage import open_store
from infloop.engine.graph import Definition
from infloop.settings import Settings
from infloop.store.interfaces.ledger import Bill, NewCall
from infloop.store.interfaces.queue import QueuedRun
from infloop.store.interfaces.refusals import RefusedFiring
from infloop.store.interfaces.run_log import definition_hash
from support.cluster import shared_database, worker
from support.eventually import eventually
from support.runs import scripted
from support.server import Client, infloop, process, put_workflow, workflow

LONG = "word " * 40_000  # kept by hash, in parts


async def fill(chosen: Settings) -> None:
    """Add what the commands of this test do not make."""
    definition = Definition("waits", {"waits": workflow("waits", "true")}).encode()
    name = definition_hash(definition)
    queued = QueuedRun("q-1", "run-1", "waits", {"a": 1}, "cid_1", 1, definition=name)
    call = NewCall("run-0", "waits", "a", 1, "claude", "m", "agent", "i-gone", 5)
    async with open_store(chosen) as store:
        await store.queue.put(queued, limit=9, definition=definition)
        reserved = await store.ledger.reserve(call)
        assert isinstance(reserved, int)
        await store.ledger.settle(reserved, Bill(usd=1.25), known=True, time=6)
        refused = RefusedFiring("t", "nightly", "schedule", "waits", "full", "no", "cid_2", 7)
        await store.refusals.note(refused)
        run = (await store.run_log.runs())[0]
        await store.results.save(run.id, run.epoch, b"PACK" * 9)


async def content(chosen: Settings) -> dict[str, Any]:
    """Everything that a reader finds, without what differs between processes."""
    async with open_store(chosen) as store:
        runs = await store.run_log.runs()
        return {
            "runs": [msgspec.structs.replace(run, definition="") for run in runs],
            "events": [await store.run_log.events(run.id) for run in runs],
            "scopes": [await store.run_log.scope(run.id) for run in runs],
            "definitions": [(await store.run_log.load(run.id)).definition for run in runs],
            "queue": await store.queue.entries(),
            "body": await store.queue.definition((await store.queue.entry("q-1")).run.definition),
            "spent": await store.ledger.total(),
            "refused": await store.refusals.newest(),
            "packs": [await store.results.packs(run.id) for run in runs],
            "found": [hit.run.id for hit in await store.run_log.search("needle")],
        }


def test_an_installation_moves_to_postgresql_with_its_history(tmp_path: Path) -> None:
    data = tmp_path / "data"
    put_workflow(data, workflow("talks", f"echo {'{{inputs.text}}'} needle"))
    file = tmp_path / "data/workflows/talks.json"
    infloop(tmp_path, "run", str(file), "--input", f"text={LONG[:90_000]}")
    infloop(tmp_path, "run", str(file), "--input", "text=short")
    here = Settings(data_dir=data)
    asyncio.run(fill(here))
    before = asyncio.run(content(here))
    assert len(before["runs"]) == 2
    shared = shared_database("postgresql", tmp_path)
    target = ("migrate", "--from", "sqlite", "--to", shared["database"])
    with process(tmp_path, "--no-runs"):
        assert "stop it first" in infloop(tmp_path, *target, code=2).stderr
    said = infloop(tmp_path, *target).stdout
    assert "         2  run\n" in said
    assert "         1  call\n" in said
    there = Settings(data_dir=tmp_path / "other", **shared)
    assert asyncio.run(content(there)) == before
    assert asyncio.run(content(here)) == before  # the source stays
    assert "not empty" in infloop(tmp_path, *target, code=2).stderr
    infloop(tmp_path, "run", str(file), "--input", "text=new", code=0, **shared)
    assert len(asyncio.run(content(there))["runs"]) == 3


def one_step(name: str, kind: str, **config: Any) -> dict[str, Any]:
    nodes = [{"id": "start", "type": "start"}, {"id": "it", "type": kind, "config": config}]
    return {
        "id": name,
        "name": name,
        "nodes": nodes,
        "edges": [{"source": "start", "target": "it"}],
    }


def ask(client: Client, name: str) -> str:
    answer = client.post("/api/run", {"workflowId": name})
    assert answer.status == 202, answer.body
    return str(answer.json()["runId"])


def test_what_waited_or_was_interrupted_goes_on_after_the_move(tmp_path: Path) -> None:
    data = tmp_path / "data"
    target = shared_database("postgresql", tmp_path)["database"]
    scripted(data / "providers", "dear", {"do": [{"text": "done"}, {"cost": 0.25}]})
    put_workflow(data, one_step("paid", "agent", providerId="dear", prompt="think"))
    put_workflow(data, {**one_step("asks", "approval", question="Go on?"), "onCrash": "resume"})
    put_workflow(data, workflow("waits", "true", requires=["gpu"]))
    with process(tmp_path) as served:
        paid = ask(served.client, "paid")
        assert served.client.finished(paid)["status"] == "succeeded"
        asks, waits = ask(served.client, "asks"), ask(served.client, "waits")
        eventually(lambda: served.client.get("/api/approvals").json()["approvals"])
        served.end(signal.SIGKILL)
    looks = (("costs",), ("queue",), ("logs", paid))
    before = {look: infloop(tmp_path, *look).stdout for look in looks}

    secretly = target.replace("tester@", "tester:hunter22@")
    moved = json.loads(infloop(tmp_path, "migrate", "--to", secretly, "--json").stdout)

    rows = {each["table"]: each["rows"] for each in moved["tables"]}
    assert (rows["run"], rows["call"], rows["queued"], rows["approval"]) == (2, 1, 3, 1)
    assert "hunter22" not in str(moved)
    entries = infloop(tmp_path, "audit", "--event", "store.moved", "--json").stdout.splitlines()
    last = json.loads(entries[0])
    assert (last["actor"]["kind"], last["details"]) == ("cli", {"to": moved["database"]})
    shared = {"database": target}
    assert {look: infloop(tmp_path, *look, code=0, **shared).stdout for look in looks} == before
    with (
        process(tmp_path, "--no-runs", **shared) as served,
        worker(tmp_path, "one", "--label", "gpu", **shared, data_dir=str(data)),
    ):
        assert served.client.finished(waits)["status"] == "succeeded"
        (question,) = eventually(
            lambda: [
                each
                for each in served.client.get("/api/approvals").json()["approvals"]
                if each["runId"] == asks
            ]
        )
        infloop(tmp_path, "approve", question["id"], code=0, **shared)
        assert served.client.finished(asks)["status"] == "succeeded"
