"""`infloop import --from DIR`: a whole installation, and directories that mean harm."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from support.server import infloop

TRIGGER = "from-the-old-server-1"
NOW = 1_778_400_000_000


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    file.chmod(0o644)
    return file


def workflow(name: str, **more: Any) -> dict[str, Any]:
    nodes = [{"id": "start-1", "type": "start", "position": {"x": 1, "y": 2}, "config": {}}]
    return {"id": name, "name": name, "version": 7, "nodes": nodes, "edges": [], **more}


def trigger(name: str = TRIGGER, **more: Any) -> dict[str, Any]:
    made = {"id": name, "name": "Hook", "enabled": True, "workflowId": "hook", "match": []}
    made |= {"pluginId": "frogo", "eventType": "ping", "inputs": {}, "secret": "a-secret-of-theirs"}
    return made | {"createdAt": NOW, "updatedAt": NOW, "lastFiredAt": None} | more


def record(run_id: str = "ddbaebda-b748-446e-a504-72b3ce62f8a6") -> dict[str, Any]:
    started = {"type": "run_started", "workflowId": "hook", "workflowName": "hook"}
    made = {"runId": run_id, "workflowId": "hook", "workflowName": "hook", "status": "succeeded"}
    return made | {"startedAt": NOW, "finishedAt": NOW + 5, "scope": {}, "events": [started]}


PLUGIN = {
    "id": "frogo",
    "displayName": "Frogo",
    "eventHeader": "x-frogo-event",
    "signature": {"header": "x-frogo", "scheme": "hmac-sha256", "format": "sha256=<hex>"},
    "events": [{"type": "ping", "displayName": "Ping", "fields": []}],
}
AGENT = {
    "id": "mine",
    "label": "Mine",
    "description": "mine",
    "bin": "mine",
    "args": ["--dangerously-skip-permissions", "-p", "{prompt}"],
    "outputFormat": "plain",
}
CONNECTION = {
    "label": "My server",
    "host": "http://127.0.0.1",
    "token": "token-of-theirs",
    "ports": [{"port": 18643, "profile": "a"}],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The data directory and the checkout of an installation, in one."""
    made = tmp_path / "old"
    write(made / "workflows/hook.json", workflow("hook", colour="red"))
    inline = {"id": "inline-trigger-0001", "name": "Inline", "enabled": True, "match": []}
    write(made / "workflows/legacy.json", workflow("legacy", triggers=[{**inline, "inputs": {}}]))
    write(made / "workflows/unfinished.json", {**workflow("unfinished"), "nodes": []})
    write(made / "workflows/library/team.json", workflow("team"))
    write(made / "triggers" / f"{TRIGGER}.json", trigger())
    write(made / "providers/claude.json", {**AGENT, "id": "claude", "bin": "claude"})
    write(made / "providers/mine.json", AGENT)
    write(made / "webhook-plugins/frogo.json", PLUGIN)
    write(made / "webhook-plugins/github.json", {**PLUGIN, "id": "github"})
    write(made / "connections/my-server.hermes.local.json", CONNECTION)
    write(made / "runs/hook/ddbaebda-b748-446e-a504-72b3ce62f8a6.json", record())
    write(made / "workflows/hook.json.tmp", "left over")
    return made


def report(tmp_path: Path, source: Path, *more: str, code: int = 0) -> dict[str, Any]:
    """Import, and return for each file its outcome and notes."""
    done = infloop(tmp_path, "import", "--from", str(source), "--json", *more, code=code)
    return {file["path"]: file for file in json.loads(done.stdout)["files"]}


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {path: file["outcome"] for path, file in found.items()}


