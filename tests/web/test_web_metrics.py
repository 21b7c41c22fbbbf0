"""Figures on a port of their own: for this machine, without a token, and nothing else."""

from __future__ import annotations

import socket
from pathlib import Path

from support.server import TOKEN, Client, process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def test_figures_are_answered_on_their_own_port_without_a_token(tmp_path: Path) -> None:
    port = free_port()
    with process(tmp_path, api_token=TOKEN, metrics_port=str(port)) as served:
        there = Client(port)
        answer = there.get("/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"infloop_queue_depth 0.0" in answer.body
        assert Client(served.client.port).get("/metrics").status == 401
        assert served.client.get("/metrics").status == 200
        for path in ("/", "/api/runs", "/api/openapi.json", "/healthz", "/login"):
            assert there.get(path).status == 404
        assert there.get("/metrics", host="attacker.example").status == 403
        assert there.get("/metrics", origin="http://attacker.example").status == 403
        assert there.post("/metrics", {}).status == 405
        assert served.end() == 0
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody is left there


def test_a_port_for_figures_that_is_in_use_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(tmp_path, metrics_port=str(port)) as served:
            assert served.process.wait(30) == 2
            assert "choose another INFLOOP_METRICS_PORT" in (tmp_path / "stderr").read_text()
