"""The command line calls the same use cases as the server: the same models, the same audit log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.server import PATIENCE, Process, environment, infloop, process, put_workflow, workflow

TRIGGER = {
    "name": "each push",
    "enabled": True,
    "workflowId": "tiny",
    "pluginId": "github",
    "eventType": "push",
    "secret": "a-secret-of-enough-length",
}


def lines(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a command prints with --json, line by line."""
    return [json.loads(line) for line in infloop(folder, *arguments, "--json").stdout.splitlines()]


def audited(folder: Path) -> list[tuple[str, str]]:
    """Who did what, the oldest entry first."""
    return [(each["event"], each["actor"]["kind"]) for each in lines(folder, "audit")[::-1]]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    put_workflow(tmp_path / "data", workflow("tiny", "echo hello"))
    with process(tmp_path) as made:
        yield made


def test_a_command_prints_what_the_api_answers(server: Process) -> None:
    folder, client = server.folder, server.client
    run_id = client.run("tiny")["runId"]
    created = client.post("/api/triggers", TRIGGER)
    assert created.status == 201
    assert lines(folder, "runs") == client.get("/api/runs").json()["runs"]
    assert lines(folder, "costs") == [client.get("/api/costs").json()]
    assert lines(folder, "triggers") == client.get("/api/triggers").json()["triggers"]
    trigger = created.json()["trigger"]
    for name in (trigger["id"][:8], "each push"):
        assert lines(folder, "triggers", "show", name) == [trigger]
    plugins = client.get("/api/webhook-plugins").json()["plugins"]
    assert lines(folder, "triggers", "plugins") == plugins
    assert lines(folder, "audit") == client.get("/api/audit").json()["entries"]
    assert lines(folder, "approvals") == client.get("/api/approvals").json()["approvals"] == []
    (shown,) = lines(folder, "show", run_id)
    answered = client.get(f"/api/runs/{run_id}").json()["run"]
    assert {name: shown[name] for name in answered} == answered
    more = {"inputs", "isolation", "egress", "warnings", "stepsDone", "stepList"}
    assert set(shown) - set(answered) == more
    assert [step["stepPath"] for step in shown["stepList"]] == ["start", "c1"]


def test_a_run_that_waits_for_a_person_is_listed_alike(tmp_path: Path) -> None:
    budget = {"limits": {"maxCostUsd": 1}, "onBudget": "pause"}
    ask = {"id": "a", "type": "agent", "config": {"providerId": "bot", "prompt": "go"}}
    again = {**ask, "id": "b"}
    nodes = [{"id": "start", "type": "start"}, ask, again]
    edges = [{"source": "start", "target": "a"}, {"source": "a", "target": "b"}]
    content = {"id": "w", "name": "w", "nodes": nodes, "edges": edges, **budget}
    put_workflow(tmp_path / "data", content)
    providers = tmp_path / "data/providers"
    providers.mkdir()
    manifest = {"id": "bot", "label": "Bot", "description": "scripted", "transport": "scripted"}
    (providers / "bot.json").write_text(json.dumps({**manifest, "script": "turns.json"}))
    (providers / "turns.json").write_text(json.dumps({"turns": [{"do": [{"cost": 2.0}]}]}))
    with process(tmp_path) as server:
        paused = server.client.run("w")
        assert paused["status"] == "paused"
        answered = server.client.get("/api/approvals").json()["approvals"]
        assert lines(tmp_path, "approvals") == answered
        assert [each["runId"] for each in answered] == [paused["runId"]]


