"""Settings: where values are from, misspelt ones, secrets, and users without a home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infloop.app.runs import known_secrets
from infloop.settings import Settings
from support import forkserver
from support.server import environment, infloop, process

TOKEN = "a-secret-that-nobody-sees-0123456789"
MISSPELT: dict[str, Any] = {"isolaton": "sandbox", "max_cost": "5", "unheard_of": TOKEN}


def test_each_setting_is_shown_with_its_source_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "infloop.toml"
    file.write_text("queue_limit = 7\nport = 81\n")
    given: dict[str, Any] = {"config": str(file), "api_token": TOKEN, "port": "82"}
    lines = infloop(tmp_path, "settings", "--json", **given).stdout.splitlines()
    entries = {entry["name"]: entry for entry in map(json.loads, lines)}
    shown = {
        name: (entry["value"], entry["source"])
        for name, entry in entries.items()
        if entry["source"] != "default"
    }
    assert shown == {
        "INFLOOP_DATA_DIR": (str(tmp_path / "data"), "environment"),
        "INFLOOP_ISOLATION": ("host", "environment"),
        "INFLOOP_QUEUE_LIMIT": (7, "file"),
        "INFLOOP_PORT": (82, "environment"),
        "INFLOOP_API_TOKEN": ("set", "environment"),
    }
    assert entries["INFLOOP_SNAPSHOTS"]["value"] is True
    text = infloop(tmp_path, "settings", **given).stdout
    assert ["INFLOOP_QUEUE_LIMIT", "file", "7"] in [line.split() for line in text.splitlines()]
    assert TOKEN not in text + "".join(lines)
    (one,) = infloop(tmp_path, "settings", "queue_limit", "--json", **given).stdout.splitlines()
    assert json.loads(one)["default"] == 100
    said = infloop(tmp_path, "settings", "queue_limt", code=2, **given).stderr
    assert "did you mean INFLOOP_QUEUE_LIMIT?" in said


@pytest.mark.parametrize(
    "command", [("runs",), ("settings",), ("docs",), ("new",), ("workflows",), ("doctor",)]
)
def test_every_command_warns_of_a_misspelt_variable_and_goes_on(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = infloop(tmp_path, *command, **MISSPELT)
    assert (
        "warning: INFLOOP_ISOLATON is not a setting; did you mean INFLOOP_ISOLATION?" in done.stderr
    )
    assert done.stderr.count("is not a setting") == len(MISSPELT)
    if command == ("doctor",):
        assert "warn  settings.unknown: INFLOOP_ISOLATON is not a setting" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


def test_a_server_warns_of_a_misspelt_variable_and_shows_sources(tmp_path: Path) -> None:
    with process(tmp_path, "--host", "127.0.0.1", **MISSPELT) as server:
        answer = server.client.get("/api/settings").json()
        assert "INFLOOP_ISOLATON is not a setting" in (tmp_path / "stderr").read_text()
    assert [text.partition(" ")[0] for text in answer["unknown"]] == [
        "INFLOOP_ISOLATON",
        "INFLOOP_MAX_COST",
        "INFLOOP_UNHEARD_OF",
    ]
    sources = {entry["name"]: entry["source"] for entry in answer["settings"]}
    assert sources["INFLOOP_HOST"] == "command line"
    assert sources["INFLOOP_ISOLATION"] == "environment"
    assert sources["INFLOOP_QUEUE_LIMIT"] == "default"


@pytest.mark.parametrize("name", ["INFLOOP_\x1b[2J\u202e", "INFLOOP_" + "X" * 5_000, "INFLOOP_"])
def test_a_hostile_name_of_a_variable_does_not_reach_the_terminal(
    tmp_path: Path, name: str
) -> None:
    done = forkserver.run(("settings",), tmp_path, {**environment(tmp_path), name: "x"}, 60)
    assert done.returncode == 0
    assert "is not a setting" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\u202e" not in done.stderr
    assert len(done.stderr) < 400


def test_a_misspelt_name_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "infloop.toml"
    file.write_text("queue_limt = 7\n")
    said = infloop(tmp_path, "runs", code=2, config=str(file)).stderr
    assert "INFLOOP_QUEUE_LIMT is not a setting; did you mean INFLOOP_QUEUE_LIMIT?" in said


@pytest.mark.parametrize("password", ["hush-hush", "hush%40hush"])
def test_the_password_of_a_database_is_a_secret(tmp_path: Path, password: str) -> None:
    meant = password.replace("%40", "@")
    for address in (
        f"postgresql://u:{password}@127.0.0.1:1/x",
        f"postgresql://u@127.0.0.1:1/x?sslmode=disable&password={password}",
    ):
        known = known_secrets(Settings(data_dir=tmp_path, database=address))()
        assert {address, password, meant} <= {each.value for each in known}
    env = {"database": address}
    shown = infloop(tmp_path, "settings", code=0, **env)
    assert "INFLOOP_DATABASE" in shown.stdout
    refused = infloop(tmp_path, "runs", code=1, **env)
    assert len(refused.stderr.splitlines()) == 1
    for said in (shown, refused):
        assert meant not in said.stdout + said.stderr
        assert password not in said.stdout + said.stderr
