"""The API, asked as a program asks it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from infloop.store.run_records import import_record
from infloop.store.sqlite.readers import ReaderThreads
from support.eventually import eventually, eventually_async
from support.server import TOKEN, Client, Here, Process, here, process, put_workflow, workflow
from support.stores import store_in
from support.workflows import edges, node
from support.workflows import workflow as graph


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("api")
    put_workflow(folder / "data", workflow("tiny", "echo a-word-to-find"))
    put_workflow(
        folder / "data",
        workflow(
            "asks",
            "true",
            inputs=[
                {"name": "count", "type": "number"},
                {"name": "word", "type": "string", "default": "x"},
            ],
        ),
    )
    put_workflow(folder / "data", workflow("long", "sleep 600"))
    with process(folder, api_token=TOKEN) as made:
        yield made


@pytest.fixture
def client(served: Process) -> Client:
    return served.client


# -- workflows ------------------------------------------------------------------------------------


@pytest.mark.claim("I6")
def test_a_workflow_is_saved_read_changed_and_deleted(served: Process, client: Client) -> None:
    made = client.post("/api/workflows", workflow("mine", "true"))
    assert made.status == 201
    saved = made.json()["workflow"]
    assert saved["version"] == 1
    assert saved["createdAt"] == saved["updatedAt"]
    saved["name"] = "Mine"
    changed = client.ask("PUT", "/api/workflows/mine", saved)
    assert (changed.status, changed.json()["workflow"]["version"]) == (200, 2)
    assert changed.json()["workflow"]["createdAt"] == saved["createdAt"]
    assert client.get("/api/workflows/mine").json()["workflow"]["name"] == "Mine"
    on_disk = json.loads((served.data / "workflows/mine.json").read_text())
    assert on_disk["name"] == "Mine"
    listed = client.get("/api/workflows").json()["workflows"]
    assert (listed[0]["id"], listed[0]["version"], listed[0]["source"]) == ("mine", 2, "user")
    assert client.ask("DELETE", "/api/workflows/mine").status == 204
    assert client.get("/api/workflows/mine").status == 404
    assert client.ask("DELETE", "/api/workflows/mine").status == 404


def test_a_stale_version_overwrites_nothing(served: Process, client: Client) -> None:
    first = client.post("/api/workflows", workflow("shared", "true")).json()["workflow"]
    theirs = {**first, "name": "theirs"}
    assert client.ask("PUT", "/api/workflows/shared", theirs).status == 200
    before = (served.data / "workflows/shared.json").read_bytes()
    no_version = {name: value for name, value in first.items() if name != "version"}
    for mine in ({**first, "name": "mine"}, no_version, {**first, "version": 99}):
        for method, path in (("PUT", "/api/workflows/shared"), ("POST", "/api/workflows")):
            answer = client.ask(method, path, mine)
            assert (answer.status, answer.json()["error"]) == (409, "stale-version")
    assert (served.data / "workflows/shared.json").read_bytes() == before


def test_a_file_without_a_version_has_the_first(served: Process, client: Client) -> None:
    put_workflow(served.data, workflow("by-hand", "true"))
    loaded = client.get("/api/workflows/by-hand").json()["workflow"]
    saved = client.ask("PUT", "/api/workflows/by-hand", {**loaded, "name": "Saved"})
    assert (saved.status, saved.json()["workflow"]["version"]) == (200, 2)
    assert client.ask("PUT", "/api/workflows/by-hand", loaded).status == 409


@pytest.mark.parametrize("content", [b'{"id": "broken", "nodes": [', b"[]", b"", b"\xff"])
def test_a_broken_file_is_not_overwritten(served: Process, client: Client, content: bytes) -> None:
    file = served.data / "workflows/broken.json"
    file.write_bytes(content)
    for version in ({}, {"version": 1}):
        answer = client.ask("PUT", "/api/workflows/broken", {**workflow("broken"), **version})
        assert (answer.status, answer.json()["error"]) == (409, "stale-version")
        assert "fix it or delete" in answer.json()["message"]
    assert file.read_bytes() == content
    assert client.get("/api/workflows").status == 200
    assert client.ask("DELETE", "/api/workflows/broken").status == 204


def test_a_preset_is_copied_and_never_changed_or_deleted(client: Client) -> None:
    preset = client.get("/api/workflows/fix-until-green").json()["workflow"]
    assert client.ask("DELETE", "/api/workflows/fix-until-green").status == 404
    saved = client.ask("PUT", "/api/workflows/fix-until-green", {**preset, "name": "Own"})
    assert saved.status == 200
    entries = {each["id"]: each for each in client.get("/api/workflows").json()["workflows"]}
    assert entries["fix-until-green"]["source"] == "user"
    assert client.ask("DELETE", "/api/workflows/fix-until-green").status == 204
    again = client.get("/api/workflows/fix-until-green").json()["workflow"]
    assert again["name"] == preset["name"]


def test_an_unfinished_workflow_is_saved_with_its_problems_and_not_run(client: Client) -> None:
    bad = workflow("unfinished", "true")
    bad["nodes"][1]["type"] = "conditoin"
    bad["edges"].append({"source": "nowhere", "target": "c1"})
    saved = client.post("/api/workflows", bad)
    assert saved.status == 201
    problems = saved.json()["problems"]
    assert {each["severity"] for each in problems} == {"error"}
    assert any("condition" in problem["hint"] for problem in problems)
    assert all(problem["place"] for problem in problems)
    checked = client.post("/api/workflows/check", bad).json()["problems"]
    loaded = client.get("/api/workflows/unfinished").json()
    for other in (checked, loaded["problems"]):
        assert [each["message"] for each in other] == [each["message"] for each in problems]
    refused = client.post("/api/run", {"workflowId": "unfinished"})
    assert (refused.status, refused.json()["error"]) == (422, "invalid-workflow")
    loaded["workflow"]["nodes"][1]["type"] = "condition"
    del loaded["workflow"]["edges"][-1]
    finished = client.ask("PUT", "/api/workflows/unfinished", loaded["workflow"])
    assert finished.status == 200
    assert {each["severity"] for each in finished.json()["problems"]} == {"warning"}
    assert client.run("unfinished")["status"] == "succeeded"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"id": "odd", "name": "", "nodes": [], "edges": []}',
        b'{"id": "odd", "nodes": [], "edges": []}',
        b'{"id": "odd", "name": "n", "nodes": {}, "edges": []}',
        b'{"id": "odd", "name": "n", "nodes": [], "edges": "none"}',
        b'{"id": "odd", "name": "n", "nodes": [{"id": "a", "id": "b"}], "edges": []}',
        b'{"id": "odd", "name": "\\u0000", "nodes": [], "edges": []}',
        b'{"id": "odd", "name": "n", "nodes": [{"position": {"x": 1e400}}], "edges": []}',
    ],
)
def test_what_is_no_workflow_is_not_saved(client: Client, body: bytes) -> None:
    json_body = {"content-type": "application/json"}
    answer = client.ask("PUT", "/api/workflows/odd", body=body, headers=json_body)
    assert (answer.status, answer.json()["error"]) == (422, "invalid-workflow")
    assert answer.json()["problems"]
    assert client.get("/api/workflows/odd").status == 404


def test_what_infloop_does_not_know_survives_every_way_through_the_server(
    served: Process, client: Client
) -> None:
    trigger = {"id": "legacyTrigger000000001", "name": "old", "enabled": True, "colour": "red"}
    old = workflow("kept", "true")
    old["nodes"][1]["config"]["note"] = {"by": "console", "sizes": [1.5, None]}
    old["nodes"][1] |= {"parentId": "x", "data": {"z": 1}}
    old["nodes"].append({"id": "late", "type": "claude", "config": {"prompt": "p", "hue": 3}})
    old["edges"][0] |= {"animated": True, "style": {"stroke": "#fff"}}
    old |= {"viewport": {"x": 1, "zoom": 0.5}, "tags": ["a"], "triggers": [trigger]}
    put_workflow(served.data, old)
    file = served.data / "workflows/kept.json"
    loaded = client.get("/api/workflows/kept").json()
    assert {each["severity"] for each in loaded["problems"]} == {"warning"}
    saved = client.ask("PUT", "/api/workflows/kept", loaded["workflow"])
    assert saved.status == 200
    changed = {"type": "agent", "config": {"prompt": "p", "hue": 3, "providerId": "claude"}}
    old["nodes"][-1] |= changed
    own = ("version", "createdAt", "updatedAt")
    for content in (saved.json()["workflow"], json.loads(file.read_text())):
        assert {key: content[key] for key in content if key not in own} == old
    assert client.run("kept")["status"] == "succeeded"


def test_a_problem_of_a_workflow_has_its_line_and_column(client: Client) -> None:
    bad = workflow("bad", "true")
    bad["nodes"][1]["type"] = "conditoin"
    checked = client.post("/api/workflows/check", bad).json()["problems"]
    refused = client.post("/api/workflows", bad).json()["problems"]
    for problems in (checked, refused):
        assert all(each["line"] == 1 and each["column"] > 1 for each in problems)


def test_a_loop_file_is_a_workflow_of_the_server_and_is_not_overwritten(
    served: Process, client: Client
) -> None:
    path = served.data / "workflows/looped.loop.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: Looped\nsteps:\n  - command: echo hi\n")
    listed = {each["id"]: each for each in client.get("/api/workflows").json()["workflows"]}
    assert (listed["looped"]["name"], listed["looped"]["problems"]) == ("Looped", 0)
    assert listed["looped"]["updatedAt"] == path.stat().st_mtime_ns // 1_000_000
    content = client.get("/api/workflows/looped").json()["workflow"]
    assert client.run("looped")["status"] == "succeeded"
    refused = client.ask("PUT", "/api/workflows/looped", content)
    assert refused.status == 409
    assert "looped.loop.yaml" in refused.json()["message"]
    path.write_text("name: Looped\nsteps:\n  - command: exit 3\n")
    assert client.run("looped")["status"] == "failed"
    path.unlink()


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "con", "x" * 200, "a\nb"])
def test_a_workflow_under_a_name_that_is_no_files_name_is_refused(
    served: Process, client: Client, name: str
) -> None:
    before = sorted(served.folder.rglob("*.json"))
    answer = client.post("/api/workflows", workflow(name, "true"))
    assert answer.status in (400, 422)
    assert sorted(served.folder.rglob("*.json")) == before


# -- runs -----------------------------------------------------------------------------------------


@pytest.mark.claim("I69", "I70", "I71")
def test_a_run_is_promised_begun_and_found_again(client: Client) -> None:
    asked = client.post("/api/run", {"workflowId": "tiny"})
    promised = asked.json()
    assert asked.status == 202
    assert promised["position"] >= 1
    assert promised["state"]["status"] == "queued"
    assert promised["correlationId"] == asked.headers["x-correlation-id"]
    run = client.finished(promised["runId"])
    assert (run["status"], run["correlationId"]) == ("succeeded", promised["correlationId"])
    log = client.get(f"/api/runs/{run['runId']}/log").json()["events"]
    assert {event["correlationId"] for event in log} == {promised["correlationId"]}

    def told() -> Any:
        path = f"/api/audit?correlationId={promised['correlationId']}"
        found = client.get(path).json()["entries"]
        return found if len(found) == 3 else None

    found = eventually(told)
    events = [entry["event"] for entry in found[::-1]]
    assert events == ["run.queued", "run.started", "run.finished"]
    assert found[-1]["actor"]["kind"] == "api-token"
    record = client.get(f"/api/runs/tiny/{run['runId']}").json()["run"]
    assert record["scope"]["c1"]["stdout"] == "a-word-to-find\n"
    assert record["events"][0]["type"] == "run_started"
    assert record["events"][-1]["type"] == "run_finished"
    assert record["events"][-1]["scope"] == record["scope"]
    assert client.get(f"/api/runs/long/{run['runId']}").status == 404
    state = client.get("/api/run").json()["state"]
    assert state["status"] in ("succeeded", "running", "cancelled")


def test_runs_are_listed_filtered_and_searched(client: Client) -> None:
    ids = [client.run("tiny")["runId"] for _ in range(3)]
    listed = client.get("/api/runs?workflowId=tiny").json()["runs"]
    assert [run["runId"] for run in listed[:3]] == ids[::-1]
    assert {run["workflowId"] for run in listed} == {"tiny"}
    page = client.get("/api/runs?workflowId=tiny&limit=2").json()
    after = client.get(f"/api/runs?workflowId=tiny&limit=1&before={page['next']}").json()
    assert after["runs"][0]["runId"] == ids[0]
    assert client.get("/api/runs?workflowId=tiny&status=failed").json()["runs"] == []
    found = client.get("/api/runs?search=a-word-to-find&limit=3").json()["runs"]
    assert {run["runId"] for run in found} == set(ids)
    assert "a-word-to-find" in found[0]["match"]["text"]
    assert client.get("/api/runs?search=nobody-said-this").json()["runs"] == []


async def test_a_list_of_many_runs_is_read_as_often_as_one_of_a_single_run(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("long", "sleep 600"))
    many = 12
    async with here(tmp_path, max_concurrent_runs=many) as served:
        reads = []
        for count in (1, many):
            while len(served.server.application.history.live_runs()) < count:
                asked = await served.ask("POST", "/api/run", {"workflowId": "long"})
                await eventually_async(partial(is_live, served, asked.json()["runId"]))
            with counted_calls(ReaderThreads.run) as calls:
                runs = (await served.ask("GET", "/api/runs")).json()["runs"]
            assert [each["status"] for each in runs] == ["running"] * count
            reads.append(len(calls))
    # The server reads for itself now and then, and never once for each run of the list.
    assert reads[1] - reads[0] < many // 2


def is_live(served: Here, run_id: str) -> bool:
    return run_id in served.server.application.history.live_runs()


@contextmanager
def counted_calls(function: Callable[..., Any]) -> Iterator[set[int]]:
    """The calls of a coroutine function in this thread; one that goes on counts once."""
    calls: set[int] = set()
    frames = []  # kept, so that no two have the same address

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is function.__code__:
            frames.append(frame)
            calls.add(id(frame))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_inputs_that_do_not_fit_are_named(client: Client) -> None:
    missing = client.post("/api/run", {"workflowId": "asks"})
    assert missing.status == 400
    said = missing.json()
    assert (said["error"], said["field"], said["reason"]) == ("invalid-inputs", "count", "required")
    wrong = client.post("/api/run", {"workflowId": "asks", "inputs": {"count": "many"}}).json()
    assert (wrong["reason"], wrong["expected"], wrong["got"]) == ("type", "number", "string")
    run = client.run("asks", count="7")
    assert run["scope"]["inputs"] == {"count": 7, "word": "x"}


def test_a_key_that_was_seen_gets_the_first_answer(client: Client) -> None:
    keyed = {"idempotency-key": "once"}
    first, second = (
        client.ask("POST", "/api/run", {"workflowId": "tiny"}, headers=keyed).json()
        for _ in range(2)
    )
    assert first["runId"] == second["runId"]


def test_a_run_that_goes_on_is_seen_and_stopped(client: Client) -> None:
    run_id = client.post("/api/run", {"workflowId": "long"}).json()["runId"]

    def going() -> Any:
        run = client.get(f"/api/runs/{run_id}").json()["run"]
        return run if run.get("currentNodeId") == "c1" else None

    assert eventually(going)["status"] == "running"
    assert client.get("/api/run").json()["state"]["runId"] == run_id
    assert client.post(f"/api/runs/{run_id}/cancel").status == 202
    assert client.finished(run_id)["status"] == "cancelled"
    (entry,) = client.get(f"/api/audit?event=run.stopped&run={run_id}").json()["entries"]
    assert entry["runId"] == run_id
    again = client.post(f"/api/runs/{run_id}/cancel")
    assert (again.status, again.json()["error"]) == (409, "finished")
    assert client.post("/api/run/stop").status == 200
    assert client.post(f"/api/runs/{run_id}/resume").status == 409


def test_a_run_is_begun_again_from_one_of_its_steps(client: Client) -> None:
    run = client.run("tiny")
    answer = client.post(f"/api/runs/{run['runId']}/rewind", {"step": "c1"})
    assert answer.status == 202
    again = client.finished(answer.json()["runId"])
    assert (again["status"], again["cause"]["parentRun"]) == ("succeeded", run["runId"])
    assert client.post(f"/api/runs/{run['runId']}/rewind", {"step": "no"}).status == 409
    assert client.get(f"/api/runs/{run['runId']}/diff").json() == {"directories": []}


def test_a_run_goes_on_with_the_workflow_as_it_is_now_where_its_past_is_the_same(
    served: Process, client: Client
) -> None:
    def saved(first: str, second: str) -> str:
        nodes = [node("s", "start")]
        for name, cmd in (("one", first), ("two", second)):
            nodes.append(node(name, "condition", kind="command", command={"cmd": cmd}))
        made = graph(nodes, edges("s next one met two"), "versions")
        file = served.data / "workflows/versions.json"
        file.write_text(json.dumps(made))
        return str(file)

    file = saved("echo a", "echo b")
    run = client.run("versions")
    assert (run["costUsd"], run["costIsComplete"]) == (None, True)
    saved("echo a", "echo c")
    path = f"/api/runs/{run['runId']}/rewind"
    old = client.post(path, {"step": "two"}).json()
    assert old["workflowFile"] == {"file": file, "state": "changed"}
    assert client.finished(old["runId"])["scope"]["two"]["stdout"] == "b\n"
    new = client.post(path, {"step": "two", "currentWorkflow": True}).json()
    assert "workflowFile" not in new
    assert client.finished(new["runId"])["scope"]["two"]["stdout"] == "c\n"
    saved("echo x", "echo c")
    refused = client.post(path, {"step": "two", "currentWorkflow": True})
    assert (refused.status, refused.json()["error"]) == (409, "cannot-rewind")
    assert "node 'one' is defined otherwise" in str(refused.json())


def test_a_run_that_is_named_is_stopped_as_by_cancel(client: Client) -> None:
    assert client.post("/api/run/stop", {"runId": "nobody"}).status == 404
    over = client.run("tiny")["runId"]
    assert client.post("/api/run/stop", {"runId": over}).status == 409
    ids = [client.post("/api/run", {"workflowId": "long"}).json()["runId"] for _ in range(6)]

    def statuses() -> list[str]:
        return [client.get(f"/api/runs/{each}").json()["run"]["status"] for each in ids]

    eventually(lambda: statuses() == ["running"] * 4 + ["queued"] * 2)
    waiting = client.get(f"/api/runs/long/{ids[-1]}").json()["run"]
    assert (waiting["status"], waiting["position"]) == ("queued", 2)
    assert client.get(f"/api/runs/tiny/{ids[-1]}").status == 404
    items = client.get("/api/triggers/queue").json()["items"]
    assert [each["workflowName"] for each in items] == ["long", "long"]
    assert client.post("/api/run/stop", {"runId": ids[-1]}).status == 200
    assert statuses() == ["running"] * 4 + ["queued", "removed"]
    for each in ids[-2::-1]:
        assert client.post("/api/run/stop", {"runId": each}).status == 200
    ended = [client.finished(each)["status"] for each in ids]
    assert ended == ["cancelled"] * 4 + ["removed"] * 2


def test_a_node_in_a_called_workflow_is_current_under_the_name_that_events_give_it(
    served: Process, client: Client
) -> None:
    call = {"id": "call", "type": "subworkflow", "config": {"workflowId": "long"}}
    outer = workflow("outer", "true")
    outer["nodes"][1:2] = [call]
    outer["edges"] = [{"source": outer["nodes"][0]["id"], "target": "call"}]
    put_workflow(served.data, outer)
    run_id = client.post("/api/run", {"workflowId": "outer"}).json()["runId"]

    def current() -> object:
        return client.get(f"/api/runs/outer/{run_id}").json()["run"].get("currentNodeId")

    eventually(lambda: current() == "call/c1")
    log = client.get(f"/api/runs/{run_id}/log").json()["events"]
    started = [each["nodeId"] for each in log if each["type"] == "node_started"]
    assert started[-1] == current()
    assert client.post(f"/api/runs/{run_id}/cancel").status == 202
    assert client.finished(run_id)["status"] == "cancelled"


async def test_a_record_holds_the_newest_fifty_thousand_events_and_says_that_there_are_more(
    tmp_path: Path,
) -> None:
    events = [
        {"type": "stdout_chunk", "nodeId": "a", "line": f"{number}\n"} for number in range(50_010)
    ]
    record: dict[str, Any] = {
        "runId": "long-ago",
        "workflowId": "w",
        "workflowName": "W",
        "status": "succeeded",
        "startedAt": 1,
        "finishedAt": 2,
        "scope": {"a": {}},
        "events": events,
    }
    short = {**record, "runId": "short", "events": events[:6_000]}
    async with store_in(tmp_path / "data") as store:
        for one in (record, short):
            await import_record(store.run_log, one)
    async with here(tmp_path) as serving:
        long_run = (await serving.ask("GET", "/api/runs/w/long-ago")).json()["run"]
        short_run = (await serving.ask("GET", "/api/runs/w/short")).json()["run"]
    assert (len(long_run["events"]), long_run["truncated"]) == (50_000, True)
    assert long_run["events"][-1]["type"] == "run_finished"
    assert len([each for each in short_run["events"] if each["type"] == "stdout_chunk"]) == 6_000
    assert "truncated" not in short_run


def test_a_directory_that_is_none_is_refused(client: Client) -> None:
    for cwd in ("relative", "/nowhere/at/all", "/etc/passwd", ""):
        answer = client.post("/api/run", {"workflowId": "tiny", "cwd": cwd})
        assert (answer.status, answer.json()["error"]) == (400, "invalid-request")


# -- the rest -------------------------------------------------------------------------------------


def test_a_connection_shows_that_it_has_a_token_and_never_the_token(
    served: Process, client: Client
) -> None:
    path = "/api/providers/hermes-local"
    port = {"port": 8080, "profile": "small"}
    asked = {"label": "Lab", "host": "http://10.1.2.3", "token": "s3cr3t-t0ken", "ports": [port]}
    made = client.post(path, asked)
    assert made.status == 201
    entry = made.json()["connection"]
    assert (entry["id"], entry["hasToken"]) == ("lab", True)
    file = served.data / "connections/lab.json"
    assert json.loads(file.read_text())["token"] == "s3cr3t-t0ken"
    assert oct(file.stat().st_mode)[-3:] == "600"
    same = {"label": "L", "host": "http://10.1.2.3", "ports": [port]}
    kept = client.ask("PUT", f"{path}/lab", same)
    assert kept.json()["connection"]["hasToken"]
    assert json.loads(file.read_text())["token"] == "s3cr3t-t0ken"
    assert client.post(path, {**asked, "id": "lab"}).status == 409
    bad = client.post(path, {**asked, "host": "ftp://x"})
    assert (bad.status, bad.json()["error"]) == (400, "invalid-connection")
    answers = [made, kept, bad, client.get(path), client.get(f"{path}/lab")]
    answers += [client.get("/api/providers"), client.get("/api/audit")]
    assert all(b"s3cr3t" not in answer.body for answer in answers)
    providers = client.get("/api/providers").json()["providers"]
    assert any(each.get("connectionId") == "lab" for each in providers)
    assert client.ask("DELETE", f"{path}/lab").json() == {"ok": True}
    assert client.get(f"{path}/lab").status == 404


@pytest.mark.parametrize("host", ["http://other", "http://tls.example", "https://tls.example.net"])
def test_another_host_does_not_get_the_token_of_a_connection(
    served: Process, client: Client, host: str
) -> None:
    path = "/api/providers/hermes-local"
    port = {"port": 8080, "profile": "small"}
    asked = {"label": "Moved", "host": "https://tls.example", "ports": [port]}
    assert client.post(path, {**asked, "token": "s3cr3t-t0ken"}).json()["connection"]["hasToken"]
    moved = client.ask("PUT", f"{path}/moved", {**asked, "host": host})
    assert not moved.json()["connection"]["hasToken"]
    assert "s3cr3t" not in (served.data / "connections/moved.json").read_text()
    assert client.ask("DELETE", f"{path}/moved").status == 200


class _Models(BaseHTTPRequestHandler):
    """A model server that tells its model to those who have the token."""

    def do_GET(self) -> None:
        known = self.path == "/v1/models" and self.headers["authorization"] == "Bearer t"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "hermes-4"}, {"id": "other"}]}' if known else b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_port_without_a_model_is_asked_for_it(client: Client) -> None:
    path = "/api/providers/hermes-local"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        asked = {"label": "Own", "host": "http://127.0.0.1", "token": "t", "ports": [port]}
        made = client.post(path, asked).json()["connection"]
        assert made["ports"] == [{"port": port, "profile": "hermes-4"}]
        assert made["providers"][0]["id"] == "own-hermes-4"
        changed = client.ask("PUT", f"{path}/own", {**asked, "label": "Mine"}).json()
        assert changed["connection"]["ports"] == made["ports"]
        refused = client.post(path, {**asked, "label": "Wrong", "token": "wrong"})
        assert (refused.status, "wrong" in refused.body.decode()) == (400, False)
        server.shutdown()
    nobody = client.ask("PUT", f"{path}/own", asked)
    assert nobody.status == 400
    assert str(port) in nobody.json()["message"]
    assert client.get(f"{path}/own").json()["connection"]["label"] == "Mine"
    client.ask("DELETE", f"{path}/own")


def test_a_connection_that_cannot_be_saved_stays_as_it_was(served: Process, client: Client) -> None:
    path = "/api/providers/hermes-local"
    folder = served.data / "connections"
    folder.mkdir(exist_ok=True)
    content = json.dumps({"label": "Old", "host": "http://h", "token": "t", "ports": [{"port": 1}]})
    old = folder / "old.hermes.local.json"
    old.write_text(content)
    (folder / "old.json").mkdir()
    changed = {"label": "New", "host": "http://h", "ports": [{"port": 1, "profile": "m"}]}
    assert client.ask("PUT", f"{path}/old", changed).status == 500
    assert old.read_text() == content
    (folder / "old.json").rmdir()
    assert client.ask("PUT", f"{path}/old", changed).status == 200
    assert not old.exists()
    assert json.loads((folder / "old.json").read_text())["token"] == "t"
    client.ask("DELETE", f"{path}/old")


def test_providers_are_listed_by_label(client: Client) -> None:
    providers = client.get("/api/providers").json()["providers"]
    labels = [each["label"].lower() for each in providers]
    assert labels == sorted(labels)
    assert {"claude", "codex"} <= {each["id"] for each in providers}
    assert client.get("/api/providers/claude/profiles").status == 400
    assert client.get("/api/providers/nobody/profiles").status == 404


def test_directories_are_listed_and_files_are_not(served: Process, client: Client) -> None:
    listed = client.get(f"/api/fs/list?path={served.data}").json()
    assert listed["parent"] == str(served.folder)
    assert {"name": "workflows", "isDir": True} in listed["entries"]
    assert all((served.data / each["name"]).is_dir() for each in listed["entries"])
    for path in ("relative", "", "/nowhere", "%00", "/etc/passwd"):
        assert client.get(f"/api/fs/list?path={path}").status == 400
    assert client.get("/api/fs/list?path=/").json()["parent"] is None


def test_the_catalog_holds_what_forms_are_made_from(client: Client) -> None:
    catalog = client.get("/api/catalog").json()
    assert {"agent", "loop", "branch"} <= {node["type"] for node in catalog["nodes"]}
    files = {"workflow", "loop", "provider", "trigger", "plugin", "connection", "dev"}
    assert set(catalog["schemas"]) == files
    assert catalog["settings"]["schema"]["properties"]["port"]["default"] == 3000


def test_costs_are_summed_up(client: Client) -> None:
    for by in ("day", "workflow", "provider", "run"):
        costs = client.get(f"/api/costs?by={by}&since=2026-01-01").json()
        assert (costs["by"], costs["rows"], costs["total"]["calls"]) == (by, [], 0)
    assert client.get("/api/costs?by=moon").status == 400
    assert client.get("/api/costs?since=yesterday").status == 400
    assert client.get("/api/costs?since=0001-01-01").status == 400


@pytest.mark.claim("I68")
def test_the_audit_log_is_read_by_who_is_logged_in(client: Client) -> None:
    entries = client.get("/api/audit?event=server&limit=1").json()["entries"]
    assert entries[0]["event"] == "server.started"
    assert Client(client.port).get("/api/audit").status == 401
    latest = 253_402_300_799_999
    assert client.get(f"/api/audit?since=0&until={latest}&limit=1").json()["entries"]
    assert client.get(f"/api/audit?until={latest + 1}").status == 400


def test_metrics_count_runs_and_steps(client: Client) -> None:
    client.run("tiny")
    page = client.get("/metrics").body.decode()
    assert 'infloop_runs_total{status="succeeded"}' in page
    assert 'infloop_steps_total{node_type="condition"}' in page
    assert "infloop_queue_depth 0.0" in page
    assert 'route="/api/runs/{run_id}"' in page


def test_what_is_not_there_is_answered_in_the_one_shape(client: Client) -> None:
    for method, path, status, code in (
        ("GET", "/api/nowhere", 404, "not-found"),
        ("GET", "/api/runs/nobody", 404, "not-found"),
        ("PATCH", "/api/runs", 405, "method-not-allowed"),
        ("GET", "/api/runs/", 404, "not-found"),
        ("DELETE", "/api/triggers/queue/q-nothing", 404, "not-in-queue"),
    ):
        answer = client.ask(method, path)
        said = answer.json()
        assert (answer.status, said["error"]) == (status, code)
        assert set(said) == {"error", "message", "correlationId"}
        assert said["correlationId"] == answer.headers["x-correlation-id"]


def test_the_server_does_not_change_what_it_only_reads(served: Process, client: Client) -> None:
    before = _files(served.data / "workflows")
    for path in ("/api/workflows", "/api/workflows/tiny", "/api/catalog", "/api/providers"):
        assert client.get(path).status == 200
    assert _files(served.data / "workflows") == before


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
