"""What children try with their environment, their processes and their output, by a table."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infloop.errors import SettingsError
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest, Sandbox
from infloop.sandbox.levels.host import HostSandbox
from support.attack_tables import Attack, AttackTable
from support.canaries import PATH, PYTHON, USER, directory_for_children, place
from support.child_records import DEAD, about, bystander, forge, lives
from support.confinement import need_bubblewrap, sandbox_at
from support.eventually import eventually_async
from support.processes import SERVER, alive, new_token, peak_kib, reset_peak
from support.repositories import git
from support.runs import world
from support.scripted_http import Stage
from support.server import TOKEN, Client, Events, here, process, put_workflow
from support.server import workflow as shell_workflow
from support.small_disk import settings_at, small_disk, workplace
from support.thorough import amount
from support.user_machine import agent, command, machine, script
from support.workflows import edges, node, workflow

TABLE = AttackTable("children")
DEADLINE_S = 40.0
MIB = 1 << 20


def test_every_row_is_tried() -> None:
    TABLE.check()


def by_level(rows: list[Any]) -> list[Any]:
    """Each row once for each of its levels."""
    return [
        pytest.param(level, *row.values, id=f"{row.id} at {level}")
        for row in rows
        for level in row.values[0]["levels"]
    ]


# -- processes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "attack"), by_level(TABLE.at("ends")))
async def test_nothing_outlives_its_end(level: str, attack: Attack) -> None:
    for end in attack["ends"]:
        token = new_token()
        line = attack["line"].replace("{token}", token)
        if end == "kill":
            if level == "host":
                await killed_with_its_server(line, token)
            continue
        with place() as parent:
            workspace = directory_for_children(parent, "workspace")
            child = ChildRequest(("sh", "-c", line), str(workspace), {"PATH": PATH}, grace_ms=200)
            async with sandbox_at(level, parent) as sandbox, asyncio.timeout(DEADLINE_S):
                await ENDS[end](sandbox, child)
                assert alive(token) == [], end


async def by_exit(sandbox: Sandbox, child: ChildRequest) -> None:
    result = await sandbox.run(child)
    assert (result.stdout, result.exit_code) == ("ready\n", 0)


async def by_timeout(sandbox: Sandbox, child: ChildRequest) -> None:
    """Let a child that says `ready` reach that point, and then its timeout."""
    for timeout_ms in (400, 2_000, 10_000):
        result = await sandbox.run(msgspec.structs.replace(child, timeout_ms=timeout_ms))
        assert result.timed_out
        if result.stdout == "ready\n":
            return
    raise AssertionError(f"never ready: {result}")


async def by_cancel(sandbox: Sandbox, child: ChildRequest) -> None:
    ready = asyncio.Event()
    running = asyncio.create_task(sandbox.run(child, on_output=lambda *_: ready.set()))
    await ready.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


ENDS = {"exit": by_exit, "timeout": by_timeout, "cancel": by_cancel}


async def killed_with_its_server(line: str, token: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, line], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        assert alive(token)
        server.kill()
    await eventually_async(lambda: alive(token) == [])


@pytest.mark.parametrize("attack", TABLE.at("record"))
def test_a_process_that_only_has_the_same_number_is_left_alone(
    tmp_path: Path, attack: Attack
) -> None:
    with bystander() as innocent:
        known = {"pid": innocent.pid, "start": innocent.start + attack["start"]}
        forge(tmp_path, f"{DEAD}.1", about(), known)
        with process(tmp_path) as server:
            assert server.said
            assert lives(innocent)


# -- amounts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "attack"), by_level(TABLE.at("limits")))
async def test_a_child_that_takes_without_end_comes_to_a_limit(level: str, attack: Attack) -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        access = Access(write=(str(workspace),), limits=ResourceLimits(**attack["limits"]))
        env = {"PATH": PATH, "HOME": "/root"}
        child = ChildRequest(
            (PYTHON, "-c", attack["code"]),
            str(workspace),
            env,
            timeout_ms=30_000,
            access=access,
            grace_ms=200,
        )
        async with sandbox_at(level, parent) as sandbox, asyncio.timeout(DEADLINE_S):
            result = await sandbox.run(child)
            assert attack["says"] in result.stdout, result
            after = ChildRequest(("echo", "next"), str(workspace), env)
            assert (await sandbox.run(after)).stdout == "next\n"


@pytest.mark.parametrize(("level", "attack"), by_level(TABLE.at("fill")))
async def test_a_run_that_fills_its_disk_is_ended_before_the_reserve_is_gone(
    level: str, attack: Attack
) -> None:
    chosen = settings_at(level)
    with place() as parent, small_disk(parent / "disk") as disk:
        flow = workflow(
            [node("start", "start"), script("s", attack["code"])], edges("start next s")
        )
        flow["nodes"][1]["config"]["cwd"] = str(workplace(disk / "here"))
        async with (
            world(parent, min_free_disk_bytes=128 * MIB, **chosen) as app,
            asyncio.timeout(DEADLINE_S),
        ):
            ended = await app.run(flow)
            assert ended.status == "failed"
            assert "128 MB must stay free (INFLOOP_MIN_FREE_DISK_BYTES)" in ended.result.error
            assert not users_of(disk)
            low = re.search(r"only ([\d.]+) MB are left", ended.result.error)
            assert low is not None
            assert float(low[1]) > 64


def users_of(disk: Path) -> list[Path]:
    """The processes that work on a disk."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if each.resolve().is_relative_to(disk):
                found.append(each)
    return found


