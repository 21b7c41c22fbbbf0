"""A condition that opens the page of the application in a real browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from support.confinement import need_bubblewrap
from support.dev_loop import dev_loop
from support.eventually import eventually
from support.parts import need_program
from support.runs import world
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


def opens(page: str, timeout_ms: int = 0) -> dict[str, Any]:
    dev = {"stateKey": "url", "page": page, "settleMs": 0, "timeoutMs": timeout_ms}
    return node("c", "condition", kind="dev", dev=dev)


async def test_a_page_must_have_no_errors_on_its_console(tmp_path: Path) -> None:
    need_bubblewrap()
    need_program("chromium-headless-shell")
    (tmp_path / "project").mkdir()
    for name, text in (("good", GOOD), ("bad", BAD)):
        (tmp_path / f"project/{name}.html").write_text(f"<!doctype html><title>x</title>{text}")
    (tmp_path / "project/favicon.ico").touch()
    with dev_loop(tmp_path, SERVER) as loop:
        url = eventually(lambda: loop.state.get("url"))
        loop.logged("process web is ready")
        # The fence holds for the browser: it reaches the port that is listed.
        fence: dict[str, Any] = {"egress": "allowlist", "allowLocal": [int(url.split(":")[2])]}
        async with world(tmp_path, isolation="sandbox", snapshots=False) as here:
            here.folder = loop.root

            async def outputs(page: str) -> dict[str, Any]:
                steps, links = [node("s", "start"), opens(page)], edges("s next c")
                ended = await here.run(workflow(steps, links, **fence))
                found: dict[str, Any] = ended.scope["c"]
                return found

            bad = await outputs("/bad.html")
            assert bad["met"] is False
            assert [error for error in ERRORS if error not in bad["detail"]] == []
            assert bad["tail"].startswith(bad["detail"])
            assert "process 'web' is ready. Its last output:\n" in bad["tail"]
            assert '"GET /bad.html HTTP/1.1" 200' in bad["tail"]
            assert (await outputs("/good.html"))["met"] is True
            assert "is not the URL of a page" in (await outputs("file:///etc/passwd"))["detail"]


async def test_what_a_page_needs_is_named_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "empty").mkdir()
    with dev_loop(tmp_path, SERVER) as loop:
        eventually(lambda: loop.state.get("url"))
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        async with world(tmp_path, isolation="host", snapshots=False) as here:
            here.folder = loop.root

            async def error() -> str:
                steps, links = [node("s", "start"), opens("/", 30_000)], edges("s next c")
                ended = await here.run(workflow(steps, links))
                assert ended.status == "failed", ended.scope
                return str(ended.result.error)

            assert "no browser is installed: install chromium-headless-shell" in await error()
            monkeypatch.setitem(sys.modules, "playwright", None)  # as if it were not installed
            assert "not installed: pip install 'infloop[browser]'" in await error()
