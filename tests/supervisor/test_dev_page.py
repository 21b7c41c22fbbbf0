"""A condition that opens the page of the application in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.confinement import need_bubblewrap
from support.dev_loop import dev_loop
from support.eventually import eventually
from support.parts import need_program
from support.server import infloop
from support.workflows import edges, node, workflow

pytestmark = pytest.mark.browser

SERVER = """
root = "."
[watch.none]
paths = ["none"]
workflow = "none"
[workflow.none]
steps = [{ action = "log", message = "x" }]
[process.web]
command = ["python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
readiness = { kind = "state_key", key = "url" }
output = { rules = [{ state_key = "url", pattern = "(http://[0-9.:]+)/" }] }
"""
GOOD = "<script>console.log('fine'); console.warn('still fine')</script>"
BAD = """
<img src=missing.png>
<script>console.error('cannot find the cart')</script>
<script>setTimeout(() => { throw new Error('too late') }, 100)</script>
<script>undefinedFunction()</script>
"""
ERRORS = ("cannot find the cart", "undefinedFunction is not defined", "too late", "missing.png")


def opens(name: str, page: str, **more: Any) -> dict[str, Any]:
    dev = {"stateKey": "url", "page": page, "settleMs": 0, "timeoutMs": 0, **more}
    return node(name, "condition", kind="dev", dev=dev)


def test_a_page_must_have_no_errors_on_its_console(tmp_path: Path) -> None:
    need_bubblewrap()
    need_program("chromium-headless-shell")
    (tmp_path / "project").mkdir()
    for name, text in (("good", GOOD), ("bad", BAD)):
        (tmp_path / f"project/{name}.html").write_text(f"<!doctype html><title>x</title>{text}")
    (tmp_path / "project/favicon.ico").touch()
    flow = tmp_path / "flow.json"

    def run(code: int, made: dict[str, Any]) -> str:
        flow.write_text(json.dumps(made))
        where = ("--cwd", str(tmp_path / "project"))
        done = infloop(tmp_path, "run", str(flow), *where, code=code, isolation="sandbox")
        return done.stdout + done.stderr

    with dev_loop(tmp_path, SERVER) as loop:
        port = int(eventually(lambda: loop.state.get("url")).rpartition(":")[2])
        # The fence holds for the browser: it reaches the port that is listed.
        fenced = {"egress": "allowlist", "allowLocal": [port]}
        tell = node("t", "command", cmd='echo "$TAIL" > told', env={"TAIL": "{{b.tail}}"})
        nodes = [node("s", "start"), opens("b", "/bad.html"), tell]
        links = edges("s next b not_met t")
        assert "succeeded" in run(0, workflow(nodes, links, strict=True, **fenced))
        said = (tmp_path / "project/told").read_text()
        assert [error for error in ERRORS if error not in said] == []
        assert "process 'web' is ready. Its last output:\n" in said
        assert '"GET /bad.html HTTP/1.1" 200' in said
        nodes = [node("s", "start"), opens("g", "/good.html")]
        run(0, workflow(nodes, edges("s next g"), strict=True, **fenced))
        nodes = [node("s", "start"), opens("f", "file:///etc/passwd")]
        said = run(1, workflow(nodes, edges("s next f"), strict=True))
        assert "'file:///etc/passwd' is not the URL of a page" in said
