"""Who else is on this machine: without a token, another user gets nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infloop.sandbox.kernel import socket_owner
from infloop.sandbox.kernel.socket_owner import SocketOwners
from infloop.web.exposure import Exposure, decide_exposure, refuse_user
from support.eventually import eventually
from support.parts import ruled_out_if
from support.server import TOKEN, Process, process, put_workflow, workflow
from support.thorough import amount

NOBODY = 65534
another_user = ruled_out_if(os.geteuid() != 0, "only root can become another user")

# Asks with the standard library alone: another user cannot read our packages.
ASK = """
import http.client, json, sys
port, method, path, body, token = json.loads(sys.argv[1])
headers = {"content-type": "application/json"}
if token:
    headers["authorization"] = "Bearer " + token
link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
link.request(method, path, body, headers)
answer = link.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""

# Sends a request and goes away before it can be asked who it was.
GO_AWAY = """
import json, os, socket, struct, sys
port, request, way = json.loads(sys.argv[1])
link = socket.create_connection(("127.0.0.1", port), timeout=30)
if way == "reset":
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
link.sendall(request.encode())
if way == "half":
    link.shutdown(socket.SHUT_WR)
    link.recv(1000)
if way != "exit":
    link.close()
os._exit(0)
"""


def as_nobody(program: str, *arguments: Any) -> str:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    assert python is not None
    done = subprocess.run(
        [python, "-I", "-c", program, json.dumps(arguments)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked_by_nobody(
    port: int, path: str, *, body: Any = None, method: str = "", token: str = ""
) -> tuple[int, str]:
    text = None if body is None else json.dumps(body)
    verb = method or ("GET" if body is None else "POST")
    status, said = json.loads(as_nobody(ASK, port, verb, path, text, token))
    return status, said


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server as it is without any setting."""
    folder = tmp_path_factory.mktemp("open")
    put_workflow(folder / "data", workflow("tiny", "true"))
    with process(folder) as running:
        yield running


REFUSED = (
    ("GET", "/"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/dispatch"),
    ("GET", "/page.css"),
    ("GET", "/api/workflows"),
    ("GET", "/api/runs"),
    ("GET", "/api/events"),
    ("GET", "/api/audit"),
    ("GET", "/api/openapi.json"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("GET", "/healthz/"),
    ("POST", "/api/webhook/a/b"),
    ("POST", "/api/run"),
    ("POST", "/api/mcp"),
    ("PUT", "/api/workflows/tiny"),
    ("DELETE", "/api/workflows/tiny"),
    ("OPTIONS", "/api/run"),
)


@another_user
@pytest.mark.parametrize(("method", "path"), REFUSED)
def test_another_user_gets_nothing_and_is_told_why(served: Process, method: str, path: str) -> None:
    status, said = asked_by_nobody(served.client.port, path, method=method)
    assert status == 403
    message = json.loads(said)["message"]
    assert f"user {NOBODY}" in message
    assert "--token auto" in message
    assert "INFLOOP_API_TOKEN" in message
    assert "proxy" in message


@another_user
def test_another_user_starts_no_run(served: Process) -> None:
    before = served.client.get("/api/runs").json()["runs"]
    status, _ = asked_by_nobody(served.client.port, "/api/run", body={"workflowId": "tiny"})
    assert status == 403
    assert served.client.get("/api/runs").json()["runs"] == before


@another_user
@pytest.mark.thorough
@pytest.mark.parametrize("way", ["close", "reset", "half", "exit"])
def test_a_user_who_goes_away_at_once_is_not_taken_for_root(served: Process, way: str) -> None:
    content = json.dumps(workflow(f"left-by-{way}", "true"))
    request = (
        f"PUT /api/workflows/left-by-{way} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}"
    )
    for _ in range(amount(6, thorough=30)):
        as_nobody(GO_AWAY, served.client.port, request, way)
    assert served.client.get(f"/api/workflows/left-by-{way}").status == 404


@another_user
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("POST", "/api/webhook/aaaaaaaaaaaaaaaaaaaaaa", 401),
    ],
)
def test_health_and_webhooks_are_answered_to_any_user(
    served: Process, method: str, path: str, status: int
) -> None:
    answered, _ = asked_by_nobody(served.client.port, path, method=method)
    assert answered == status


@another_user
def test_a_webhook_of_another_user_with_its_own_credential_starts_its_run(served: Process) -> None:
    made = served.client.post(
        "/api/triggers", {"name": "t", "enabled": True, "workflowId": "tiny", "inputs": {}}
    )
    address = f"/api/webhook/{made.json()['trigger']['id']}"
    assert asked_by_nobody(served.client.port, address, body={})[0] == 202
    assert eventually(lambda: served.client.get("/api/runs").json()["runs"])


@another_user
def test_with_the_token_another_user_is_a_caller_like_any_other(tmp_path: Path) -> None:
    with process(tmp_path, api_token=TOKEN) as closed:
        port = closed.client.port
        assert asked_by_nobody(port, "/api/runs")[0] == 401
        assert asked_by_nobody(port, "/login")[0] == 200
        assert asked_by_nobody(port, "/api/runs", token=TOKEN)[0] == 200


@another_user
def test_the_metrics_port_is_for_every_user_and_only_for_metrics(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with process(tmp_path, metrics_port=str(port)) as running:
        assert running.client.get("/healthz").status == 200
        assert asked_by_nobody(port, "/metrics")[0] == 200
        assert asked_by_nobody(port, "/api/runs")[0] == 404


@another_user
def test_an_operator_who_insists_lets_every_user_in(tmp_path: Path) -> None:
    with process(tmp_path, allow_insecure="1") as running:
        assert asked_by_nobody(running.client.port, "/api/runs")[0] == 200


@pytest.mark.parametrize(
    ("peer", "own", "refused"),
    [
        (1000, 1000, False),
        (0, 1000, False),
        (0, 0, False),
        (1001, 1000, True),
        (1000, 0, True),
        (NOBODY, 1000, True),
        (None, 1000, True),
        (None, 0, True),
        (2**32 - 1, 1000, True),
    ],
)
def test_without_a_token_only_the_servers_user_and_root_are_let_in(
    peer: int | None, own: int, refused: bool
) -> None:
    assert bool(refuse_user(peer, own, Exposure())) is refused
    assert not refuse_user(peer, own, Exposure(token=TOKEN))
    assert not refuse_user(peer, own, decide_exposure("127.0.0.1", "", allow_insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("tables", [False, True], ids=["sock_diag", "tables"])
def test_the_user_of_a_connection_is_known_while_its_process_holds_it(
    host: str, tables: bool
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        closing(SocketOwners()) as owners,
        socket.create_server((host, 0), family=family) as listening,
    ):
        find = socket_owner._in_tables if tables else owners.find
        client = socket.create_connection(listening.getsockname()[:2])
        accepted, _ = listening.accept()
        with accepted:
            peer, own = accepted.getpeername()[:2], accepted.getsockname()[:2]
            assert find(peer, own) == os.geteuid()
            assert find((peer[0], own[1]), own) is None  # the listening socket is no peer
            assert find((peer[0], 1), own) is None
            assert find(peer, (own[0], 1)) is None
            client.shutdown(socket.SHUT_WR)
            assert find(peer, own) == os.geteuid()
            client.close()
            assert find(peer, own) is None


def test_a_kernel_that_answers_no_questions_is_read_from_its_tables() -> None:
    with closing(SocketOwners()) as owners, socket.create_server(("127.0.0.1", 0)) as listening:
        owners.close()
        with socket.create_connection(listening.getsockname()):
            accepted, peer = listening.accept()
            with accepted:
                assert owners.find(peer, accepted.getsockname()) == os.geteuid()


def test_a_reset_connection_has_no_user() -> None:
    with closing(SocketOwners()) as owners, socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, peer = listening.accept()
        with accepted:
            own = accepted.getsockname()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            assert owners.find(peer, own) is None


def test_the_servers_user_is_let_in_over_ipv6_too(tmp_path: Path) -> None:
    with (
        process(tmp_path, "--host", "::1") as running,
        socket.create_connection(("::1", running.client.port), timeout=30) as connection,
    ):
        head = f"GET /api/runs HTTP/1.1\r\nHost: [::1]:{running.client.port}\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
