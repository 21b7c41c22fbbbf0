"""A confined child cannot ask a server of infloop to run something without confinement.

Real servers and real runs, of one process or of two, at each level and with each network.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from infloop.model.audit import AuditFilter
from infloop.store.audit.reading import newest
from support import forkserver
from support.confinement import need_bubblewrap, need_guard
from support.eventually import eventually
from support.server import Process, environment, process, put_workflow, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
PATIENCE = 60.0
OWN = "a server of infloop listens there"
levels = pytest.mark.parametrize("level", ["guard", "sandbox"])

# Asks a server to run the workflow that writes to the user's home. What came of it is in `answers`.
ATTACK = """
touch waiting; until [ -e go ]; do sleep 0.02; done
for port in {ports}; do
  curl -sS --noproxy '*' --max-time 20 -X POST -H 'content-type: application/json' \
    -d '{{"workflowId": "victim"}}' "http://127.0.0.1:$port/api/run" >> answers 2>&1
  echo "exit $?" >> answers
done
"""


@pytest.fixture
def folder(level: str) -> Iterator[Path]:
    """A place whose `work` belongs to the children's user."""
    need_guard() if level == "guard" else need_bubblewrap()
    made = Path(tempfile.mkdtemp(prefix="infloop-test-", dir="/var/tmp"))
    made.chmod(0o755)
    (made / "work").mkdir()
    if os.geteuid() == 0:
        os.chown(made / "work", NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


def settings_of(level: str, **more: str) -> dict[str, str]:
    user = {"service_user": "nobody"} if os.geteuid() == 0 else {}
    return {"isolation": level, "snapshots": "false", **user, **more}


def attack(*ports: int, **more: Any) -> dict[str, Any]:
    return workflow("attack", ATTACK.format(ports=" ".join(map(str, ports))), **more)


def victim(folder: Path) -> dict[str, Any]:
    return workflow("victim", "touch owned", cwd=str(folder))


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        return a.getsockname()[1], b.getsockname()[1]


def assert_refused(folder: Path, server: Process, *ports: int) -> None:
    """Nobody got through, and the audit log of the run says so, once for each port."""
    answers = (folder / "work/answers").read_text()
    assert answers.count("exit 7") == len(ports), answers
    assert [run["workflowId"] for run in server.client.get("/api/runs").json()["runs"]] in (
        [],
        ["attack"],
    )


def assert_audited(data: Path, *ports: int) -> None:
    entries = newest(data / "audit", AuditFilter(event="egress.refused"), 100).entries
    assert sorted(entry.details["port"] for entry in entries) == sorted(ports)  # type: ignore[type-var]
    assert {entry.details["why"] for entry in entries} == {"own-port"}
    assert {entry.outcome for entry in entries} == {OWN}


@levels
def test_a_child_of_the_server_cannot_use_the_server(folder: Path, level: str) -> None:
    api, metrics = free_ports()
    put_workflow(folder / "data", victim(folder))
    put_workflow(folder / "data", attack(api, metrics))
    (folder / "work/go").touch()
    settings = settings_of(level, port=str(api), metrics_port=str(metrics))
    with process(folder, **settings) as server:
        asked = {"workflowId": "attack", "cwd": str(folder / "work")}
        answer = server.client.post("/api/run", asked)
        assert answer.status == 202, answer.body
        server.client.finished(answer.json()["runId"])
        assert_refused(folder, server, api, metrics)
        assert server.end() == 0
    assert_audited(folder / "data", api, metrics)


@levels
@pytest.mark.parametrize("first", ["server", "run"])
def test_a_child_of_another_process_cannot_use_the_server(
    folder: Path, level: str, first: str
) -> None:
    api, metrics = free_ports()
    put_workflow(folder / "data", victim(folder))
    file = folder / "attack.workflow.json"
    file.write_text(json.dumps(attack(api, metrics)))
    settings = settings_of(level, port=str(api), metrics_port=str(metrics))
    elsewhere = environment(folder / "other", **settings_of(level))

    def start_run() -> forkserver.Command:
        run = forkserver.Command(
            ["run", str(file)], folder / "work", elsewhere, stderr=forkserver.STDOUT
        )
        eventually((folder / "work/waiting").exists)
        return run

    early = start_run() if first == "run" else None
    with process(folder, **settings) as server:
        assert server.said
        with early or start_run() as run:
            (folder / "work/go").touch()
            said, _ = run.communicate(timeout=PATIENCE)
        assert_refused(folder, server, api, metrics)
    assert f"[egress] refused 127.0.0.1:{api}, {OWN}" in said
    assert_audited(folder / "other/data", api, metrics)


@levels
async def test_a_child_of_the_mcp_server_cannot_use_the_server(folder: Path, level: str) -> None:
    api, _ = free_ports()
    put_workflow(folder / "data", victim(folder))
    put_workflow(folder / "other/data", attack(api))
    (folder / "work/go").touch()
    started = StdioServerParameters(
        command=str(forkserver.PROGRAMS / "infloop"),
        args=["mcp"],
        env=forkserver.for_others(environment(folder / "other", **settings_of(level))),
        cwd=folder / "work",
    )
    with process(folder, **settings_of(level, port=str(api))) as server:
        assert server.said
        async with Client(started) as client, asyncio.timeout(PATIENCE):
            answer = await client.call_tool("attack", {})
            assert answer.structured_content, answer
            run_id = answer.structured_content["runId"]
            finished = False
            while not finished:
                waited = await client.call_tool("infloop_wait_for_run", {"runId": run_id})
                assert waited.structured_content, waited
                finished = waited.structured_content["finished"]
        await asyncio.to_thread(assert_refused, folder, server, api)
    assert_audited(folder / "other/data", api)


THROUGH_THE_PROXY = """
touch waiting; until [ -e go ]; do sleep 0.02; done
for port in {port}; do
  unset NO_PROXY no_proxy
  curl -sS --max-time 20 -o /dev/null -w '%{{http_code}}\\n' "http://127.0.0.1:$port/api/runs" \
    >> answers 2>&1
  curl -sS --max-time 20 "https://127.0.0.1:$port/api/runs" >> answers 2>&1
  echo "exit $?" >> answers
done
"""


@levels
def test_the_proxy_does_not_lead_to_the_server_although_it_is_listed(
    folder: Path, level: str
) -> None:
    api, _ = free_ports()
    listed = f"127.0.0.1:{api}"
    through = workflow("attack", THROUGH_THE_PROXY.format(port=api))
    put_workflow(folder / "data", through)
    (folder / "work/go").touch()
    settings = settings_of(level, port=str(api), egress_enforce="1", egress_allowlist=listed)
    with process(folder, **settings) as server:
        asked = {"workflowId": "attack", "cwd": str(folder / "work")}
        answer = server.client.post("/api/run", asked)
        assert answer.status == 202, answer.body
        server.client.finished(answer.json()["runId"])
        assert server.end() == 0
    answers = (folder / "work/answers").read_text()
    assert answers.startswith("403\n"), answers
    assert "exit 56" in answers, "the proxy answers the tunnel with 403"
    entries = newest(folder / "data/audit", AuditFilter(event="egress.refused"), 100).entries
    assert {entry.details["why"] for entry in entries} == {"own-port"}
    assert not newest(folder / "data/audit", AuditFilter(event="egress.allowed"), 100).entries


DIRECT = """
import socket
def run():
    codes = []
    for port in [9, 9, 10]:
        codes.append(socket.socket().connect_ex(("198.51.100.7", port)))
    return {"codes": codes}
"""


def test_what_a_closed_network_refuses_is_written_down_once_for_each_address(
    tmp_path: Path,
) -> None:
    """Only at guard: the network of a child at sandbox has no way out that could be noticed."""
    need_guard()
    made = Path(tempfile.mkdtemp(prefix="infloop-test-", dir="/var/tmp"))
    made.chmod(0o755)
    (made / "work").mkdir()
    if os.geteuid() == 0:
        os.chown(made / "work", NOBODY, NOBODY)
    try:
        nodes = [
            {"id": "start", "type": "start"},
            {
                "id": "d",
                "type": "script",
                "config": {"language": "py", "code": DIRECT, "outputs": ["codes"]},
            },
        ]
        edges = [{"source": "start", "sourceHandle": "next", "target": "d"}]
        file = made / "w.workflow.json"
        file.write_text(
            json.dumps({"id": "w", "name": "w", "nodes": nodes, "edges": edges, "egress": "none"})
        )
        settings = settings_of("guard", python_bin="/usr/bin/python3")
        env = environment(made, **settings)
        done = forkserver.run(["run", str(file)], made / "work", env, PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        found = newest(made / "data/audit", AuditFilter(event="egress.refused"), 100).entries
        where = sorted((entry.details["host"], entry.details["port"]) for entry in found)
        assert where == [("198.51.100.7", 9), ("198.51.100.7", 10)]
        assert {entry.details["why"] for entry in found} == {"direct"}
    finally:
        shutil.rmtree(made)
