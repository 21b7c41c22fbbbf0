"""Nothing is accepted and dropped: what cannot start is refused when it arrives, and listed."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infloop.model.audit import fingerprint
from infloop.store.sqlite import writer
from infloop.store.sqlite.store import DATABASE_FILE
from infloop.triggers.watcher import Watcher
from support.eventually import eventually, eventually_async
from support.server import Answer, Client, Here, here, infloop, process, put_workflow, workflow
from support.trigger_requests import GENERIC, GITHUB, SECRET, make, send, signed

OPTIONAL = [{"name": "word", "type": "string", "default": "none"}]
REQUIRED = [{"name": "word", "type": "string"}, {"name": "number", "type": "number"}]
TRIGGERS = ("webhook", "schedule", "file")
DOORS = (*TRIGGERS, "api", "mcp")


@dataclass(frozen=True)
class Cause:
    """Why a workflow cannot run, the doors that it closes, and the word for it."""

    reason: str
    spoil: Callable[[Path, str], object]
    doors: tuple[str, ...] = DOORS


def file_of(folder: Path, name: str) -> Path:
    return folder / f"data/workflows/{name}.json"


def rewritten(**more: Any) -> Callable[[Path, str], object]:
    """A workflow that became another one."""
    return lambda folder, name: put_workflow(folder / "data", workflow(name, "true") | more)


SHELL_LINE = workflow("", "echo {{inputs.word}}", inputs=OPTIONAL)
CAUSES = {
    "missing": Cause("not-found", lambda folder, name: file_of(folder, name).unlink()),
    "torn": Cause("not-found", lambda folder, name: file_of(folder, name).write_text("{")),
    "invalid": Cause("not-found", rewritten(nodes=[], edges=[])),
    "isolation": Cause("workflow-refused", rewritten(isolation="container", inputs=OPTIONAL)),
    "shell": Cause(
        "workflow-refused",
        rewritten(nodes=SHELL_LINE["nodes"], edges=SHELL_LINE["edges"], inputs=OPTIONAL),
        ("webhook", "file", "mcp"),
    ),
    "input": Cause("invalid-inputs", rewritten(inputs=REQUIRED)),
    "directory": Cause(
        "directory-refused", lambda folder, name: (folder / name).rmdir(), (*TRIGGERS, "api")
    ),
}


def make_triggers(client: Client, folder: Path, name: str) -> dict[str, str]:
    """Make a trigger of each kind for a workflow; return their ids."""
    common = {"workflowId": name, "cwd": str(folder / name)}
    files = {"directory": str(folder / "watched"), "globs": ["*.txt"], "debounceMs": 50}
    schedule = {"kind": "schedule", "schedule": {"cron": "0 * * * *"}, "inputs": {}}
    watch = {"kind": "file", "files": files, "inputs": {"word": "{{files.first}}"}}
    kinds: dict[str, dict[str, Any]] = {"webhook": {}, "schedule": schedule, "file": watch}
    return {
        kind: make(client, name=f"{name} by {kind}", **more, **common)["id"]
        for kind, more in kinds.items()
    }


def call_tool(client: Client, name: str) -> Any:
    params = {"name": name, "arguments": {"word": "x"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"accept": "application/json", "content-type": "application/json"}
    return client.ask("POST", "/api/mcp", body=json.dumps(asked).encode(), headers=headers).json()


async def fire_the_others(served: Here, watched: Path) -> None:
    """Let an hour pass for schedules, and change a file for all that watch."""
    (watcher,) = [each for each in served.server.sources if isinstance(each, Watcher)]

    def all_heard() -> bool:
        now = served.clock.now_ms()
        ones = list(watcher._watched.values())
        if len(ones) == len(CAUSES) and all(one.debounce.wait_ms(now) is not None for one in ones):
            return True
        (watched / "a.txt").write_text("changed")
        return False

    await eventually_async(all_heard, every_s=0.5)
    served.clock.forward(3_600_000 + 30_000)
    served.server.scheduler.wake()


@pytest.mark.claim("I64")
async def test_what_cannot_run_is_refused_at_every_door_and_listed(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    for name in CAUSES:
        (tmp_path / name).mkdir()
        put_workflow(tmp_path / "data", workflow(name, "true", inputs=OPTIONAL))

    def prepare(client: Client) -> dict[str, dict[str, str]]:
        made = {name: make_triggers(client, tmp_path, name) for name in CAUSES}
        for name, cause in CAUSES.items():
            cause.spoil(tmp_path, name)
        return made

    def knock(client: Client, name: str, cause: Cause, trigger_id: str) -> None:
        answer = send(client, trigger_id, b'{"word": 1}')
        assert answer.status in (404, 422, 503), (name, answer.body)
        if answer.status == 503:
            assert answer.json()["error"] == "cannot-start"
            assert answer.json()["reason"] == cause.reason
        if "api" in cause.doors:
            cwd = {"cwd": str(tmp_path / name)} if name == "directory" else {}
            asked = client.post("/api/run", {"workflowId": name, **cwd})
            assert asked.status in (400, 404, 422), (name, asked.body)
        if "mcp" in cause.doors:
            said = call_tool(client, name)
            assert "error" in said or said["result"]["isError"], (name, said)

    def refusals(client: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.get("/api/runs").json()["refused"]
        return found

    expected = {
        (name, kind, cause.reason)
        for name, cause in CAUSES.items()
        for kind in TRIGGERS
        if kind in cause.doors
    }

    def look(client: Client, made: dict[str, dict[str, str]]) -> None:
        eventually(lambda: len(refusals(client)) >= len(expected))
        refused = refusals(client)
        told = {(each["workflowId"], each["triggerKind"], each["reason"]) for each in refused}
        assert told == expected
        for each in refused:
            name, kind = each["workflowId"], each["triggerKind"]
            assert each["triggerName"] == f"{name} by {kind}"
            assert each["trigger"] == fingerprint(made[name][kind])
            assert each["message"]
        assert all(id_ not in json.dumps(refused) for ids in made.values() for id_ in ids.values())
        # The schedule of `shell` has no value from outside, and so it runs.
        runs = eventually(lambda: client.get("/api/runs?workflowId=shell").json()["runs"])
        assert [run["cause"]["detail"] for run in runs] == ["shell by schedule"]
        assert len(client.get("/api/runs").json()["runs"]) == 1
        assert client.get("/api/triggers/queue").json()["size"] == 0
        audit = client.get("/api/audit?limit=1000").json()["entries"]
        accepted = [each for each in audit if each["event"] in ("run.queued", "webhook.accepted")]
        assert [each["details"]["name"] for each in accepted] == ["shell by schedule"]
        by_name = {
            each["details"]["name"]
            for each in audit
            if each["event"] in ("webhook.refused", "trigger.refused")
        }
        assert by_name == {f"{name} by {kind}" for name, kind, _ in expected}

    async with here(tmp_path) as served:
        client = served.client
        made = await asyncio.to_thread(prepare, client)
        for name, cause in CAUSES.items():
            await asyncio.to_thread(knock, client, name, cause, made[name]["webhook"])
        await fire_the_others(served, tmp_path / "watched")
        await asyncio.to_thread(look, client, made)
    listed = infloop(tmp_path, "runs").stdout
    assert "refused\n" in listed
    assert "(schedule 'shell by schedule')" in listed
    assert "`infloop runs --refused`" in listed
    whole = infloop(tmp_path, "runs", "--refused", "--limit", "100", "--json").stdout
    assert {json.loads(line)["reason"] for line in whole.splitlines()} == {
        cause.reason for cause in CAUSES.values()
    }


async def test_only_genuine_firings_are_recorded_and_equal_ones_once(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("echo", "true"))

    def look(client: Client) -> None:
        trigger = make(client, **GITHUB, secret=SECRET)
        file_of(tmp_path, "echo").unlink()
        for _ in range(20):
            assert send(client, trigger["id"], b"{}", **signed(b"{}", "x" * 20)).status == 401
        assert client.get("/api/runs").json()["refused"] == []
        for number in range(3):
            body = b'{"n": %d}' % number
            assert send(client, trigger["id"], body, **signed(body)).status == 404
        (one,) = client.get("/api/runs").json()["refused"]
        assert (one["count"], one["triggerName"], one["reason"]) == (3, "Any", "not-found")

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


def answered(client: Client, trigger_id: str) -> list[Answer]:
    return [send(client, trigger_id), client.post("/api/run", {"workflowId": "echo"})]


async def test_no_run_is_accepted_while_it_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_SECONDS", 0.05)
    put_workflow(tmp_path / "data", workflow("echo", "true"))

    def locked(client: Client) -> None:
        trigger = make(client, **{**GENERIC, "inputs": {}})
        other = sqlite3.connect(tmp_path / "data" / DATABASE_FILE)
        other.execute("BEGIN IMMEDIATE")
        answers = answered(client, trigger["id"])
        other.rollback()
        other.close()
        assert [each.status for each in answers] == [503, 503]
        assert client.get("/api/runs").json()["runs"] == []
        assert send(client, trigger["id"]).status == 202

    async with here(tmp_path) as served:
        await asyncio.to_thread(locked, served.client)

    def full(client: Client) -> None:
        (trigger,) = client.get("/api/triggers").json()["triggers"]
        answers = answered(client, trigger["id"])
        assert [each.status for each in answers] == [503, 503]
        assert {each.json()["error"] for each in answers} == {"store-unavailable"}
        assert all("must stay free" in each.json()["message"] for each in answers)

    async with here(tmp_path, min_free_disk_bytes=1 << 60) as served:
        await asyncio.to_thread(full, served.client)


def test_a_server_that_stops_accepts_nothing_and_what_it_accepted_runs_at_the_next_start(
    tmp_path: Path,
) -> None:
    gate = f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done"
    put_workflow(tmp_path / "data", workflow("echo", gate))
    with process(tmp_path, max_concurrent_runs="1") as served:
        trigger = make(served.client, **{**GENERIC, "inputs": {}})
        promised = [send(served.client, trigger["id"]).json()["queueId"] for _ in range(2)]
        eventually(lambda: served.client.get("/api/runs?status=running").json()["runs"])
        head = f"POST /api/webhook/{trigger['id']} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        with socket.create_connection(("127.0.0.1", served.client.port), timeout=20) as half:
            half.sendall(f"{head}Content-Length: 2\r\n\r\n{{".encode())
            served.process.send_signal(signal.SIGTERM)
            eventually(lambda: refuses_connections(served.client.port))
            half.sendall(b"}")
            answer = half.recv(65_536)
        assert b" 202 " not in answer.partition(b"\r\n")[0]
        assert served.process.wait(20) == 0
    (tmp_path / "gate").touch()
    with process(tmp_path) as served:
        ended = [served.client.finished(each.removeprefix("q-"))["status"] for each in promised]
        assert ended == ["cancelled", "succeeded"]
        assert len(served.client.get("/api/runs").json()["runs"]) == 2


def refuses_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def added_trigger(folder: Path, *arguments: str) -> tuple[str, str]:
    """Add a trigger on the command line; return its id and what was said."""
    said = infloop(folder, "triggers", "add", *arguments).stdout
    return said.split()[1], said


def test_the_command_line_and_the_server_warn_before_a_trigger_fires(tmp_path: Path) -> None:
    data = tmp_path / "data"
    manifest = {"id": "absent", "label": "A", "description": "a", "bin": "no-such-program"}
    (data / "providers").mkdir(parents=True)
    (data / "providers/absent.json").write_text(json.dumps(manifest))
    agent = {"id": "a", "type": "agent", "config": {"providerId": "absent", "prompt": "go"}}
    nodes = [{"id": "start", "type": "start"}, agent]
    edges = [{"source": "start", "target": "a"}]
    put_workflow(data, {"id": "asks", "name": "asks", "nodes": nodes, "edges": edges})
    put_workflow(data, workflow("strict", "true", isolation="container"))
    refused = "its runs are refused: workflow 'strict' asks for isolation 'container'"
    trigger_id, said = added_trigger(tmp_path, "strict")
    assert f"{trigger_id} (strict webhook): a webhook" in said
    assert refused in said
    _, again = added_trigger(tmp_path, "strict", "--cron", "0 * * * *", "--disabled")
    assert "(strict schedule)" in again
    _, second = added_trigger(tmp_path, "asks", "--name", "Ask")
    assert "there is no program 'no-such-program'" in second
    tried = infloop(tmp_path, "triggers", "test", trigger_id, code=1).stdout
    assert tried.startswith("503 workflow-refused: workflow 'strict' asks for isolation")
    missing = str(tmp_path / "missing")
    nothing_there = f"files.directory: {missing!r} cannot be watched: No such file or directory"
    for options, said in (
        (("--directory", missing, "--files", "*.py"), nothing_there),
        (("--directory", __file__, "--files", "*.py"), "is not a directory"),
        (("--cwd", missing), "cwd: there is no directory "),
    ):
        wrong = infloop(tmp_path, "triggers", "add", "strict", *options, code=2)
        assert said in wrong.stderr
    with process(tmp_path) as served:
        assert served.client.get("/api/triggers").status == 200
    warned = (tmp_path / "stderr").read_text()
    assert f"trigger 'strict webhook': workflowId: {refused}" in warned
    assert "trigger 'Ask': workflowId: its agent 'absent' is not installed here" in warned
    assert "strict schedule" not in warned


async def test_a_trigger_chooses_where_its_runs_work_and_they_do_not_start_it_again(
    tmp_path: Path,
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    (tmp_path / "link").symlink_to(watched)
    put_workflow(tmp_path / "data", workflow("writes", "pwd > own.txt"))
    files = {"directory": str(watched), "globs": ["*.txt"], "debounceMs": 50}
    chosen = {"kind": "file", "files": files, "cwd": str(tmp_path / "link")}
    async with here(tmp_path) as served:
        client = served.client
        relative = await served.ask(
            "POST", "/api/triggers", {**GENERIC, **chosen, "cwd": "watched"}
        )
        assert (relative.status, relative.json()["error"]) == (400, "invalid-trigger")
        made = await asyncio.to_thread(
            make, client, name="", workflowId="writes", **{**chosen, "inputs": {}}
        )
        assert made["cwd"] == str(tmp_path / "link")
        (watcher,) = [each for each in served.server.sources if isinstance(each, Watcher)]
        own: list[bool] = []
        is_own_write = watcher._is_own_write

        def noted(trigger_id: str, path: str, now_ms: int) -> bool:
            found = is_own_write(trigger_id, path, now_ms)
            if path.endswith("/own.txt"):
                own.append(found)
            return found

        watcher._is_own_write = noted
        await heard_by(served, watcher, watched / "a.txt")
        served.clock.forward(100)
        runs = await asyncio.to_thread(
            eventually, lambda: client.get("/api/runs?status=succeeded").json()["runs"]
        )
        assert runs[0]["cause"]["detail"] == "writes file"
        await eventually_async(lambda: own)
        assert all(own)
    assert (watched / "own.txt").read_text() == f"{watched}\n"
    explained = infloop(tmp_path, "why", "last").stdout
    assert f"in {watched}\n" in explained
    assert "by a file (writes file)" in explained


async def heard_by(served: Here, watcher: Watcher, file: Path) -> None:
    """Change a file until the watch, which begins at a moment of its own, has heard of it."""

    def is_heard() -> bool:
        now = served.clock.now_ms()
        if any(one.debounce.wait_ms(now) is not None for one in watcher._watched.values()):
            return True
        file.write_text("changed")
        return False

    await eventually_async(is_heard, every_s=0.5)
