"""Connections: files that only their owner can read, and one provider for each of their ports."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infloop.app.catalogs import known_providers, manifest_of, provider_folders
from infloop.catalog.connections import connected_providers, connections, save, unused_id
from infloop.cli import run as infloop
from infloop.errors import UsageError
from infloop.model.connection import Connection, connection_id, parse_connection
from infloop.settings import Settings
from support.fake_model import Say, chat, whole_answer
from support.runs import world
from support.scripted_http import STREAM, Act, Stage, events, refusal

TOKEN = "hunter2-token"
WRITTEN: dict[str, Any] = {
    "label": "My Hermes!",
    "host": "http://127.0.0.1",
    "token": TOKEN,
    "ports": [{"port": 18643, "profile": "modelA"}, {"port": 18644}],
}


def put(folder: Path, name: str, raw: object, mode: int = 0o600) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw))
    path.chmod(mode)
    return path


# -- as providers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["my-hermes.hermes.local.json", "my-hermes.json"])
def test_each_port_is_a_provider(name: str, tmp_path: Path) -> None:
    put(tmp_path, name, WRITTEN)
    (first, second), problems = connected_providers(tmp_path)
    assert problems == []
    assert first.to_json() == {
        "id": "my-hermes-modela",
        "label": "modelA",
        "description": "http://127.0.0.1:18643",
        "glyph": "☿",
        "transport": "http",
        "dialect": "openai",
        "baseUrl": "http://127.0.0.1:18643/v1",
        "endpoint": "/chat/completions",
        "profilesEndpoint": "/models",
        "auth": {"type": "bearer", "token": TOKEN},
        "profiles": [],
        "defaultProfile": "modelA",
        "kind": "hermes-local",
        "connectionId": "my-hermes",
        "connectionLabel": "My Hermes!",
    }
    assert (second.id, second.default_profile) == ("my-hermes-18644", None)


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("modelA", "c-modela"),
        ("Qwen/Qwen3-8B (fast)", "c-qwen-qwen3-8b-fast"),
        ("--", "c-1"),
        ("模型", "c-1"),
        ("x" * 500, f"c-{'x' * 90}"),
    ],
)
def test_a_provider_is_called_by_its_connection_and_its_model(
    profile: str, name: str, tmp_path: Path
) -> None:
    put(tmp_path, "c.json", {**WRITTEN, "ports": [{"port": 1, "profile": profile}]})
    (provider,), _ = connected_providers(tmp_path)
    assert provider.id == name


def test_a_server_without_a_token_is_asked_without_one(tmp_path: Path) -> None:
    put(tmp_path, "c.json", {**WRITTEN, "token": ""})
    providers, problems = connected_providers(tmp_path)
    assert [provider.auth for provider in providers] == [None, None]
    assert problems == []


# name -> file name, content, mode, what is said
BROKEN: dict[str, tuple[str, object, int, str]] = {
    "no JSON": ("c.json", "{", 0o600, "c.json: file: not JSON"),
    "no host": ("c.json", {**WRITTEN, "host": ""}, 0o600, "c.json: host: is missing"),
    "a path": ("c.json", {**WRITTEN, "host": "http://x/v1"}, 0o600, "without a path"),
    "no port": ("c.json", {**WRITTEN, "ports": []}, 0o600, "c.json: ports: is missing"),
    "a name in capitals": ("My.json", WRITTEN, 0o600, "'My' is not a connection's id"),
    "a long name": (f"{'x' * 31}.json", WRITTEN, 0o600, "is not a connection's id"),
    "open to others": (
        "c.json",
        WRITTEN,
        0o644,
        "other users can read the token in it (chmod 600 ",
    ),
    "open to the group": (
        "c.json",
        WRITTEN,
        0o640,
        "other users can read the token in it (chmod 600 ",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_file_is_said_without_its_token(case: str, tmp_path: Path) -> None:
    name, raw, mode, said = BROKEN[case]
    put(tmp_path, name, raw, mode)
    put(tmp_path, "good.json", WRITTEN)
    providers, problems = connected_providers(tmp_path)
    (problem,) = problems
    assert said in str(problem)
    assert TOKEN not in str(problem)
    assert "good-modela" in [provider.id for provider in providers]
    # A file that others can read is used all the same: it is only told.
    assert ("c-modela" in [provider.id for provider in providers]) == (
        problem.severity == "warning"
    )


async def test_a_new_connection_can_be_named_at_once(tmp_path: Path) -> None:
    act: Act = [STREAM, *events(chat([Say("It is DONE")], "modelA", 1))]
    async with Stage(act) as stage, world(tmp_path) as here:
        ports = [{"port": stage.port, "profile": "modelA"}]
        put(here.settings.connections, "box.json", {**WRITTEN, "ports": ports})
        assert "box-modela" in known_providers(here.settings)
        agent = {"providerId": "box-modela", "prompt": "Say DONE"}
        run = await here.run(
            {
                "id": "w",
                "name": "W",
                "nodes": [
                    {"id": "start", "type": "start"},
                    {"id": "a", "type": "agent", "config": agent},
                ],
                "edges": [{"source": "start", "sourceHandle": "next", "target": "a"}],
            }
        )
    assert run.status == "succeeded"
    assert run.scope["a"]["stdout"] == "It is DONE"
    assert stage.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert stage.asked[0].body["model"] == "modelA"


def test_a_manifest_of_ones_own_comes_before_a_connection_and_both_before_the_shipped(
    tmp_path: Path,
) -> None:
    chosen = Settings(data_dir=tmp_path)
    api = {**WRITTEN, "ports": [{"port": 1, "profile": "api"}]}
    put(chosen.connections, "openai.json", api)
    found = manifest_of(provider_folders(chosen), "openai-api")
    assert found is not None
    assert found.label == "api"
    mine = {"id": "openai-api", "label": "Mine", "description": "d", "bin": "x"}
    put(chosen.providers, "mine.json", mine)
    found = manifest_of(provider_folders(chosen), "openai-api")
    assert found is not None
    assert found.label == "Mine"
    assert known_providers(chosen).count("openai-api") == 1


# -- writing ---------------------------------------------------------------------------------------


@pytest.mark.claim("I72")
def test_a_connection_is_private_from_the_moment_its_file_appears(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "connections"
    command = ["connections", "add", "Box", "http://127.0.0.1", "--port", "1=m", "--token"]
    child = subprocess.Popen(
        [sys.executable, "-m", "infloop", *command],
        env={"PATH": os.environ["PATH"], "INFLOOP_DATA_DIR": str(tmp_path / "data")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        umask=0,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(f"{TOKEN}\n")
    child.stdin.close()
    seen: dict[str, int] = {}
    while child.poll() is None:
        seen |= modes(folder)
    assert child.stdout is not None
    child.stdout.close()
    assert child.returncode == 0
    seen |= modes(folder)
    assert "box.json" in seen
    assert set(seen.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["box.json"]


def modes(folder: Path) -> dict[str, int]:
    """The files of a folder, temporary ones too, with their modes."""
    found: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found[entry.name] = stat.S_IMODE(entry.stat().st_mode)
    except FileNotFoundError:
        pass  # it is not there yet, or was renamed while we looked
    return found


def test_a_file_that_others_could_read_is_closed_when_it_is_written(tmp_path: Path) -> None:
    path = put(tmp_path, "box.json", WRITTEN, 0o644)
    connection, _ = parse_connection(path.read_bytes())
    assert connection is not None
    assert save(tmp_path, "box", connection) == path
    assert modes(tmp_path) == {"box.json": 0o600}
    (entry,) = connections(tmp_path)
    assert entry.connection == connection
    assert entry.problems == ()


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("My Hermes!", "my-hermes"),
        ("  --  ", "hermes"),
        ("模型", "hermes"),
        ("x" * 99, "x" * 30),
        (f"{'x' * 29} y", "x" * 29),
        ("../../etc/passwd", "etc-passwd"),
    ],
)
def test_an_id_is_made_from_the_label(label: str, name: str) -> None:
    assert connection_id(label) == name


def test_a_second_connection_of_a_label_gets_a_number(tmp_path: Path) -> None:
    connection = Connection.model_validate(WRITTEN)
    names = [unused_id(tmp_path, "", "My Hermes!")]
    for _ in range(2):
        save(tmp_path, names[-1], connection)
        names.append(unused_id(tmp_path, "", "My Hermes!"))
    assert names == ["my-hermes", "my-hermes-2", "my-hermes-3"]


@pytest.mark.parametrize("wanted", ["../x", "Box", "a.b", "-a", "a" * 31, "box"])
def test_an_id_that_is_none_or_is_taken_is_refused(wanted: str, tmp_path: Path) -> None:
    save(tmp_path, "box", Connection.model_validate(WRITTEN))
    with pytest.raises(UsageError, match=r"is not a connection's id|there is a connection 'box'"):
        unused_id(tmp_path, wanted, "Box")


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFLOOP_DATA_DIR", str(tmp_path))
    return tmp_path


def test_connections_are_added_listed_and_removed_and_their_token_never_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\n"))
    ports = ["--port", "18643=modelA", "--port", "18644=b"]
    added = infloop(["connections", "add", "My Box", "http://127.0.0.1:9/", *ports, "--token"])
    assert added == 0
    assert infloop(["connections", "add", "Open", "http://[::1]", "--port", "1=x"]) == 0
    assert infloop(["connections"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        "added my-box: my-box-modela, my-box-b",
        "added open: open-x",
        "my-box: My Box, http://127.0.0.1, token set",
        "  my-box-modela  at http://127.0.0.1:18643/v1",
        "  my-box-b  at http://127.0.0.1:18644/v1",
        "open: Open, http://[::1], token not set",
        "  open-x  at http://[::1]:1/v1",
    ]
    assert json.loads((home / "connections/my-box.json").read_text())["token"] == TOKEN
    assert infloop(["connections", "remove", "my-box"]) == 0
    assert [path.name for path in (home / "connections").iterdir()] == ["open.json"]
    assert infloop(["connections", "remove", "my-box"]) == 2
    assert "there is no connection 'my-box'" in capsys.readouterr().err


def test_what_is_wrong_with_a_file_is_in_the_list(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home / "connections", "a.json", WRITTEN, 0o644)
    put(home / "connections", "b.json", {**WRITTEN, "label": "\x1b[2J", "host": "nowhere"})
    assert infloop(["connections", "list"]) == 0
    shown = capsys.readouterr().out
    assert "  warning: file: other users can read the token in it" in shown
    assert "b: cannot be used" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "wrong",
    [
        ["Box", "ftp://x", "--port", "1=m"],
        ["Box", "http://x/path", "--port", "1=m"],
        ["Box", "http://x", "--port", "0=m"],
        ["Box", "http://x", "--port", "many=m"],
        ["", "http://x", "--port", "1=m"],
        ["Box", "http://x", "--port", "1=m", "--id", "../x"],
    ],
)
def test_a_connection_that_is_none_is_refused_and_nothing_written(
    wrong: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infloop(["connections", "add", *wrong]) == 2
    assert capsys.readouterr().err.startswith("infloop: ")
    assert not (home / "connections").exists()


def run_add(home: Path, port: int) -> subprocess.CompletedProcess[str]:
    command = ["connections", "add", "Box", "http://127.0.0.1", "--port", str(port), "--token"]
    return subprocess.run(
        [sys.executable, "-m", "infloop", *command],
        env={"PATH": os.environ["PATH"], "INFLOOP_DATA_DIR": str(home)},
        input=f"{TOKEN}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_port_without_a_model_is_asked_which_it_serves(home: Path) -> None:
    async with Stage([whole_answer(200, {"data": [{"id": "found"}, {"id": "other"}]})]) as stage:
        added = await asyncio.to_thread(run_add, home, stage.port)
    assert added.stdout == "added box: box-found\n"
    assert stage.asked[0].path == "/v1/models"
    assert stage.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    written = json.loads((home / "connections/box.json").read_text())
    assert written["ports"] == [{"port": stage.port, "profile": "found"}]


async def test_a_port_that_does_not_say_is_an_error_with_the_way_out(home: Path) -> None:
    async with Stage(refusal(401, {"error": f"not {TOKEN}"})) as stage:
        added = await asyncio.to_thread(run_add, home, stage.port)
    assert added.returncode == 2
    assert f"name its model: --port {stage.port}=MODEL" in added.stderr
    assert TOKEN not in added.stderr + added.stdout
    assert not (home / "connections").exists()
