"""`infloop serve` as a process: where it listens, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.eventually import eventually, text_in
from support.server import (
    TOKEN,
    Client,
    Process,
    process,
    put_workflow,
    refused,
    workflow,
)


def listening(served: Process) -> set[str]:
    """The addresses at which a server listens, as the kernel tells.

    Only root sees the descriptors of a server, so others look for those with its port.
    """
    port = f"{served.client.port:04X}"
    own = _sockets(served.process.pid) if os.geteuid() == 0 else None
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address, _, at = words[1].partition(":")
            if words[3] == "0A" and (at == port if own is None else words[9] in own):
                found.add(address)
    return found


def _sockets(pid: int) -> set[str]:
    links = list[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            links.append(str(link.readlink()))
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


@pytest.mark.claim("I7")
def test_without_any_setting_it_listens_on_loopback_and_asks_for_no_token(tmp_path: Path) -> None:
    with process(tmp_path) as served:
        assert listening(served) == {"0100007F"}
        assert served.said.startswith("infloop serves http://127.0.0.1:")
        assert served.client.get("/api/workflows").status == 200
        assert served.client.get("/").status == 200


@pytest.mark.claim("I8")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_network_address_without_a_token_is_refused_with_the_reason(
    tmp_path: Path, host: str
) -> None:
    said = refused(tmp_path, "--host", host)
    assert "INFLOOP_API_TOKEN" in said
    assert repr(host) in said
    assert said == refused(tmp_path, host=host)


@pytest.mark.claim("I9")
def test_with_a_token_it_listens_on_a_network_address(tmp_path: Path) -> None:
    with process(tmp_path, "--host", "0.0.0.0", api_token=TOKEN) as served:
        assert listening(served) == {"00000000"}
        assert served.client.get("/api/workflows").status == 200
        assert Client(served.client.port).get("/api/workflows").status == 401
        assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.claim("I10")
def test_an_operator_who_insists_gets_an_open_server_under_a_banner(tmp_path: Path) -> None:
    with process(tmp_path, "--host", "0.0.0.0", allow_insecure="1") as served:
        assert served.client.get("/api/workflows").status == 200
        said = (tmp_path / "stderr").read_text()
        assert "INSECURE" in said
        assert said.count("*" * 60) == 2


def test_a_port_in_use_gives_way_to_the_next(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(tmp_path, "--port", str(port)) as served:
            assert port < served.client.port <= port + 20
            assert served.client.get("/healthz").status == 200


def test_an_address_that_is_not_ours_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    said = refused(tmp_path, "--host", "192.0.2.1", api_token=TOKEN)
    assert "cannot listen on 192.0.2.1" in said
    assert "--host" in said


@pytest.mark.parametrize("port", ["-1", "65536", "x", "", "1.5", "9" * 30])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    assert "is not a port" in refused(tmp_path, "--port", port)


def test_the_token_is_not_shown_when_it_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, api_token="two words of a secret")
    assert "INFLOOP_API_TOKEN" in said
    assert "words" not in said


@pytest.mark.claim("I58")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_children_settles_runs_and_leaves_nothing_to_clear_up(
    tmp_path: Path, number: int
) -> None:
    line = f"echo $$ > {tmp_path}/pid; trap '' TERM INT; sleep 600 & wait"
    put_workflow(tmp_path / "data", workflow("long", line))
    put_workflow(tmp_path / "data", workflow("later", "true"))
    with process(tmp_path, max_concurrent_runs="1") as served:
        run_id = served.client.post("/api/run", {"workflowId": "long"}).json()["runId"]
        waiting = served.client.post("/api/run", {"workflowId": "later"}).json()["runId"]
        pid = int(text_in(tmp_path / "pid"))
        stream = socket.create_connection(("127.0.0.1", served.client.port))
        stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream.recv(100)
        assert served.end(number) == 0
        stream.close()
        assert not Path(f"/proc/{pid}").exists()
        assert (tmp_path / "stderr").read_text() == ""
    with process(tmp_path) as again:
        assert (tmp_path / "stderr").read_text() == ""
        run = again.client.get(f"/api/runs/{run_id}").json()["run"]
        assert (run["status"], "the server was stopped" in str(run)) == ("cancelled", True)
        assert again.client.finished(waiting)["status"] == "succeeded"
        events = [
            entry["event"]
            for entry in again.client.get("/api/audit?event=server").json()["entries"]
        ]
        assert events == ["server.started", "server.stopped", "server.started"]


def test_a_run_that_asks_for_it_goes_on_after_an_orderly_stop(tmp_path: Path) -> None:
    line = f"echo x >> {tmp_path}/began; while [ ! -e {tmp_path}/gate ]; do sleep 0.05; done"
    put_workflow(
        tmp_path / "data", workflow("stays", f"echo x >> {tmp_path}/once", line, onCrash="resume")
    )
    with process(tmp_path) as served:
        run_id = served.client.post("/api/run", {"workflowId": "stays"}).json()["runId"]
        eventually((tmp_path / "began").exists)
        assert served.end() == 0
    (tmp_path / "gate").touch()
    with process(tmp_path) as again:
        assert again.client.finished(run_id)["status"] == "succeeded"
    assert (tmp_path / "once").read_text() == "x\n"
    assert (tmp_path / "began").read_text() == "x\nx\n"


def test_a_runaway_run_leaves_the_server_responsive(tmp_path: Path) -> None:
    body = {"id": "b", "type": "branch", "config": {"lhs": "a", "op": "==", "rhs": "b"}}
    endless = {
        "id": "endless",
        "name": "endless",
        "nodes": [
            {"id": "start", "type": "start"},
            {"id": "l", "type": "loop", "config": {"infinite": True}, "children": [body]},
        ],
        "edges": [{"source": "start", "target": "l"}],
    }
    put_workflow(tmp_path / "data", endless)
    with process(tmp_path, max_run_node_executions="0") as served:
        run_id = served.client.post("/api/run", {"workflowId": "endless"}).json()["runId"]
        eventually(
            lambda: served.client.get(f"/api/runs/{run_id}").json()["run"]["status"] != "queued"
        )
        for _ in range(20):
            assert served.client.get("/api/workflows").status == 200
        assert served.client.post(f"/api/runs/{run_id}/cancel").status == 202
        assert served.client.finished(run_id)["status"] == "cancelled"


def test_the_server_can_begin_without_importing_the_api() -> None:
    look = (
        "import sys, infloop.web.app, infloop.web.http_server, infloop.application.trigger_firing;"
        "print({'fastapi', 'infloop.web.api', 'pydantic'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_the_first_answers_are_right_although_the_api_is_not_ready(tmp_path: Path) -> None:
    with process(tmp_path) as served:
        assert served.client.get("/healthz").json() == {"status": "ok"}
        assert served.client.post("/api/webhook/nobody-knows-this-address").status == 401
        assert served.client.get("/api/runs").json()["runs"] == []
        page = served.client.get("/metrics").body.decode()
        for route in ("/healthz", "/api/webhook/{trigger_id}", "/api/runs"):
            assert f'route="{route}"' in page