def test_changes_at_the_command_line_are_in_the_audit_log(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    infloop(tmp_path, "triggers", "add", "tiny", "--cron", "0 0 * * *")
    (trigger,) = lines(tmp_path, "triggers")
    for action in ("disable", "enable", "regenerate"):
        infloop(tmp_path, "triggers", action, trigger["id"][:8])
        (trigger,) = lines(tmp_path, "triggers")
    infloop(tmp_path, "triggers", "remove", trigger["id"])
    infloop(tmp_path, "connections", "add", "Box", "http://127.0.0.1", "--port", "1=m")
    infloop(tmp_path, "connections", "remove", "box")
    assert audited(tmp_path) == [
        ("trigger.created", "cli"),
        ("trigger.changed", "cli"),
        ("trigger.changed", "cli"),
        ("trigger.moved", "cli"),
        ("trigger.deleted", "cli"),
        ("connection.saved", "cli"),
        ("connection.deleted", "cli"),
    ]


def test_what_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    (tmp_path / "data/audit").write_text("not a directory")
    add = ("triggers", "add", "tiny", "--cron", "0 0 * * *")
    assert "audit" in infloop(tmp_path, *add, code=1).stderr
    assert list((tmp_path / "data").glob("triggers/*.json")) == []
    box = ("connections", "add", "Box", "http://127.0.0.1", "--port", "1=m")
    assert "audit" in infloop(tmp_path, *box, code=1).stderr
    assert list((tmp_path / "data").glob("connections/*")) == []


def test_a_file_that_cannot_be_used_is_listed_and_can_be_removed(tmp_path: Path) -> None:
    for folder, name in (("triggers", "a" * 24), ("connections", "box")):
        path = tmp_path / "data" / folder / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert f"{name}: cannot be used" in infloop(tmp_path, folder).stdout
        infloop(tmp_path, folder, "remove", name)
        assert not path.exists()
        infloop(tmp_path, folder, "remove", name, code=2)


def test_commands_that_read_files_need_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(workflow("w", "true", strict=True)))
    assert infloop(tmp_path, "check", "./w.json").stdout == "./w.json: ok\n"
    for command in ("triggers", "connections", "audit"):
        infloop(tmp_path, command)
    assert not (tmp_path / "data").exists()


HEAVY = {
    *("dataclasses", "email", "fastapi", "h11", "html", "http", "importlib.resources", "mcp"),
    *("pydantic", "pydantic_core", "rich", "starlette", "yaml", "zipfile"),
    *("infloop.daemon", "infloop.egress.broker", "infloop.egress.proxy", "infloop.mcp_server"),
    *("infloop.model.json_schema", "infloop.model.loop_file", "infloop.sandbox.self_check.battery"),
    *("infloop.supervisor", "infloop.tools", "infloop.triggers", "infloop.web"),
}
FIRST_EFFECT = {
    *("deno", "re2", "tomllib", "infloop.model.provider", "infloop.nodes.agent"),
    *("infloop.policy.leaks.rules", "infloop.providers.context", "infloop.providers.http"),
    *("infloop.runtime.runs.step_powers", "infloop.runtime.spending.broker_usage"),
}
HASHING = {"difflib", "hashlib", "random", "secrets", "shutil"}
WAITING = {"asyncio", "concurrent.futures", "logging", "socket", "ssl", "threading", "uvloop"}
ONLY_FOR_RUNNING = {
    *("infloop.catalog", "infloop.egress", "infloop.engine", "infloop.model.workflow"),
    *("infloop.nodes", "infloop.providers", "infloop.sandbox", "infloop.store.audit.log"),
    "infloop.workspace",
}


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (("runs",), HEAVY | ONLY_FOR_RUNNING | WAITING | HASHING),
        (("show", "last"), HEAVY | ONLY_FOR_RUNNING | WAITING | HASHING),
        (("logs", "last"), HEAVY | ONLY_FOR_RUNNING | WAITING),
        (("run", "./w.json"), HEAVY),
        (("run", "./instant.json"), HEAVY | FIRST_EFFECT),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_loads_nothing_that_it_does_not_use(
    tmp_path: Path, command: tuple[str, ...], unused: set[str]
) -> None:
    (tmp_path / "w.json").write_text(json.dumps(workflow("w", "true", strict=True)))
    (tmp_path / "instant.json").write_text(json.dumps(workflow("instant")))
    infloop(tmp_path, "run", "./w.json")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "infloop", *command],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "infloop.application.runs.history" in loaded
    assert loaded & unused == set()