@pytest.mark.parametrize(("level", "attack"), by_level(TABLE.at("memory")))
async def test_a_run_that_takes_too_much_memory_fails_alone(level: str, attack: Attack) -> None:
    chosen = settings_at(level) | {"max_child_memory_bytes": 512 * MIB}
    start = node("start", "start")
    takes = workflow([start, script("s", attack["code"])], edges("start next s"))
    with place() as parent:
        go = workplace(parent / "work") / "go"
        waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
        other = workflow([start, script("s", waits)], edges("start next s"))
        async with world(parent, **chosen) as app, asyncio.timeout(DEADLINE_S):
            beside = await app.start(other)
            failed = await app.run(takes)
            assert failed.status == "failed"
            assert attack["says"] in failed.result.error
            assert all(int(line) <= 512 for line in failed.said().split())
            go.touch()
            assert (await app.finish(beside)).status == "succeeded"


@pytest.mark.thorough
@pytest.mark.parametrize("attack", TABLE.at("output"))
async def test_output_without_end_is_kept_at_both_ends(attack: Attack) -> None:
    reset_peak()
    before = peak_kib()
    much = amount(attack["bytes"] // 4, thorough=attack["bytes"])
    line = attack["line"].replace("{n}", str(much))
    child = ChildRequest(("sh", "-c", line), "/", {"PATH": PATH}, max_output_bytes=MIB)
    sandbox = HostSandbox(user=USER)
    try:
        async with asyncio.timeout(DEADLINE_S):
            result = await sandbox.run(child)
    finally:
        await sandbox.close()
    assert peak_kib() - before < 64 * 1024
    text = getattr(result, attack["stream"])
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert " bytes left out …]" in text
    assert len(text) < MIB + 1_000
    assert result.exit_code == 0
    assert attack["stream"] == "stdout" or result.stdout == "said\n"


@pytest.mark.parametrize("attack", TABLE.at("lines"))
async def test_lines_without_end_leave_the_server_responsive(
    tmp_path: Path, attack: Attack
) -> None:
    put_workflow(tmp_path / "data", shell_workflow("loud", attack["line"]))
    async with here(tmp_path) as served:
        asked = await served.ask("POST", "/api/run", {"workflowId": "loud"})
        answers = 0
        async with asyncio.timeout(DEADLINE_S):
            while (await run_of(served.client, asked.json()["runId"]))["status"] != "succeeded":
                assert (await served.ask("GET", "/healthz")).status == 200
                answers += 1
        assert answers > 0
        path = f"/api/runs/{asked.json()['runId']}/events"
        with await asyncio.to_thread(Events, served.client, path) as stream:
            told = await asyncio.to_thread(lambda: sum(1 for _ in stream))
        assert told < attack["lines"] / 1_000


async def run_of(client: Client, run_id: str) -> dict[str, Any]:
    answer = await asyncio.to_thread(client.get, f"/api/runs/{run_id}")
    found: dict[str, Any] = answer.json()["run"]
    return found


@pytest.mark.parametrize("attack", TABLE.at("replay"))
async def test_a_long_run_is_read_in_bounded_memory(tmp_path: Path, attack: Attack) -> None:
    body = [node("b", "branch", lhs="a", op="==", rhs="b")]
    rounds = node("l", "loop", body, maxIterations=attack["rounds"])
    put_workflow(tmp_path / "data", workflow([node("s", "start"), rounds], edges("s next l")))
    async with here(tmp_path, max_run_node_executions=0) as served:
        run_id = (await served.run("w"))["runId"]
        reset_peak()
        before = peak_kib()
        path = f"/api/runs/{run_id}/events"
        with await asyncio.to_thread(Events, served.client, path) as stream:
            told = await asyncio.to_thread(lambda: sum(1 for _ in stream))
        assert told >= attack["rounds"]
        assert peak_kib() - before < 32 * 1024


# -- environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("inherit"))
def test_a_child_inherits_what_is_listed(tmp_path: Path, attack: Attack) -> None:
    planted = {name: f"canary-{name}" for name in attack["plant"]}
    user = machine(tmp_path)
    user.variables = {**planted, "INFLOOP_CHILD_ENV_PASSTHROUGH": attack["passthrough"]}
    user.bot([{"shell": "env > from-agent"}])
    write = "import os\nopen('from-script', 'w').write(repr(dict(os.environ)))"
    nodes = [command("c", "env > from-command"), script("s", write), agent("a")]
    flow = user.file("w", nodes, "start next c met s next a")
    user.infloop("run", flow)
    for kind in ("command", "script", "agent"):
        seen = (user.repo / f"from-{kind}").read_text()
        assert "PATH" in seen
        assert "INFLOOP_" not in seen.replace("RUN_BY_INFLOOP", "")
        for name, value in planted.items():
            assert (value in seen) is (name in attack["passes"]), (kind, name)


@pytest.mark.parametrize("attack", TABLE.at("set"))
async def test_a_workflow_cannot_set_what_changes_which_code_runs(
    tmp_path: Path, attack: Attack
) -> None:
    async with world(tmp_path) as app:
        for name in attack["names"]:
            line = {"cmd": "echo begun", "env": {name: "{{inputs.v}}"}}
            step = node("c", "condition", kind="command", command=line)
            flow = workflow([node("s", "start"), step], edges("s next c"))
            done = await app.run(flow, inputs={"v": "/tmp/evil"})
            assert done.status == "failed"
            assert attack["says"] in done.result.error
            assert repr(name) in done.result.error
            assert done.said() == ""


HIDDEN = """
import asyncio, os, sys, tempfile
from pathlib import Path
from infloop.app.runs import open_service
from infloop.sandbox.keepers.keeper import PR_SET_DUMPABLE, prctl
from infloop.settings import Settings

def reached():
    found = []
    for name in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            path = f"/proc/{os.getppid()}/{name}"
            try:
                os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
                os.readlink(path) if name in ("cwd", "root") else None
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            found.append(name)
    return ",".join(found) or "nothing"

async def main():
    before = reached()
    async with open_service(Settings(data_dir=Path(sys.argv[1]), isolation="host")):
        print(before, reached())

async def warm():
    with tempfile.TemporaryDirectory() as folder:
        async with open_service(Settings(data_dir=Path(folder, "data"), isolation="host")):
            pass

asyncio.run(warm())
prctl(PR_SET_DUMPABLE, 1)
if os.getuid() == 0:
    os.setgid(int(os.environ["AS"]))
    os.setuid(int(os.environ["AS"]))
    prctl(PR_SET_DUMPABLE, 1)
asyncio.run(main())
"""


@pytest.mark.parametrize("attack", TABLE.at("hidden"))
def test_the_server_does_not_show_itself_to_its_own_user(attack: Attack) -> None:
    with place() as parent:
        data = directory_for_children(parent, "data")
        done = subprocess.run(
            [sys.executable, "-c", HIDDEN, str(data), *attack["files"]],
            env={"PATH": PATH, "AS": str(data.stat().st_uid), "HOME": str(data)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split()
    assert before == ",".join(attack["files"])
    assert after == "nothing"


@pytest.mark.parametrize("attack", TABLE.at("pass"))
async def test_a_list_that_would_pass_everything_is_refused(tmp_path: Path, attack: Attack) -> None:
    for listed in attack["settings"]:
        with pytest.raises(SettingsError, match=attack["says"]) as caught:
            async with world(tmp_path, child_env_passthrough=listed):
                pass
        assert repr(listed) in str(caught.value)


@pytest.mark.parametrize("attack", TABLE.at("value"))
async def test_a_value_is_one_value(tmp_path: Path, attack: Attack) -> None:
    line = "printf %s {{inputs.v}} > value; env -0 > variables"
    flow = workflow([node("s", "start"), command("c", line)], edges("s next c"))
    async with world(tmp_path) as app:
        for value in attack["values"]:
            given = value if value != "large" else "x" * (4 << 20)
            done = await app.run(flow, inputs={"v": given})
            if not attack["arrives"]:
                assert done.status == "failed"
                assert not list(app.folder.iterdir())
                continue
            assert (app.folder / "value").read_text() == given
            variables = (app.folder / "variables").read_bytes().split(b"\0")
            assert not any(each.startswith(b"INJECTED") for each in variables)


@pytest.mark.parametrize("attack", TABLE.at("failing"))
async def test_no_secret_is_left_by_a_call_that_fails(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"SOME_API_KEY": "sk-canary-0123456789", "GH_TOKEN": "ghp-canary-0123456789"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(directory_for_children(tmp_path, "work"))
    data, told = tmp_path / "data", b""
    asks = node("a", "agent", providerId="far", prompt="x")
    put_workflow(data, workflow([node("s", "start"), asks], edges("s next a")))
    async with (
        Stage(*([answer.encode()] for answer in attack["answers"])) as far,
        here(tmp_path, api_token=TOKEN) as served,
    ):
        put_provider(data, far.url, auth={"type": "bearer", "envVar": "SOME_API_KEY"})
        for _ in attack["answers"]:
            run = await served.run("w")
            assert run["status"] == "failed", run
            for path in (f"/api/runs/{run['runId']}", f"/api/runs/{run['runId']}/events"):
                told += (await served.ask("GET", path)).body
        for path in ("/api/audit?limit=1000", "/api/nowhere", "/api/providers", "/metrics"):
            told += (await served.ask("GET", path)).body
        assert "sk-canary" in str(far.asked[0])
    kept = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
    for secret in (TOKEN, *keys.values()):
        assert secret.encode() not in told + kept


def put_provider(data: Path, url: str, **more: Any) -> None:
    manifest = {
        "id": "far",
        "label": "Far",
        "description": "d",
        "transport": "http",
        "baseUrl": f"{url}/v1",
        "endpoint": "/chat/completions",
        "defaultProfile": "m",
        **more,
    }
    (data / "providers").mkdir(parents=True, exist_ok=True)
    (data / "providers/far.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("attack", TABLE.at("prints"))
async def test_no_secret_that_a_child_prints_is_kept_shown_or_asked(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {name: f"{name[:3].lower()}-0123456789-{name}-canary" for name in attack["plant"]}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(directory_for_children(tmp_path, "work"))
    file, data, told = tmp_path / "keys", tmp_path / "data", b""
    file.write_text("".join(f"{value}\n" for value in (TOKEN, *keys.values())))
    async with here(tmp_path, api_token=TOKEN) as served:
        for number, text in enumerate(attack["lines"]):
            line = text.replace("{keys}", str(file))
            put_workflow(data, printing(line, str(tmp_path / f"asked-{number}")))
            put_scripted(data, line)
            run = await served.run("w")
            for path in (f"/api/runs/{run['runId']}", f"/api/runs/{run['runId']}/events"):
                told += (await served.ask("GET", path)).body
        for path in ("/api/audit?limit=1000", "/api/runs", "/metrics"):
            told += (await served.ask("GET", path)).body
    asked = [file.read_bytes() for file in tmp_path.glob("asked-*")]
    kept = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
    assert b"[redacted:" in told
    assert len(asked) == len(attack["lines"])
    assert all(b"[redacted:" in each for each in asked)
    for secret in (TOKEN, *keys.values()):
        assert secret.encode() not in told + kept + b"".join(asked)


def printing(line: str, asked: str) -> dict[str, Any]:
    """A workflow whose command and agent print, and whose last step is asked with what they did."""
    follow = f"printf '%s' {{{{c.stdout}}}} {{{{c.stderr}}}} {{{{a.transcript}}}} > {asked}"
    nodes = [node("s", "start"), command("c", line), agent("a"), command("d", follow)]
    return workflow(nodes, edges("s next c met a next d", "c not_met a"))


def put_scripted(data: Path, line: str) -> None:
    manifest = {"id": "bot", "label": "bot", "description": "d", "transport": "scripted"}
    (data / "providers").mkdir(parents=True, exist_ok=True)
    (data / "providers/bot.json").write_text(json.dumps({**manifest, "script": "bot.turns"}))
    turns = {"turns": [{"do": [{"shell": line}]}]}
    (data / "providers/bot.turns").write_text(json.dumps(turns))


@pytest.mark.parametrize("attack", TABLE.at("temp"))
async def test_what_is_temporary_is_private_and_cannot_be_foreseen(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp, bait = tmp_path / "temp", tmp_path / "bait"
    temp.mkdir(0o1777)
    bait.mkdir()
    for name in attack["planted"]:
        (temp / name).symlink_to(bait)
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    seen: list[set[str]] = []
    look = f"""
import json, os
found = {{each.name: each.stat().st_mode for each in os.scandir({str(temp)!r})}}
open("found", "w").write(json.dumps(found))
"""
    for _ in range(2):
        async with world(tmp_path) as app:
            flow = workflow([node("start", "start"), script("s", look)], edges("start next s"))
            assert (await app.run(flow)).status == "succeeded"
            found = json.loads((app.folder / "found").read_text())
        made = {name: mode for name, mode in found.items() if name not in attack["planted"]}
        assert made
        assert all(mode & 0o066 == 0 for mode in made.values()), made
        seen.append(set(made))
    assert seen[0].isdisjoint(seen[1])
    assert {path.name for path in temp.iterdir()} == set(attack["planted"])
    assert list(bait.iterdir()) == []


@pytest.mark.parametrize("attack", TABLE.at("modes"))
def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path, attack: Attack) -> None:
    data = tmp_path / "data"
    mask = os.umask(int(attack["umask"], 8))
    try:
        with process(tmp_path, api_token=TOKEN) as served:
            client = served.client
            made = shell_workflow("w", "echo out", f"sleep {new_token()}")
            assert client.post("/api/workflows", made).status == 201
            trigger = {"name": "t", "enabled": True, "workflowId": "w"}
            assert client.post("/api/triggers", trigger).status == 201
            run_id = client.post("/api/run", {"workflowId": "w"}).json()["runId"]
            with Events(client, f"/api/runs/{run_id}/events") as stream:
                stream.until("node_started")
            put = client.ask("PUT", "/api/workflows/w", {**made, "name": "other", "version": 1})
            assert put.status == 200, put.body
            served.end(signal.SIGKILL)
        with process(tmp_path, api_token=TOKEN) as again:
            assert again.client.finished(run_id)["status"] == "failed"
    finally:
        os.umask(mask)
    paths = list(data.rglob("*"))
    assert len(paths) > 5
    for path in (data, *paths):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.lstat().st_mode) & ~allowed == 0, path


# -- programs in the way ---------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("hijack"))
def test_a_program_in_the_workspace_is_not_run_by_the_server(attack: Attack) -> None:
    with place() as parent:
        user = machine(parent / "machine")
        mark = parent / "marks/mark"
        mark.parent.mkdir()
        mark.parent.chmod(0o777)
        for name in attack["programs"]:
            program = user.repo / name
            program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
            program.chmod(0o755)
        git("add", "-A", cwd=user.repo)
        git("commit", "-q", "-m", "planted", cwd=user.repo)
        ways = [each.replace("{W}", str(user.repo)) for each in attack["path"]]
        user.variables = {"PATH": ":".join([*ways, user.env["PATH"]])}
        user.bot([{"write": "made.txt", "content": "x"}])
        if attack["level"] == "sandbox":
            need_bubblewrap()
            user.variables |= {"INFLOOP_ISOLATION": "sandbox", "INFLOOP_PYTHON_BIN": PYTHON}
            if USER:
                user.variables["INFLOOP_SERVICE_USER"] = "nobody"
                own(parent / "machine/repo", "nobody")
        apart = attack["level"] == "host"
        nodes = [script("s", "return {}"), agent("a", useWorktree=apart)]
        user.infloop("run", user.file("w", nodes, "start next s next a"))
        if apart:
            user.infloop("diff", "last")
            user.infloop("apply", "last")
        assert (user.repo / "made.txt").read_text() == "x"
        assert not mark.exists()


def own(folder: Path, name: str) -> None:
    for each in (folder, *folder.rglob("*")):
        os.chown(each, pwd.getpwnam(name).pw_uid, -1, follow_symlinks=False)
