"""Notifications: a real command and a real server are told when a run ends, pauses or waits."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infloop.catalog.plugins import PluginFiles
from infloop.triggers.signatures import verify
from support.acp_agents import STOP, bot
from support.eventually import eventually
from support.runs import scripted
from support.server import TOKEN, infloop, process, put_workflow, workflow
from support.workflows import edges, node
from support.workflows import workflow as graph

SECRET = "whsec_" + "c2VjcmV0LWZvci1ub3RpZmljYXRpb25z"
KEY = "planted-key-0123456789abcdef"


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what is posted to it, and answers with one status."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.got: list[tuple[tuple[tuple[str, str], ...], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?team=a"

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = tuple((name.lower(), value) for name, value in self.headers.items())
        self.server.got.append((headers, body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiver(status: int = 204) -> Iterator[Receiver]:
    with Receiver(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_command_and_an_address_are_told_that_a_run_has_ended(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("hello", "echo hello"))
    told, seen = tmp_path / "told", tmp_path / "env"
    with receiver() as server:
        settings = {"notify_url": server.url, "notify_secret": SECRET}
        settings["notify_command"] = f"cat >> {told}; env > {seen}"
        infloop(tmp_path, "run", "hello", code=0, **settings)
        ((headers, body),) = server.got
    assert lines(told) == [json.loads(body)]
    said = json.loads(body)
    assert said["type"] == "run.finished"
    summary = json.loads(infloop(tmp_path, "runs", "--json").stdout)
    data = said["data"]
    shared = set(data) & set(summary) - {"cause"}
    assert {name: data[name] for name in shared} == {name: summary[name] for name in shared}
    assert {"runId", "workflowId", "status", "durationMs", "error", "failedStep"} <= shared
    assert (data["status"], data["costUsd"], data["cause"]) == ("succeeded", None, "cli")
    assert "INFLOOP_" not in seen.read_text()
    plugin = PluginFiles(tmp_path / "none").find("standard-webhooks")
    assert plugin is not None
    assert plugin.signature is not None
    now = int(time.time() * 1000)
    assert verify(plugin.signature, [SECRET], headers, body, now).ok
    assert verify(plugin.signature, [SECRET], headers, body + b" ", now).reason == "mismatch"


def test_a_server_tells_of_questions_pauses_and_failures_without_secrets(tmp_path: Path) -> None:
    bot(tmp_path, {"ask": {"title": f"curl -H {KEY}", "kind": "execute"}}, {"say": "done"}, STOP)
    put_workflow(
        tmp_path / "data",
        graph(
            [node("s", "start"), node("a", "agent", providerId="bot", prompt="go")],
            edges("s next a"),
            "asks",
        ),
    )
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 2.0}]})
    paid = [node(name, "agent", providerId="fake", prompt="go") for name in ("a", "b")]
    limits: dict[str, Any] = {"onBudget": "pause", "limits": {"maxCostUsd": 1.0}}
    costly = graph([node("s", "start"), *paid], edges("s next a next b"), "costly", **limits)
    put_workflow(tmp_path / "data", costly)
    script = node("x", "script", language="py", code=f"def run():\n    raise ValueError({KEY!r})")
    put_workflow(tmp_path / "data", graph([node("s", "start"), script], edges("s next x"), "fails"))
    settings = {"notify_secret": SECRET, "api_token": TOKEN, "approval_timeout_ms": "500"}
    with (
        receiver() as receiving,
        process(tmp_path, notify_url=receiving.url, **settings) as server,
    ):
        client = server.client
        machine = {"label": "t", "host": "http://127.0.0.1", "token": KEY}
        ports = [{"port": 1, "profile": "a"}]
        answer = client.post("/api/providers/hermes-local", {**machine, "ports": ports})
        assert answer.status == 201, answer.body
        asked = client.run("asks")["runId"]
        paused = client.run("costly")["runId"]
        failed = client.run("fails")["runId"]
        eventually(lambda: len(receiving.got) >= 4)
        said = {(one["type"], one["data"]["runId"]): one["data"] for one in receiving.bodies()}
    assert set(said) == {
        ("approval.asked", asked),
        ("run.finished", asked),
        ("run.paused", paused),
        ("run.finished", failed),
    }
    assert said["approval.asked", asked]["approval"]["kind"] == "permission"
    assert said["run.paused", paused]["costUsd"] == 2.0
    assert said["run.finished", failed]["failedStep"] == "x"
    assert KEY not in str(receiving.got)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"notify_command": "echo broken >&2; exit 3"}, "the command failed: exit 3 broken"),
        ({"notify_url": "http://127.0.0.1:1/"}, "cannot be reached"),
    ],
)
def test_what_cannot_be_told_is_a_warning(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    put_workflow(tmp_path / "data", workflow("hello", "echo hello"))
    done = infloop(tmp_path, "run", "hello", code=0, **settings)
    assert "run succeeded" in done.stdout
    assert said in done.stderr


@pytest.mark.parametrize(
    "settings",
    [
        {"notify_url": "file:///etc/passwd"},
        {"notify_url": "http://user:pass@127.0.0.1/"},
        {"notify_url": "http://127.0.0.1/", "notify_secret": "short-and-plain"},
        {"notify_url": "http://127.0.0.1/", "notify_secret": "whsec_c2hvcnQ="},
    ],
)
def test_an_unusable_address_is_refused_before_a_run_and_is_not_shown(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    put_workflow(tmp_path / "data", workflow("hello", "echo hello"))
    done = infloop(tmp_path, "run", "hello", code=2, **settings)
    assert "INFLOOP_NOTIFY_" in done.stderr
    assert "pass@" not in done.stderr
    assert "short-and-plain" not in done.stderr