def tree(folder: Path) -> dict[str, bytes]:
    """What is in the folders of files that a user writes."""
    names = ("workflows", "triggers", "providers", "plugins", "connections")
    files = [file for name in names for file in (folder / name).glob("*.json")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


TAKEN = {
    "webhook-plugins/frogo.json": "taken",
    "webhook-plugins/github.json": "kept",
    "providers/claude.json": "kept",
    "providers/mine.json": "taken",
    "connections/my-server.hermes.local.json": "taken",
    "workflows/hook.json": "taken",
    "workflows/legacy.json": "taken",
    "workflows/unfinished.json": "taken",
    "workflows/library/team.json": "kept",
    f"triggers/{TRIGGER}.json": "taken",
    "runs/hook/ddbaebda-b748-446e-a504-72b3ce62f8a6.json": "taken",
}


def test_an_installation_is_imported_once_and_completely(tmp_path: Path, source: Path) -> None:
    data = tmp_path / "data"
    assert outcomes(report(tmp_path, source, "--dry-run")) == TAKEN
    assert tree(data) == {}
    assert infloop(tmp_path, "runs", "--json").stdout == ""

    found = report(tmp_path, source)
    assert outcomes(found) == TAKEN
    assert "'--dangerously-skip-permissions' is in `dangerousArgs`" in str(
        found["providers/mine.json"]["notes"]
    )
    assert "become files of their own" in str(found["workflows/legacy.json"]["notes"])
    written = tree(data)
    assert written["workflows/hook.json"] == (source / "workflows/hook.json").read_bytes()
    manifest = json.loads(written["providers/mine.json"])
    assert manifest["args"] == ["-p", "{prompt}"]
    assert manifest["dangerousArgs"] == ["--dangerously-skip-permissions"]
    assert json.loads(written[f"triggers/{TRIGGER}.json"])["secret"] == "a-secret-of-theirs"
    assert "triggers/inline-trigger-0001.json" in written
    assert json.loads(written["connections/my-server.json"])["token"] == "token-of-theirs"
    for name in written:
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600, name
    (run,) = [json.loads(line) for line in infloop(tmp_path, "runs", "--json").stdout.splitlines()]
    assert (run["workflowId"], run["cause"]["kind"]) == ("hook", "import")
    audit = infloop(tmp_path, "audit", "--json").stdout
    assert '"installation.imported"' in audit
    assert '"trigger.created"' in audit
    assert "a-secret-of-theirs" not in audit
    assert TRIGGER not in audit, "the id is a credential"

    again = outcomes(report(tmp_path, source))
    assert set(again.values()) == {"unchanged", "kept"}
    assert tree(data) == written


def test_what_exists_is_replaced_only_with_force(tmp_path: Path, source: Path) -> None:
    data = tmp_path / "data"
    mine = write(data / "workflows/hook.json", {**workflow("hook"), "name": "Mine"})
    hook = write(data / "triggers" / f"{TRIGGER}.json", trigger(name="Mine"))
    before = mine.read_bytes(), hook.read_bytes()
    found = report(tmp_path, source)
    assert found["workflows/hook.json"]["outcome"] == "kept"
    assert "--force" in str(found["workflows/hook.json"]["notes"])
    assert (mine.read_bytes(), hook.read_bytes()) == before
    forced = report(tmp_path, source, "--force")
    assert forced["workflows/hook.json"]["outcome"] == "taken"
    assert mine.read_bytes() == (source / "workflows/hook.json").read_bytes()
    assert json.loads(hook.read_text())["name"] == "Hook"
    assert forced["providers/claude.json"]["outcome"] == "kept", "what is shipped stays"
    assert forced["webhook-plugins/github.json"]["outcome"] == "kept"


DEEP = "[" * 100_000
HOSTILE: dict[str, object] = {
    "workflows/leads-out.json": workflow("../../planted"),
    "workflows/of-another-id.json": workflow("hook"),
    "workflows/con.json": workflow("con"),
    "workflows/a\x1b[2Jb.json": workflow("a\x1b[2Jb"),
    "workflows/planted\udcff.json": workflow("planted"),
    "workflows/no-json.json": "{",
    "workflows/deep.json": DEEP,
    "workflows/no-object.json": "[]",
    "workflows/planted.loop.yaml": "steps: []",
    "triggers/planted.json": trigger("../../planted"),
    "triggers/planted-trigger-0001.json": trigger("x" * 20),
    "providers/leads-out.json": {**AGENT, "id": "../../planted"},
    "webhook-plugins/leads-out.json": {**PLUGIN, "id": "../planted"},
    "connections/Planted!.json": CONNECTION,
    "connections/to-a-file.json": {**CONNECTION, "host": "file:///etc"},
    "runs/hook/leads-out.json": record("../../planted"),
    "runs/hook/no-record.json": {"runId": "x"},
    "runs/hook/deep.json": DEEP,
    "runs/hook/large-number.json": {**record("x"), "scope": {"a": 10**30}},
    "runs/hook/of-another-time.json": {**record("x"), "startedAt": 10**18},
    "runs/hook/no-number.json": json.dumps({**record("x"), "scope": {"a": float("nan")}}),
}


def test_hostile_files_are_refused_and_the_others_are_imported(tmp_path: Path) -> None:
    source, outside = tmp_path / "old", tmp_path / "outside"
    write(source / "workflows/good.json", workflow("good"))
    write(outside / "workflows/planted.json", workflow("planted"))
    write(outside / "runs/hook/x.json", record())
    hostile = [*HOSTILE]
    for name, content in HOSTILE.items():
        write(source / name, content)
    for name in ("workflows/link.json", "runs/linked"):
        target = outside / ("runs/hook" if "runs" in name else "workflows/planted.json")
        (source / name).symlink_to(target)
    os.mkfifo(source / "workflows/pipe.json")
    (source / "workflows/folder.json").mkdir()
    with write(source / "workflows/huge.json", "{}").open("r+b") as file:
        file.truncate(1 << 40)
    hostile += [f"workflows/{name}.json" for name in ("link", "pipe", "folder", "huge")]
    hostile += ["runs/linked"]

    done = infloop(tmp_path, "import", "--from", str(source), code=2)
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    refused = {line[2] for line in lines if line[0] == "refused"}
    shown = {name.replace("\x1b", "\\x1b").replace("\udcff", "\ufffd") for name in hostile}
    assert refused == shown
    assert [line[2] for line in lines if line[0] == "taken"] == ["workflows/good.json"]
    assert "\x1b" not in done.stdout
    assert list(tree(tmp_path / "data")) == ["workflows/good.json"]
    assert infloop(tmp_path, "runs", "--json").stdout == ""
    assert [path for path in tmp_path.rglob("*planted*") if "old" not in path.parts] == [
        outside / "workflows/planted.json"
    ]


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    write(tmp_path / "outside/runs/hook/x.json", record())
    write(tmp_path / "old/workflows/good.json", workflow("good"))
    (tmp_path / "old/runs").symlink_to(tmp_path / "outside/runs")
    found = report(tmp_path, tmp_path / "old", code=2)
    assert outcomes(found) == {"workflows/good.json": "taken", "runs": "refused"}
    assert infloop(tmp_path, "runs", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give run records, or --from DIR"),
        (("x.json", "--from", "."), "give run records, or --from DIR"),
        (("x.json", "--force"), "belong to --from DIR"),
        (("--from", "./missing"), "'missing' cannot be read"),
        (("--from", "./home"), "is not an installation"),
        (("--from", "./data"), "is infloop's own directory"),
    ],
)
def test_what_is_no_installation_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "home").mkdir()
    write(tmp_path / "data/workflows/hook.json", workflow("hook"))
    (tmp_path / "data").chmod(0o700)
    assert said in infloop(tmp_path, "import", *arguments, code=2).stderr
