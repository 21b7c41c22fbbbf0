"""Queued runs begin when there is room: so many at once, so many of one workflow, exactly once."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infloop.app.storage import open_store
from infloop.runtime.runs import dispatch
from infloop.runtime.runs.definitions import PreparedDefinition
from infloop.settings import Settings
from infloop.store.interfaces.queue import Enqueued, QueuedRun
from infloop.store.sqlite import writer
from infloop.store.sqlite.store import DATABASE_FILE
from support.eventually import eventually, eventually_async, text_in
from support.processes import is_running
from support.runs import scripted
from support.server import Client, Events, Here, here, infloop, process, put_workflow, workflow


def gate(folder: Path, name: str = "gate") -> str:
    """A shell line that notes that it began and waits until the test opens the gate."""
    began = folder / "began"
    began.mkdir(exist_ok=True)
    return f"touch {began}/$$; while [ ! -e {folder}/{name} ]; do sleep 0.02; done"


def begun(folder: Path) -> int:
    return len(list((folder / "began").iterdir()))


def start(client: Client, workflow_id: str, count: int) -> list[str]:
    return [
        client.post("/api/run", {"workflowId": workflow_id}).json()["runId"] for _ in range(count)
    ]


async def test_no_more_runs_go_on_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("waits", gate(tmp_path)))

    def look(client: Client) -> None:
        ids = start(client, "waits", 5)
        eventually(lambda: begun(tmp_path) == 2)
        statuses = Counter(client.get(f"/api/runs/{each}").json()["run"]["status"] for each in ids)
        assert statuses == {"running": 2, "queued": 3}
        queue = client.get("/api/triggers/queue").json()
        assert [item["runId"] for item in queue["items"]] == ids[2:]
        assert [item["position"] for item in queue["items"]] == [1, 2, 3]
        (tmp_path / "gate").touch()
        assert {client.finished(each)["status"] for each in ids} == {"succeeded"}
        assert client.get("/api/triggers/queue").json()["size"] == 0

    async with here(tmp_path, max_concurrent_runs=2) as served:
        await asyncio.to_thread(look, served.client)
    assert begun(tmp_path) == 5


async def test_the_queue_says_that_a_run_started_between_its_first_and_its_other_events(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", workflow("instant"))

    def look(client: Client) -> None:
        with Events(client, "/api/events") as events:
            assert next(iter(events))["type"] == "state_snapshot"
            client.post("/api/run", {"workflowId": "instant"})
            kinds = [event["type"] for event in events.until("run_finished")]
        assert kinds[:3] == ["trigger_enqueued", "run_started", "trigger_started"]

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


async def test_runs_that_end_at_once_follow_each_other_and_one_that_does_not_keeps_its_place(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    put_workflow(data, workflow("instant"))
    put_workflow(data, workflow("first", gate(tmp_path, "one")))
    put_workflow(data, workflow("second", gate(tmp_path, "two")))
    before, behind = dispatch.MAX_IN_TURN + 4, 3

    def look(client: Client) -> None:
        start(client, "first", 1)
        eventually(lambda: begun(tmp_path) == 1)
        ended = start(client, "instant", before)
        start(client, "second", 1)
        waiting = start(client, "instant", behind)
        (tmp_path / "one").touch()
        eventually(lambda: begun(tmp_path) == 2)
        assert {client.finished(each)["status"] for each in ended} == {"succeeded"}
        queue = client.get("/api/triggers/queue").json()
        assert [item["runId"] for item in queue["items"]] == waiting
        (tmp_path / "two").touch()
        assert {client.finished(each)["status"] for each in waiting} == {"succeeded"}

    async with here(tmp_path, max_concurrent_runs=1) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_workflow_bounds_how_many_of_its_runs_go_on_at_once(tmp_path: Path) -> None:
    bounded = workflow("bounded", gate(tmp_path), limits={"maxConcurrentRuns": 1})
    put_workflow(tmp_path / "data", bounded)
    put_workflow(tmp_path / "data", workflow("other", "true"))

    def look(client: Client) -> None:
        ids = start(client, "bounded", 3)
        eventually(lambda: begun(tmp_path) == 1)
        assert client.run("other")["status"] == "succeeded"  # overtakes those that have no room
        assert begun(tmp_path) == 1
        (tmp_path / "gate").touch()
        assert {client.finished(each)["status"] for each in ids} == {"succeeded"}

    async with here(tmp_path, max_concurrent_runs=4) as served:
        await asyncio.to_thread(look, served.client)


async def test_what_is_too_much_to_wait_is_refused(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("waits", gate(tmp_path)))

    def look(client: Client) -> None:
        (first,) = start(client, "waits", 1)
        eventually(lambda: begun(tmp_path) == 1)
        waiting = start(client, "waits", 3)
        refused = client.post("/api/run", {"workflowId": "waits"})
        assert (refused.status, refused.json()["error"]) == (503, "queue-full")
        assert refused.headers["retry-after"] == "30"
        queue_id = client.get("/api/triggers/queue").json()["items"][0]["queueId"]
        assert client.ask("DELETE", f"/api/triggers/queue/{queue_id}").status == 204
        assert client.ask("DELETE", f"/api/triggers/queue/{queue_id}").status == 404
        removed = client.get(f"/api/runs/{waiting[0]}").json()["run"]
        assert removed["status"] == "removed"
        assert client.post(f"/api/runs/{waiting[1]}/cancel").status == 202
        (tmp_path / "gate").touch()
        for each in (first, waiting[2]):
            assert client.finished(each)["status"] == "succeeded"

    async with here(tmp_path, max_concurrent_runs=1, queue_limit=3) as served:
        await asyncio.to_thread(look, served.client)
    assert begun(tmp_path) == 2


NEEDS_WORD = [{"name": "word", "type": "string"}]
CHANGES: dict[str, tuple[dict[str, Any] | None, str]] = {
    # What becomes of the file of a run that waits, and why the run is held.
    "gone": (None, "workflow-deleted: "),
    "strict": ({"isolation": "container"}, "workflow-refused: workflow 'strict' asks"),
    "broken": ({"edges": [{"source": "no"}]}, "workflow-refused: "),
    "asks": ({"inputs": NEEDS_WORD}, "engine-start-failed: input 'word' is required"),
}


async def test_a_run_that_cannot_start_is_held_with_the_reason_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "RETRY_HELD_SECONDS", 3_600)  # until the reasons were read
    data = tmp_path / "data"
    put_workflow(data, workflow("waits", gate(tmp_path)))
    for name in CHANGES:
        put_workflow(data, workflow(name, "true"))

    def look(client: Client) -> None:
        start(client, "waits", 1)
        eventually(lambda: begun(tmp_path) == 1)
        held = {name: start(client, name, 2) for name in CHANGES}
        (last,) = start(client, "waits", 1)
        with sqlite3.connect(data / DATABASE_FILE) as database:  # as an earlier infloop left them
            database.execute("UPDATE queued SET definition = NULL")
        database.close()
        for name, (change, _) in CHANGES.items():
            (data / f"workflows/{name}.json").unlink()
            if change is not None:
                put_workflow(data, workflow(name, "true") | change)
        with Events(client, "/api/events") as events:
            (tmp_path / "gate").touch()
            told = events.until("trigger_held")[-1]
        assert told["runId"] in held["gone"]
        assert told["reason"] == "workflow-deleted"
        assert client.finished(last)["status"] == "succeeded"  # they stop nobody else
        for name, (_, reason) in CHANGES.items():
            for run_id in held[name]:
                waits = client.get(f"/api/runs/{run_id}").json()["run"]
                assert (waits["status"], waits["position"]) == ("queued", 0)
                assert waits["reason"].startswith(reason)
        entries = client.get("/api/audit?event=run.held").json()["entries"]
        promised = sorted(each for ids in held.values() for each in ids)
        assert sorted(entry["runId"] for entry in entries) == promised  # each of them once
        assert sorted(each["runId"] for each in client.get("/api/runs").json()["held"]) == promised
        gone = held["gone"].pop()
        assert f"{gone[:8]}  " in infloop(tmp_path, "runs").stdout
        why = infloop(tmp_path, "why", gone[:8], code=2).stderr
        assert "waits in the queue and is held: workflow-deleted" in why
        assert "removed from the queue" in infloop(tmp_path, "cancel", gone[:8]).stdout
        assert client.get(f"/api/runs/{gone}").json()["run"]["status"] == "removed"
        for name in CHANGES:
            put_workflow(data, workflow(name, "true"))
        monkeypatch.setattr(dispatch, "RETRY_HELD_SECONDS", 0.1)
        for run_id in (each for ids in held.values() for each in ids):
            assert client.finished(run_id)["status"] == "succeeded"
        assert client.get("/api/triggers/queue").json()["items"] == []

    async with here(tmp_path, max_concurrent_runs=1) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_queued_run_is_what_was_accepted_whatever_becomes_of_its_file(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    put_workflow(data, workflow("waits", gate(tmp_path)))
    for name in CHANGES:
        put_workflow(data, workflow(name, f"echo accepted >> {tmp_path}/{name}"))

    def look(client: Client) -> None:
        start(client, "waits", 1)
        eventually(lambda: begun(tmp_path) == 1)
        accepted = [start(client, name, 1)[0] for name in CHANGES]
        for name, (change, _) in CHANGES.items():
            (data / f"workflows/{name}.json").unlink()
            if change is not None:
                put_workflow(data, workflow(name, f"echo changed >> {tmp_path}/{name}") | change)
        (tmp_path / "gate").touch()
        assert {client.finished(each)["status"] for each in accepted} == {"succeeded"}
        assert {text_in(tmp_path / name) for name in CHANGES} == {"accepted\n"}

    async with here(tmp_path, max_concurrent_runs=1) as served:
        await asyncio.to_thread(look, served.client)


async def test_what_was_accepted_survives_a_start_with_other_settings(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = QueuedRun("q-r1", "r1", "tiny", {}, "cid_1", 1, extra={"workdir": str(tmp_path)})
    async with open_store(Settings(data_dir=tmp_path / "data")) as store:
        await store.queue.put(run, limit=1)

    def reason(client: Client) -> str:
        return str(client.get("/api/runs/r1").json()["run"]["reason"])

    async with here(tmp_path, workflows_dir=elsewhere) as served:
        why = await asyncio.to_thread(eventually, lambda: reason(served.client))
        assert why.startswith("workflow-deleted: ")
    async with here(tmp_path) as served:
        found = await asyncio.to_thread(served.client.finished, "r1")
        assert found["status"] == "succeeded"


async def test_what_can_neither_begin_nor_be_given_back_waits_again_as_soon_as_the_disk_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_SECONDS", 0.05)
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    async with here(tmp_path) as served:
        dispatcher = served.server.dispatcher
        read, other = dispatcher._definition, sqlite3.connect(tmp_path / "data" / DATABASE_FILE)
        tried = asyncio.Event()

        async def read_and_block(run: QueuedRun) -> PreparedDefinition:
            """Let another process hold the database from after the entry was taken."""
            if not tried.is_set():
                other.execute("BEGIN IMMEDIATE")
                tried.set()
            return await read(run)

        monkeypatch.setattr(dispatcher, "_definition", read_and_block)
        run_id = await queued(served, "tiny")
        async with asyncio.timeout(20):
            await tried.wait()
        await eventually_async(lambda: dispatcher._not_started)
        other.rollback()
        other.close()
        found = await asyncio.to_thread(served.client.finished, run_id)
        assert found["status"] == "succeeded"


def agent(name: str, provider: str) -> dict[str, Any]:
    node = {"id": "a", "type": "agent", "config": {"providerId": provider, "prompt": "go"}}
    return {
        "id": name,
        "name": name,
        "nodes": [{"id": "start", "type": "start"}, node],
        "edges": [{"source": "start", "target": "a"}],
    }


@pytest.mark.claim("I49", "I51", "I52")
async def test_a_spent_budget_refuses_new_runs_and_keeps_the_waiting_ones_for_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the agent's directory is kept as it was, so let it be small
    data = tmp_path / "data"
    scripted(data / "providers", "dear", {"do": [{"cost": 2.0}]})
    put_workflow(data, agent("dear", "dear"))
    put_workflow(data, workflow("free", "true"))
    settings: dict[str, Any] = {"max_total_cost_usd": 1.0}
    async with here(tmp_path, **settings) as served:
        assert (await served.run("dear"))["scope"]["a"]["costUsd"] == 2.0
        refused = await served.ask("POST", "/api/run", {"workflowId": "free"})
        assert (refused.status, refused.json()["error"]) == (503, "budget-spent")
        metrics = (await served.ask("GET", "/metrics")).body.decode()
        assert "infloop_run_cost_usd_total 2.0" in metrics
        kept = await queued(served, "free")
        await held(served)
        assert (await served.ask("GET", f"/api/runs/{kept}")).json()["run"]["status"] == "queued"
    async with here(tmp_path, **settings) as again:
        run = await asyncio.to_thread(again.client.finished, kept)
        assert run["status"] == "succeeded"
        assert not again.server.dispatcher.held


async def queued(served: Here, workflow_id: str) -> str:
    """Put a run into the queue as a trigger does, which is not refused."""
    from infloop.model.events import Cause
    from infloop.runtime.runs.dispatch import RunRequest

    asked = RunRequest(workflow_id, {}, Cause("webhook"), "/", "cid_x")
    put = await served.server.dispatcher.put(asked)
    assert isinstance(put, Enqueued)
    return put.run_id


async def held(served: Here) -> None:
    await eventually_async(lambda: served.server.dispatcher.held)


def test_what_was_promised_is_run_exactly_once_although_the_server_is_killed(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    line = f"echo x | tee -a {marks}/{{{{inputs.mark}}}}; sleep 0.05"
    inputs = [{"name": "mark", "type": "string"}]
    put_workflow(tmp_path / "data", workflow("marks", line, onCrash="resume", inputs=inputs))
    promised: dict[str, str] = {}
    for kill in range(2):
        with process(tmp_path, max_concurrent_runs="2") as served:
            for mark in (f"{kill}-{number}" for number in range(12)):
                asked = {"workflowId": "marks", "inputs": {"mark": mark}}
                promised[mark] = served.client.post("/api/run", asked).json()["runId"]
            served.end(signal.SIGKILL)
    with process(tmp_path, max_concurrent_runs="4") as served:
        runs = [served.client.finished(each) for each in promised.values()]
        assert {run["status"] for run in runs} == {"succeeded"}
        listed = served.client.get("/api/runs?limit=500").json()["runs"]
        assert sorted(run["runId"] for run in listed) == sorted(promised.values())
    times = {mark.name: len(mark.read_text().split()) for mark in marks.iterdir()}
    assert times.keys() == promised.keys()
    assert sum(times.values()) <= len(promised) + 2 * 2  # a step that was killed begins again


@pytest.mark.claim("I57")
def test_a_start_after_a_crash_records_what_was_interrupted(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("long", f"echo $$ > {tmp_path}/pid; exec sleep 600"))
    with process(tmp_path) as served:
        (run_id,) = start(served.client, "long", 1)
        text_in(tmp_path / "pid")
        served.end(signal.SIGKILL)
    with process(tmp_path) as served:
        run = served.client.get(f"/api/runs/{run_id}").json()["run"]
        assert run["status"] == "failed"
        assert "interrupted" in run["errorMessage"]
        (entry,) = served.client.get("/api/audit?event=run.recovered").json()["entries"]
        assert (entry["runId"], entry["actor"]["kind"]) == (run_id, "system")
        started = served.client.get(f"/api/audit?event=run.started&run={run_id}").json()["entries"]
        assert len(started) == 1
    eventually(lambda: not is_running(int((tmp_path / "pid").read_text())))
