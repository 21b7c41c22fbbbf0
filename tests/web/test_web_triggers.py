"""Triggers over HTTP, from their making to the run that they start; secrets stay where they are."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.audit import fingerprint
from infloop.triggers.watcher import Watcher
from support.eventually import eventually, eventually_async
from support.server import (
    TOKEN,
    Client,
    Here,
    here,
    infloop,
    process,
    put_workflow,
    workflow,
)
from support.trigger_requests import ECHO, GENERIC, GITHUB, SECRET, make, send, signed


@pytest.mark.claim("I5", "I64", "I69", "I70", "I74")
async def test_a_webhook_becomes_a_run_and_the_log_shows_the_way(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger = make(client)
        answer = send(client, trigger["id"], b'{"word": "hello"}')
        assert answer.status == 202
        said = answer.json()
        assert said["queued"] is True
        assert said["position"] >= 1
        run = client.finished(said["queueId"].removeprefix("q-"))
        assert run["scope"]["inputs"] == {"word": "hello"}
        assert run["cause"] == {"kind": "webhook", "detail": "Any", "untrusted": ["word"]}
        assert run["correlationId"] == answer.headers["x-correlation-id"]
        path = f"/api/audit?correlationId={run['correlationId']}"
        entries = eventually(
            lambda: (e := client.get(path).json()["entries"]) and len(e) == 3 and e
        )
        told = [(entry["event"], entry["actor"]["kind"]) for entry in entries[::-1]]
        told.remove(("webhook.accepted", "webhook"))  # when it waits, and so it may have begun
        assert [event for event, _ in told] == ["run.started", "run.finished"]
        assert b"hello" not in json.dumps(entries).encode()
        assert trigger["id"] not in json.dumps(entries)
        fired = client.get(f"/api/triggers/{trigger['id']}").json()["trigger"]
        assert fired["lastFiredAt"]
        for bad in (b"\xff", b'{"a": ' * 10_000):
            assert send(client, trigger["id"], bad).status in (202, 400)
        refused = client.get("/api/audit?event=webhook.refused").json()["entries"]
        assert "invalid-body" in {entry["outcome"] for entry in refused}

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


@pytest.mark.claim("I20", "I63")
async def test_a_trigger_is_made_changed_moved_and_deleted(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client, data: Path) -> None:
        trigger = make(client, colour="red")
        assert len(trigger["id"]) >= 22
        changed = client.ask(
            "PUT", f"/api/triggers/{trigger['id']}", {**trigger, "name": "Renamed"}
        )
        assert changed.json()["trigger"]["name"] == "Renamed"
        assert changed.json()["trigger"]["createdAt"] == trigger["createdAt"]
        other = client.ask("PUT", f"/api/triggers/{trigger['id']}", {**trigger, "id": "a" * 22})
        assert other.status == 400
        moved = client.post(f"/api/triggers/{trigger['id']}/regenerate").json()["trigger"]
        assert moved["id"] != trigger["id"]
        (file,) = (data / "triggers").glob("*.json")
        assert json.loads(file.read_text())["colour"] == "red"  # unknown, and kept
        assert send(client, trigger["id"]).status == 401
        assert send(client, moved["id"]).status == 202
        assert len(client.get("/api/triggers?workflowId=echo").json()["triggers"]) == 1
        assert client.get("/api/triggers?workflowId=no").json()["triggers"] == []
        assert client.ask("DELETE", f"/api/triggers/{moved['id']}").status == 204
        assert send(client, moved["id"]).status == 401
        assert client.get(f"/api/triggers/{moved['id']}").status == 404
        events = client.get("/api/audit?event=trigger").json()["entries"]
        told = [entry["event"].removeprefix("trigger.") for entry in events[::-1]]
        assert told == ["created", "changed", "moved", "deleted"]
        assert {entry["actor"]["kind"] for entry in events} == {"api-token"}
        assert list((data / "triggers").glob("*.json")) == []

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client, served.data)


@pytest.mark.claim("I22", "I67")
async def test_a_secret_is_set_used_kept_and_never_shown(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client, data: Path) -> None:
        github = {"pluginId": "github", "eventType": "push", "inputs": {}}
        without = client.post("/api/triggers", {**GENERIC, **github})
        assert (without.status, without.json()["reason"]) == (400, "secret-required")
        trigger = make(client, **github, secret=SECRET)
        assert trigger["secretSet"] is True
        file = data / "triggers" / f"{trigger['id']}.json"
        assert oct(file.stat().st_mode)[-3:] == "600"
        body = b'{"ref":  "refs/heads/main"}'
        assert send(client, trigger["id"], body, **signed(body)).status == 202
        assert send(client, trigger["id"], body + b" ", **signed(body)).status == 401
        assert send(client, trigger["id"], body).status == 401
        path = f"/api/triggers/{trigger['id']}"
        kept = client.ask("PUT", path, {**trigger, "name": "kept"})
        assert kept.json()["trigger"]["secretSet"] is True
        body += b"\n"
        assert send(client, trigger["id"], body, **signed(body)).status == 202
        tried = client.post(f"{path}/test", {})
        assert tried.json()["status"] == 202
        gone = client.ask("PUT", path, {**trigger, "secret": None})
        assert (gone.status, gone.json()["reason"]) == (400, "secret-required")
        answers = [without, kept, tried, gone, client.get(path), client.get("/api/triggers")]
        answers += [client.get("/api/audit?limit=1000"), client.get("/api/catalog")]
        assert all(SECRET.encode() not in answer.body for answer in answers)
        assert SECRET not in (data / "audit/audit.jsonl").read_text()
        assert TOKEN not in (data / "audit/audit.jsonl").read_text()
        assert "refs/heads/main" not in (data / "audit/audit.jsonl").read_text()

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client, served.data)


@pytest.mark.parametrize(
    "bad",
    [
        {"workflowId": "nowhere"},
        {"workflowId": "../echo"},
        {"workflowId": "echo.json"},
        {"pluginId": "nobody"},
        {"inputs": {"nope": "x"}},
        {"match": [{"lhs": "a", "op": "~", "rhs": "b"}]},
        {"enabled": "yes"},
        {"kind": "schedule"},
        {"kind": "schedule", "schedule": {"cron": "61 * * * *"}},
        {"kind": "file", "files": {"directory": "relative"}},
        {"secret": "x"},
    ],
    ids=str,
)
async def test_a_trigger_that_could_not_fire_is_refused(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    put_workflow(tmp_path / "data", ECHO)
    async with here(tmp_path) as served:
        answer = await served.ask("POST", "/api/triggers", {**GENERIC, **bad})
        assert (answer.status, answer.json()["error"]) == (400, "invalid-trigger")
        assert answer.json()["problems"]
        assert (await served.ask("GET", "/api/triggers")).json()["triggers"] == []


@pytest.mark.claim("I26", "I28")
async def test_each_trigger_takes_so_many_requests_a_minute(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    never = [{"lhs": "a", "op": "==", "rhs": "b"}]

    async with here(tmp_path, webhook_rate_limit=5) as served:

        def look(client: Client) -> tuple[str, str]:
            first, second = (make(client, match=never)["id"] for _ in range(2))
            assert [send(client, first).status for _ in range(6)] == [204] * 5 + [429]
            refused = send(client, first)
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert send(client, second).status == 204
            assert (
                'infloop_rate_limited_total{what="webhook"}' in client.get("/metrics").body.decode()
            )
            return first, second

        first, _ = await asyncio.to_thread(look, served.client)
        served.clock.forward(60_000)
        assert (await asyncio.to_thread(send, served.client, first)).status == 204


async def test_a_repeated_delivery_is_the_same_run(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger = make(client)
        first, second = (
            send(client, trigger["id"], b"{}", **{"idempotency-key": "k"}).json() for _ in range(2)
        )
        assert first["queueId"] == second["queueId"]
        other = send(client, trigger["id"], b"{}", **{"idempotency-key": "l"}).json()
        assert other["queueId"] != first["queueId"]

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_schedule_starts_its_workflow_when_it_is_due(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    schedule = {"kind": "schedule", "schedule": {"cron": "0 * * * *"}, "inputs": {}}
    async with here(tmp_path) as served:
        trigger = await asyncio.to_thread(make, served.client, **schedule)
        await considered(served, trigger["id"])
        served.clock.forward(3_600_000 + 30_000)
        served.server.scheduler.wake()
        run = await asyncio.to_thread(only_run, served.client)
        assert run["cause"]["kind"] == "schedule"
        fired = (await served.ask("GET", f"/api/triggers/{trigger['id']}")).json()["trigger"]
        assert fired["lastFiredAt"]


async def test_two_servers_with_the_same_schedule_start_one_run_for_each_due_time(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", ECHO)
    schedule = {"kind": "schedule", "schedule": {"cron": "0 * * * *"}, "inputs": {}}
    async with here(tmp_path) as one, here(tmp_path, max_concurrent_runs=0) as two:
        trigger = await asyncio.to_thread(make, one.client, **schedule)
        two.clock.forward(one.clock.now_ms() - two.clock.now_ms())
        for due in (1, 2):
            for served in (one, two):
                await served.server.scheduler.tick()
                served.clock.forward(3_600_000)
            await asyncio.gather(*(each.server.scheduler.tick() for each in (one, two)))
            # In this order: a run that leaves the queue in between is found twice, not never.
            queued = (await one.ask("GET", "/api/triggers/queue")).json()["items"]
            found = (await one.ask("GET", "/api/runs")).json()["runs"]
            assert len({each["runId"] for each in (*found, *queued)}) == due, trigger


async def test_two_servers_that_watch_the_same_file_start_one_run_for_a_change(
    tmp_path: Path,
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    put_workflow(tmp_path / "data", ECHO)
    files = {"directory": str(watched), "globs": ["*.txt"], "debounceMs": 50}
    async with here(tmp_path) as one, here(tmp_path) as two:
        await asyncio.to_thread(make, one.client, kind="file", files=files, inputs={})
        for served in (one, two):
            await eventually_async(partial(watchers, served))
        (watched / "a.txt").write_text("new")
        for served in (one, two):
            await eventually_async(partial(has_changes, served))
        for served in (one, two):
            served.clock.forward(100)
        assert (await asyncio.to_thread(only_run, one.client))["status"] == "succeeded"
        await eventually_async(lambda: not has_changes(one) and not has_changes(two))
        assert len((await two.ask("GET", "/api/runs")).json()["runs"]) == 1


def watchers(served: Here) -> list[Any]:
    sources = served.server.sources
    (watcher,) = [source for source in sources if isinstance(source, Watcher)]
    return list(watcher._watched.values())


def has_changes(served: Here) -> bool:
    now = served.clock.now_ms()
    return any(one.debounce.wait_ms(now) is not None for one in watchers(served))


async def considered(served: Here, trigger_id: str) -> None:
    await eventually_async(lambda: trigger_id in served.server.scheduler._states)


def only_run(client: Client) -> dict[str, Any]:
    (run,) = eventually(lambda: client.get("/api/runs").json()["runs"])
    return client.finished(run["runId"])


async def test_a_changed_file_starts_its_workflow_once(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    put_workflow(tmp_path / "data", ECHO)
    files = {"directory": str(watched), "globs": ["*.txt"], "debounceMs": 50}
    async with here(tmp_path) as served:
        await asyncio.to_thread(
            make, served.client, kind="file", files=files, inputs={"word": "{{files.first}}"}
        )
        words: list[str] = []
        for name in ("a.txt", "b.txt"):
            await heard(served, watched / name)
            served.clock.forward(100)
            ended = await asyncio.to_thread(newest_run, served.client, len(words) + 1)
            assert ended["cause"]["kind"] == "file"
            assert ended["cause"]["untrusted"] == ["word"]
            words.append(ended["scope"]["inputs"]["word"])
        # By now a second run for the first file would have begun, and be the one that was found.
        assert words == ["a.txt", "b.txt"]


async def heard(served: Here, file: Path) -> None:
    """Change a file until the watch, which begins at a moment of its own, has heard of it."""
    sources = served.server.sources
    (watcher,) = [source for source in sources if isinstance(source, Watcher)]

    def is_heard() -> bool:
        now = served.clock.now_ms()
        if any(one.debounce.wait_ms(now) is not None for one in watcher._watched.values()):
            return True
        file.write_text("changed")
        return False

    await eventually_async(is_heard, every_s=1)


def newest_run(client: Client, count: int) -> dict[str, Any]:
    """The newest run, when there are so many; never more."""
    runs = eventually(
        lambda: (r := client.get("/api/runs").json()["runs"]) and len(r) >= count and r
    )
    assert len(runs) == count
    return client.finished(runs[0]["runId"])


async def test_a_webhook_is_taken_although_nobody_can_note_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infloop.catalog.triggers._LOCK_SECONDS", 0.05)
    monkeypatch.setattr("infloop.daemon.service.LAST_FIRED_SECONDS", 0.05)
    put_workflow(tmp_path / "data", ECHO)

    def complaints() -> int:
        return caplog.text.count("triggers fired is not written")

    def look(client: Client) -> None:
        trigger = make(client, name="")
        with lock_directory(tmp_path / "data/triggers", 5, "testing"):
            answer = send(client, trigger["id"], b"{}")
            assert answer.status == 202
            run = client.finished(answer.json()["queueId"].removeprefix("q-"))
            eventually(lambda: complaints() >= 2)
        path = f"/api/triggers/{trigger['id']}"
        eventually(lambda: client.get(path).json()["trigger"]["lastFiredAt"])
        assert trigger["id"] not in caplog.text
        assert run["cause"]["detail"] == trigger["name"] == "echo webhook"
        assert trigger["id"] not in json.dumps(run)

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


@pytest.mark.claim("I64")
async def test_only_what_is_in_the_queue_is_recorded_as_accepted(tmp_path: Path) -> None:
    waits = workflow("waits", f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done")
    put_workflow(tmp_path / "data", waits)

    def look(client: Client) -> None:
        trigger = make(client, workflowId="waits", inputs={})
        first = send(client, trigger["id"]).json()["queueId"].removeprefix("q-")
        eventually(lambda: client.get(f"/api/runs/{first}").json()["run"]["status"] == "running")
        assert [send(client, trigger["id"]).status for _ in range(3)] == [202, 503, 503]
        entries = client.get("/api/audit?event=webhook").json()["entries"][::-1]
        told = [(entry["event"], entry["outcome"]) for entry in entries]
        assert told[:2] == [("webhook.accepted", "")] * 2
        assert told[2:] == [("webhook.refused", "queue-full")] * 2
        (tmp_path / "gate").touch()

    async with here(tmp_path, max_concurrent_runs=1, queue_limit=1) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_webhook_that_cannot_be_recorded_starts_nothing_until_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infloop.store.audit.files._LOCK_SECONDS", 0.05)
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger = make(client)
        key = {"idempotency-key": "k"}
        with lock_directory(tmp_path / "data/audit", 5, "testing"):
            refused = [send(client, trigger["id"], b"{}", **each) for each in ({}, key)]
            assert [answer.status for answer in refused] == [503, 503]
        assert client.get("/api/triggers/queue").json()["size"] == 0
        assert client.get("/api/runs").json()["runs"] == []
        answer = send(client, trigger["id"], b"{}", **key)
        assert answer.status == 202
        assert only_run(client)["runId"] == answer.json()["queueId"].removeprefix("q-")
        path = "/api/audit?event=webhook.accepted"
        assert len(client.get(path).json()["entries"]) == 1

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


async def test_who_answers_for_what_was_missed_is_on_record(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    schedule = {"cron": "0 * * * *", "misfire": "ask"}
    async with here(tmp_path, api_token=TOKEN) as served:
        made = await asyncio.to_thread(
            make, served.client, kind="schedule", schedule=schedule, inputs={}
        )
        path = f"/api/triggers/{made['id']}"
        nothing = await served.ask("POST", f"{path}/missed", {"start": True})
        assert (nothing.status, nothing.json()["error"]) == (409, "nothing-missed")
        await considered(served, made["id"])
        served.clock.forward(5 * 3_600_000 + 1_800_000)
        served.server.scheduler.wake()
        missed = lambda: served.client.get(path).json()["trigger"]["missed"]  # noqa: E731 (short)
        await asyncio.to_thread(eventually, missed)
        answer = await served.ask("POST", f"{path}/missed", {"start": True})
        assert answer.json()["trigger"]["missed"] == 0
        run = await asyncio.to_thread(only_run, served.client)
        assert run["correlationId"] == answer.headers["x-correlation-id"]
        found = f"/api/audit?correlationId={run['correlationId']}"
        entries = (await served.ask("GET", found)).json()["entries"][::-1]
        told = [(one["event"], one["actor"]["kind"], one["outcome"]) for one in entries]
        assert told[0] == ("trigger.answered", "api-token", "start")
        assert ("run.queued", "system", "") in told
        again = await served.ask("POST", f"{path}/missed", {"start": True})
        assert again.status == 409


async def test_what_changes_while_a_body_arrives_is_not_undone(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client, data: Path) -> None:
        secret = {"secret": SECRET, "pluginId": "github", "eventType": "push", "inputs": {}}
        first, second = make(client, **secret), make(client, **secret)
        with slow_put(client, first) as finish:
            moved = client.post(f"/api/triggers/{first['id']}/regenerate").json()["trigger"]
            assert finish() == 404
        assert send(client, first["id"]).status == 401
        body = b"{}"
        assert send(client, moved["id"], body, **signed(body)).status == 202
        path = f"/api/triggers/{second['id']}"
        with slow_put(client, second) as finish:
            assert client.ask("PUT", path, {**second, "secret": "another-" + SECRET}).status == 200
            assert finish() == 200
        kept = json.loads((data / f"triggers/{second['id']}.json").read_text())
        assert kept["secret"] == "another-" + SECRET

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client, served.data)


@contextmanager
def slow_put(client: Client, trigger: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """Begin to send a trigger; the last byte goes when the test says so, and the status comes."""
    body = json.dumps(trigger).encode()
    head = (
        f"PUT /api/triggers/{trigger['id']} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(head.encode() + body[:-1])
        # Answered in order with the request above: by now that one has been begun.
        assert client.get("/healthz").status == 200

        def finish() -> int:
            connection.sendall(body[-1:])
            return int(connection.recv(65_536).split()[1])

        yield finish


async def test_a_run_shows_what_is_from_outside_and_where_it_goes(tmp_path: Path) -> None:
    inputs = [{"name": name, "type": "string", "default": ""} for name in ("word", "own")]
    steps = workflow("steps", "true", "true", inputs=inputs)
    steps["nodes"][1]["config"]["command"]["env"] = {"WORD": "{{inputs.own}}"}
    steps["nodes"][2]["config"]["command"]["env"] = {"WORD": "{{inputs.word}}"}
    for node in steps["nodes"][1:]:
        node["config"]["against"] = ""
    put_workflow(tmp_path / "data", steps)
    data = {"word": "{{body.word}}", "own": "fixed"}
    async with here(tmp_path) as served:
        trigger = await asyncio.to_thread(make, served.client, workflowId="steps", inputs=data)
        answer = await asyncio.to_thread(send, served.client, trigger["id"], b'{"word": "x"}')
        run_id = answer.json()["queueId"].removeprefix("q-")
        run = await asyncio.to_thread(served.client.finished, run_id)
        assert run["untrusted"] == ["inputs.word", "c2"]
        record = (await served.ask("GET", f"/api/runs/steps/{run_id}")).json()["run"]
        assert record["untrusted"] == ["inputs.word", "c2"]
        own = await served.run("steps", word="mine")
        assert own["untrusted"] == []
    shown = infloop(tmp_path, "show", run_id)
    assert "untrusted    inputs.word, c2\n" in shown.stdout


async def test_plugins_are_listed_the_generic_one_first(tmp_path: Path) -> None:
    async with here(tmp_path) as served:
        plugins = (await served.ask("GET", "/api/webhook-plugins")).json()["plugins"]
    assert plugins[0]["id"] == "generic"
    assert "github" in {plugin["id"] for plugin in plugins}


# -- secrets ---------------------------------------------------------------------------------------


SHORT = ("abc", "x" * 15, "é" * 7)


@pytest.mark.parametrize("short", SHORT)
async def test_a_new_secret_that_can_be_guessed_is_refused(tmp_path: Path, short: str) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        made = client.post("/api/triggers", {**GENERIC, **GITHUB, "secret": short})
        assert (made.status, made.json()["error"]) == (400, "invalid-trigger")
        assert "at least 16 bytes" in made.json()["message"]
        trigger = make(client, **GITHUB, secret=SECRET)
        path = f"/api/triggers/{trigger['id']}"
        for changed in ({"secret": short}, {"previousSecret": short, "previousSecretUntil": 1}):
            refused = client.ask("PUT", path, {**trigger, **changed})
            assert (refused.status, refused.json()["error"]) == (400, "invalid-trigger")
            assert short not in refused.body.decode()
        assert send(client, trigger["id"], b"{}", **signed(b"{}")).status == 202

    async with here(tmp_path) as served:
        await asyncio.to_thread(look, served.client)


def test_a_short_secret_that_exists_still_counts_and_is_warned_about(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    folder = tmp_path / "data/triggers"
    folder.mkdir()
    old: dict[str, Any] = {**GENERIC, **GITHUB, "id": "a" * 24, "name": "old", "secret": "abc"}
    file = folder / f"{old['id']}.json"
    file.write_text(json.dumps({**old, "createdAt": 1, "updatedAt": 1}))
    file.chmod(0o600)
    with process(tmp_path, api_token=TOKEN) as served:
        client = served.client
        assert send(client, str(old["id"]), b"{}", **signed(b"{}", "abc")).status == 202
        path = f"/api/triggers/{old['id']}"
        shown = client.get(path).json()["trigger"]
        assert client.ask("PUT", path, {**shown, "name": "renamed"}).status == 200
        said = (tmp_path / "stderr").read_text()
        assert "the secret of trigger 'old' is short enough to be guessed" in said
        checks = client.get("/api/doctor").json()["checks"]
        warned = [each["message"] for each in checks if each["id"] == "triggers.secrets"]
        assert ["renamed" in each for each in warned] == [True]
    assert "can be guessed" in infloop(tmp_path, "triggers").stdout
    checks = json.loads(infloop(tmp_path, "doctor", "--json").stdout)["checks"]
    assert any("'renamed'" in each["message"] for each in checks)


@pytest.mark.parametrize(
    ("plugin", "event", "secret"),
    [
        ("standard-webhooks", None, "not-base64-at-all-!!"),
        ("standard-webhooks", None, "whsec_"),
        ("generic", None, SECRET),
        ("github", "push", None),
    ],
)
async def test_a_secret_that_does_not_fit_its_scheme_starts_nothing(
    tmp_path: Path, plugin: str, event: str | None, secret: str | None
) -> None:
    put_workflow(tmp_path / "data", ECHO)
    folder = tmp_path / "data/triggers"
    folder.mkdir()
    bad: dict[str, Any] = {**GENERIC, "id": "b" * 24, "pluginId": plugin}
    bad |= {"eventType": event, "secret": secret}
    content = {name: value for name, value in bad.items() if value is not None}
    (folder / f"{bad['id']}.json").write_text(
        json.dumps({**content, "createdAt": 1, "updatedAt": 1})
    )

    def look(client: Client) -> None:
        headers = {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,x"}
        for sent in ({}, headers, signed(b"{}"), signed(b"{}", "")):
            answer = send(client, str(bad["id"]), b"{}", **sent)
            assert (answer.status, answer.json()["error"]) == (500, "trigger-misconfigured")
        assert client.get("/api/runs").json()["runs"] == []
        entries = client.get("/api/audit?event=webhook").json()["entries"]
        assert {(entry["event"], entry["outcome"]) for entry in entries} == {
            ("webhook.refused", "trigger-misconfigured")
        }

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


# -- forged and repeated requests ------------------------------------------------------------------


async def test_forged_requests_keep_no_genuine_one_from_its_run(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger = make(client, **GITHUB, secret=SECRET)
        forged = [
            send(client, trigger["id"], b"{}", **signed(b"{}", "wrong" * 5)).status
            for _ in range(50)
        ]
        assert forged == [401] * 5 + [429] * 45
        bodies = [b"{}" + b" " * number for number in range(6)]
        genuine = [send(client, trigger["id"], body, **signed(body)).status for body in bodies]
        assert genuine == [202] * 5 + [429]

        def refusals() -> list[tuple[str, Any]]:
            entries = client.get("/api/audit?event=webhook.refused").json()["entries"]
            return [(entry["outcome"], entry["details"].get("count")) for entry in entries[::-1]]

        # The first five, and of those over the limit the 1st and the 10th.
        assert eventually(lambda: len(refusals()) == 7)
        assert refusals() == [
            *[("signature-mismatch", None)] * 5,
            ("rate-limited", None),
            ("rate-limited", 10),
        ]

    async with here(tmp_path, api_token=TOKEN, webhook_rate_limit=5, queue_limit=1_000) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_stranger_is_answered_before_the_audit_log_is_written(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger = make(client, **GITHUB, secret=SECRET)
        with lock_directory(tmp_path / "data/audit", 5, "testing"):
            existing = send(client, trigger["id"], b"{}", **signed(b"{}", "wrong" * 5))
            unknown = send(client, "c" * 24, b"{}", **signed(b"{}", "wrong" * 5))
        assert existing.status == unknown.status == 401
        assert existing.json()["error"] == unknown.json()["error"]
        path = "/api/audit?event=webhook.refused"
        (entry,) = eventually(lambda: client.get(path).json()["entries"])
        about = {"trigger": fingerprint(trigger["id"]), "name": "Any"}
        assert entry["details"] == {**about, "status": 401}
        assert entry["correlationId"] == existing.headers["x-correlation-id"]

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


def test_a_delivery_that_is_replayed_under_another_id_starts_nothing_for_a_day(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", ECHO)
    body = b'{"ref": "refs/heads/main"}'

    def deliver(client: Client, name: str, content: bytes = body) -> Any:
        sent = {**signed(content), "x-github-delivery": name}
        return send(client, trigger["id"], content, **sent)

    with process(tmp_path, api_token=TOKEN) as served:
        trigger = make(served.client, **GITHUB, secret=SECRET)
        first = deliver(served.client, "1")
        assert first.status == 202
        served.client.finished(first.json()["queueId"].removeprefix("q-"))
        replay = deliver(served.client, "2")
        assert (replay.status, replay.json()["error"]) == (409, "replayed")
        assert send(served.client, trigger["id"], body, **signed(body)).status == 409
        assert served.end() == 0
    with process(tmp_path, api_token=TOKEN) as again:
        assert deliver(again.client, "3").status == 409
        redelivered = deliver(again.client, "1")
        assert redelivered.status == 202
        assert redelivered.json()["queueId"] == first.json()["queueId"]
        assert deliver(again.client, "4", body + b"\n").status == 202
        tried = again.client.post(f"/api/triggers/{trigger['id']}/test", {"payload": {"ref": "x"}})
        twice = again.client.post(f"/api/triggers/{trigger['id']}/test", {"payload": {"ref": "x"}})
        assert tried.json()["status"] == twice.json()["status"] == 202
        path = "/api/audit?event=webhook.refused"
        outcomes = [entry["outcome"] for entry in again.client.get(path).json()["entries"]]
        assert outcomes == ["replayed"] * 3


async def test_after_a_day_a_request_is_no_replay_any_more(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    async with here(tmp_path) as served:
        trigger = await asyncio.to_thread(make, served.client, **GITHUB, secret=SECRET)
        for forward, status in ((0, 202), (86_399_000, 409), (2_000, 202)):
            served.clock.forward(forward)
            sent = await asyncio.to_thread(
                send, served.client, trigger["id"], b"{}", **signed(b"{}")
            )
            assert sent.status == status


async def test_a_signed_multipart_body_is_answered_415(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)
    form = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'
    kind = {"content-type": "multipart/form-data; boundary=x"}
    async with here(tmp_path) as served:
        trigger = await asyncio.to_thread(make, served.client, **GITHUB, secret=SECRET)
        answer = await asyncio.to_thread(
            send, served.client, trigger["id"], form, **signed(form), **kind
        )
        assert (answer.status, answer.json()["error"]) == (415, "unsupported-media-type")
        assert (await served.ask("GET", "/api/runs")).json()["runs"] == []


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.claim("I20")
async def test_an_address_is_unguessable_and_opens_the_trigger_by_itself(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> list[str]:
        made = []
        for _ in range(40):
            random.seed(0)
            state = random.getstate()
            made.append(make(client)["id"])
            assert random.getstate() == state, "a generator that can be predicted was used"
            moved = client.post(f"/api/triggers/{made[-1]}/regenerate")
            made.append(moved.json()["trigger"]["id"])
        name = made[-1]
        assert send(client, name).status == 202
        for near in (name[:-1], name + "A", name.swapcase(), name[::-1], made[0]):
            assert send(client, near).status == 401
        return made

    async with here(tmp_path, api_token=TOKEN) as served:
        made = await asyncio.to_thread(look, served.client)
    assert len(set(made)) == 80
    # 24 characters of an alphabet of 64 are 144 bits; all places differ from id to id.
    alphabet = set(string.ascii_letters + string.digits + "-_")
    assert {len(each) for each in made} == {24}
    assert set("".join(made)) <= alphabet
    assert all(len({each[place] for each in made}) > 30 for place in range(24))


# -- what goes wrong beside a file trigger ---------------------------------------------------------


async def test_a_file_trigger_whose_run_cannot_be_recorded_starts_it_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infloop.store.audit.files._LOCK_SECONDS", 0.05)
    watched = tmp_path / "watched"
    watched.mkdir()
    put_workflow(tmp_path / "data", ECHO)
    async with here(tmp_path) as served:
        await asyncio.to_thread(make, served.client, **watching(watched))
        await heard(served, watched / "a.txt")
        with lock_directory(tmp_path / "data/audit", 5, "testing"):
            served.clock.forward(100)
            await eventually_async(lambda: "cannot be started now: another process" in caplog.text)
            assert (await served.ask("GET", "/api/runs")).json()["runs"] == []
        (run,) = await eventually_async(partial(later_runs, served))
        assert (await asyncio.to_thread(served.client.finished, run["runId"]))["scope"][
            "inputs"
        ] == {"word": "a.txt"}
        accepted = (await served.ask("GET", "/api/audit?event=run.queued")).json()["entries"]
        assert len(accepted) == 1


async def later_runs(served: Here) -> list[dict[str, Any]]:
    """The runs, after a moment in which what is tried again can be tried."""
    served.clock.forward(1_000)
    found: list[dict[str, Any]] = (await served.ask("GET", "/api/runs")).json()["runs"]
    return found


async def test_a_queued_run_that_cannot_be_recorded_waits_and_then_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infloop.store.audit.files._LOCK_SECONDS", 0.05)
    monkeypatch.setattr("infloop.runtime.runs.dispatch.POLL_SECONDS", 0.05)
    waits = workflow(
        "waits", f"touch {tmp_path}/begun; until test -e {tmp_path}/gate; do sleep 0.02; done"
    )
    put_workflow(tmp_path / "data", waits)

    def look(client: Client) -> None:
        first, second = (client.post("/api/run", {"workflowId": "waits"}).json() for _ in "ab")
        eventually((tmp_path / "begun").exists)
        with lock_directory(tmp_path / "data/audit", 5, "testing"):
            (tmp_path / "gate").touch()
            eventually(lambda: "waits, because it cannot be recorded" in caplog.text)
            assert client.finished(first["runId"])["status"] == "succeeded"
            assert client.get(f"/api/runs/{second['runId']}").json()["run"]["status"] == "queued"
        assert client.finished(second["runId"])["status"] == "succeeded"
        path = f"/api/audit?event=run.started&run={second['runId']}"
        assert len(client.get(path).json()["entries"]) == 1

    async with here(tmp_path, max_concurrent_runs=1) as served:
        await asyncio.to_thread(look, served.client)


def watching(directory: Path) -> dict[str, Any]:
    files = {"directory": str(directory), "globs": ["*.txt"], "debounceMs": 50}
    return {"kind": "file", "files": files, "inputs": {"word": "{{files.first}}"}}


async def test_a_file_whose_name_is_no_text_starts_nothing_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    put_workflow(tmp_path / "data", ECHO)
    async with here(tmp_path) as served:
        await asyncio.to_thread(make, served.client, **watching(watched))
        strange = Path(os.fsdecode(bytes(watched / "name-") + b"\xff.txt"))
        strange.write_text("changed")
        await heard(served, watched / "a.txt")
        served.clock.forward(100)
        run = await asyncio.to_thread(newest_run, served.client, 1)
        assert run["scope"]["inputs"] == {"word": "a.txt"}
        strange.write_text("changed again")
        assert (await served.ask("GET", "/healthz")).status == 200
        await heard(served, watched / "b.txt")
        served.clock.forward(100)
        run = await asyncio.to_thread(newest_run, served.client, 2)
        assert run["scope"]["inputs"] == {"word": "b.txt"}
    assert "Traceback" not in caplog.text


async def test_a_directory_that_cannot_be_watched_keeps_no_other_from_being_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    unreadable = Path(os.fsdecode(bytes(tmp_path / "name-") + b"\xff"))
    unreadable.mkdir()
    (tmp_path / "link").symlink_to(watched)
    put_workflow(tmp_path / "data", ECHO)
    async with here(tmp_path) as served:
        for directory in (tmp_path / "link", watched):
            await asyncio.to_thread(make, served.client, **watching(directory))
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(unreadable)
        await eventually_async(lambda: "cannot watch" in caplog.text)
        await heard(served, watched / "a.txt")
        served.clock.forward(100)
        run = await asyncio.to_thread(newest_run, served.client, 1)
        assert run["scope"]["inputs"] == {"word": "a.txt"}
