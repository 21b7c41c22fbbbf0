"""`infloop worker` as a process: it takes what servers accept, and others take over from it."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infloop.app.storage import open_store
from infloop.model.events import Recorded, RunFinished
from infloop.runtime.runs.replay import SEQ_GAP
from infloop.settings import Settings
from infloop.store.sqlite.store import DATABASE_FILE
from support.cluster import shared_database, worker
from support.eventually import eventually
from support.processes import is_running
from support.server import Client, Events, infloop, process, put_workflow, workflow


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Settings of processes that share a file, or a database and nothing else."""
    return shared_database(request.param, tmp_path)


def ask(client: Client, workflow_id: str, **more: Any) -> str:
    answer = client.post("/api/run", {"workflowId": workflow_id, **more})
    assert answer.status == 202, answer.body
    return str(answer.json()["runId"])


def run_of(client: Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/runs/{run_id}").json()["run"]
    return found


def sleeper(name: str, folder: Path, **more: Any) -> dict[str, Any]:
    """A workflow that writes the id of its process and waits until the test opens the gate."""
    line = f"echo $$ >> {folder}/{name}.pid; while [ ! -e {folder}/gate ]; do sleep 0.02; done"
    return workflow(name, line, **more)


def echoing_agent(providers: Path) -> dict[str, Any]:
    """A workflow whose agent is a program of the server's operator."""
    providers.mkdir()
    manifest = {"id": "mine", "label": "Mine", "description": "-", "bin": "echo"}
    (providers / "mine.json").write_text(json.dumps({**manifest, "args": ["{prompt}"]}))
    config = {"providerId": "mine", "prompt": "hello"}
    return {
        "id": "agent",
        "name": "agent",
        "nodes": [
            {"id": "start", "type": "start"},
            {"id": "a", "type": "agent", "config": config},
        ],
        "edges": [{"source": "start", "target": "a"}],
    }


def test_a_worker_takes_what_a_server_accepts_and_nobody_else_can_run(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    put_workflow(tmp_path / "data", workflow("any", "true"))
    put_workflow(tmp_path / "data", workflow("dear", "true", requires=["gpu", "repo:web"]))
    put_workflow(tmp_path / "data", echoing_agent(tmp_path / "data" / "providers"))
    with process(tmp_path, "--no-runs", **shared) as served:
        client = served.client
        plain, dear, agent = ask(client, "any"), ask(client, "dear"), ask(client, "agent")
        why = "no server or worker takes runs"
        assert run_of(client, plain)["reason"].startswith(why)
        with worker(tmp_path, "one", "--label", "gpu", "--capacity", "2", **shared) as one:
            assert "2 runs at once, labels gpu" in one.said
            assert client.finished(plain)["status"] == "succeeded"
            assert client.finished(agent)["scope"]["a"]["stdout"].strip() == "hello"
            items = client.get("/api/triggers/queue").json()["items"]
            assert [(item["runId"], item["requires"]) for item in items] == [
                (dear, ["gpu", "repo:web"])
            ]
            assert items[0]["waitsFor"] == "no worker has the label repo:web"
            assert (
                "no worker has the label repo:web"
                in infloop(tmp_path, "queue", code=0, **shared).stdout
            )
            told = infloop(tmp_path, "why", dear[:8], code=2, **shared).stderr
            assert "waits in the queue: no worker has the label repo:web" in told
            with worker(tmp_path, "two", worker_labels="repo:web, gpu", **shared) as two:
                assert client.finished(dear)["status"] == "succeeded"
                listed = client.get("/api/workers").json()
                shown = json.loads(infloop(tmp_path, "workers", "--json", code=0, **shared).stdout)[
                    "workers"
                ]
                assert [each["id"] for each in shown] == [each["id"] for each in listed["workers"]]
                facts = {each["id"]: each for each in listed["workers"]}
                assert facts[one.id]["labels"] == ["gpu"]
                assert (facts[two.id]["kind"], facts[two.id]["state"]) == ("worker", "alive")
                assert {each["kind"] for each in shown} == {"serve", "worker"}
                assert (
                    f"{one.id}  worker  alive   0/2 runs"
                    in infloop(tmp_path, "workers", code=0, **shared).stdout
                )
                assert two.end() == 0
            assert one.end(signal.SIGINT) == 0
            assert one.log == two.log == ""


def test_a_worker_that_drains_finishes_its_runs_and_takes_no_more(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", sleeper("long", tmp_path))
    with (
        process(tmp_path, "--no-runs") as served,
        worker(tmp_path, "one", "--drain", "--capacity", "1") as one,
        worker(tmp_path, "two", "--drain", "--capacity", "1") as two,
    ):
        ids = [ask(served.client, "long") for _ in range(3)]
        eventually(lambda: len(pids(tmp_path, "long")) == 2)
        for each in (one, two):
            each.process.send_signal(signal.SIGTERM)
            assert each.process.stdout is not None
            assert each.process.stdout.readline() == "takes no more runs; waits for 1 of them\n"
        assert two.end() == 0  # a second signal: it does not wait
        statuses = [run_of(served.client, each)["status"] for each in ids]
        assert sorted(statuses) == ["cancelled", "queued", "running"]
        (tmp_path / "gate").touch()
        assert one.process.wait(30) == 0
        statuses = [run_of(served.client, each)["status"] for each in ids]
        assert sorted(statuses) == ["cancelled", "queued", "succeeded"]


def pids(folder: Path, name: str) -> list[int]:
    file = folder / f"{name}.pid"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_others_take_over_from_a_worker_that_died(tmp_path: Path, shared: dict[str, str]) -> None:
    data = tmp_path / "data"
    put_workflow(data, sleeper("stays", tmp_path, onCrash="resume"))
    put_workflow(data, sleeper("fails", tmp_path))
    with (
        process(tmp_path, "--no-runs", **shared) as served,
        worker(tmp_path, "one", **shared) as one,
    ):
        stays, fails = ask(served.client, "stays"), ask(served.client, "fails")
        eventually(lambda: pids(tmp_path, "stays") and pids(tmp_path, "fails"))
        with worker(tmp_path, "two", **shared) as two:
            one.end(signal.SIGKILL)
            eventually(lambda: len(pids(tmp_path, "stays")) == 2)
            eventually(lambda: not is_running(pids(tmp_path, "stays")[0]))
            ended = served.client.finished(fails)
            assert ended["status"] == "failed"
            assert "interrupted" in ended["errorMessage"]
            (tmp_path / "gate").touch()
            assert served.client.finished(stays)["status"] == "succeeded"
            assert f"run {stays} goes on here" in two.log
            states = served.client.get("/api/workers").json()["workers"]
            assert one.id not in [each["id"] for each in states]  # nothing of it is left


def test_a_worker_that_starts_resumes_only_what_it_can_take(tmp_path: Path) -> None:
    more = {"onCrash": "resume", "requires": ["gpu"]}
    put_workflow(tmp_path / "data", sleeper("dear", tmp_path, **more))
    put_workflow(tmp_path / "data", workflow("any", "true"))
    with process(tmp_path, "--no-runs") as served:
        with worker(tmp_path, "one", "--label", "gpu") as one:
            dear = ask(served.client, "dear")
            eventually(lambda: pids(tmp_path, "dear"))
            one.end(signal.SIGKILL)
        with worker(tmp_path, "two") as two:
            assert served.client.run("any")["status"] == "succeeded"
            assert run_of(served.client, dear)["status"] == "interrupted"
            assert two.log == ""
            with worker(tmp_path, "three", "--label", "gpu") as three:
                eventually(lambda: len(pids(tmp_path, "dear")) == 2)
                (tmp_path / "gate").touch()
                assert served.client.finished(dear)["status"] == "succeeded"
                assert f"run {dear} goes on here" in three.log


def test_a_worker_that_was_taken_for_dead_ends_its_runs_and_registers_anew(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    data = tmp_path / "data"
    put_workflow(data, sleeper("long", tmp_path))
    put_workflow(data, workflow("next", "true"))
    with (
        process(tmp_path, "--no-runs", **shared) as served,
        worker(tmp_path, "one", **shared) as one,
    ):
        taken, forgotten = ask(served.client, "long"), ask(served.client, "long")
        children = eventually(lambda: found if len(found := pids(tmp_path, "long")) == 2 else None)
        one.process.send_signal(signal.SIGSTOP)
        chosen = Settings(data_dir=data, **shared)
        asyncio.run(take_over(chosen, taken))
        forget(tmp_path, one.id, shared)
        before = asyncio.run(events_of(chosen, taken, forgotten))
        one.process.send_signal(signal.SIGCONT)
        for pid in children:
            eventually(partial(is_gone, pid))
        eventually(lambda: "registered anew as i-" in one.log)
        assert f"run {taken} belongs to another process now" in one.log
        after = asyncio.run(events_of(chosen, taken, forgotten))
        assert after[0] == before[0]
        assert after[1] in (before[1], before[1] + SEQ_GAP)  # the server may have settled it
        assert served.client.run("next")["status"] == "succeeded"
        (mine,) = [each for each in listed(served.client) if each["kind"] == "worker"]
        assert mine["id"] != one.id
        assert mine["id"] in one.log
        assert one.end() == 0


def is_gone(pid: int) -> bool:
    return not is_running(pid)


def listed(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/workers").json()["workers"]
    return found


async def events_of(chosen: Settings, *run_ids: str) -> list[int]:
    async with open_store(chosen) as store:
        return [(await store.run_log.run(run_id)).last_seq for run_id in run_ids]


async def take_over(chosen: Settings, run_id: str) -> None:
    """Settle a run as the process does that takes it over."""
    async with open_store(chosen) as store:
        ownership = await store.run_log.take_over(run_id, "somebody", force=True)
        event = Recorded(run_id, ownership.last_seq + 1, 1, "cid_1", RunFinished("failed"))
        await store.run_log.append(run_id, ownership.epoch, [event])


def forget(folder: Path, instance_id: str, shared: dict[str, str]) -> None:
    """Let a stopped process be dead for all others, as after a long time on another machine."""
    if shared:
        from support.postgresql import execute

        old = "now() - interval '1 hour'"
        execute(
            folder,
            f"UPDATE infloop.instance SET beat_at = {old} WHERE id = '{instance_id}'",
        )
        return
    with sqlite3.connect(folder / "data" / DATABASE_FILE) as database:
        database.execute("DELETE FROM instance WHERE id = ?", (instance_id,))
    database.close()


def test_cancelling_answering_and_following_reach_a_run_on_a_worker(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    data = tmp_path / "data"
    put_workflow(data, sleeper("long", tmp_path))
    asks = {"id": "ask", "type": "approval", "config": {"question": "Go on?"}}
    put_workflow(
        data,
        {
            "id": "asks",
            "name": "asks",
            "nodes": [{"id": "start", "type": "start"}, asks],
            "edges": [{"source": "start", "target": "ask"}],
        },
    )
    with process(tmp_path, "--no-runs", **shared) as served, worker(tmp_path, "one", **shared):
        client = served.client
        with Events(client, "/api/events") as everything:
            assert next(iter(everything))["type"] == "state_snapshot"
            long, asking = ask(client, "long"), ask(client, "asks")
            with Events(client, f"/api/runs/{long}/events") as stream:
                eventually(lambda: pids(tmp_path, "long"))
                infloop(tmp_path, "cancel", long[:8], code=0, **shared)
                told = stream.until("run_finished")
                assert told[-1]["status"] == "cancelled"
            of_all = everything.until("run_finished")
            assert [each for each in of_all if each["runId"] == long and "seq" in each] == told
        eventually(lambda: client.get("/api/approvals").json()["approvals"])
        (question,) = client.get("/api/approvals").json()["approvals"]
        infloop(tmp_path, "approve", question["id"][:8], code=0, **shared)
        assert client.finished(asking)["status"] == "succeeded"
