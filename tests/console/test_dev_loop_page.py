"""Dev loop: the processes of a development loop, their logs, and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.dev_loop import dev_loop
from support.server import TOKEN, process

pytestmark = pytest.mark.browser

LOOP = """
root = "."
startup_workflows = ["startup"]
[watch.sources]
paths = ["*.py"]
[process.api]
command = ["sh", "-c", "echo listening as $$; exec sleep 600"]
[process.web]
command = ["sh", "-c", "printf 'EADDRINUSE \\\\033[31m5173\\\\n'; exit 1"]
restart = "never"
[workflow.sources]
steps = [{ action = "restart_process", process = "api" }]
[workflow.startup]
steps = [
  { action = "start_process", process = "api" },
  { action = "start_process", process = "web" },
]
"""


def test_processes_are_shown_with_their_logs_and_restarted(
    tmp_path: Path, browser: Browser
) -> None:
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN, expected=["404"]) as tabs,
    ):
        page = tabs.open("/dev")
        expect(page.get_by_text("No development loop runs.")).to_be_visible()
        with dev_loop(tmp_path, LOOP, api_token=TOKEN) as loop:
            loop.ready()
            expect(page.get_by_role("link", name="api")).to_be_visible()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            log = page.get_by_role("region", name="Log")
            expect(log).to_contain_text("listening as")
            before = log.inner_text()
            page.get_by_role("button", name="Restart api").click()
            expect(page.get_by_text("a restart was requested")).to_be_visible()
            expect(log).not_to_have_text(before, use_inner_text=True)
            assert log.inner_text().count("listening as") == 2
            assert not [url for url in asked if url.endswith("/log")], "logs are streamed"
            page.get_by_role("link", name="web").click()
            expect(log).to_contain_text("EADDRINUSE 5173")
            expect(page.get_by_text("exit status: 1")).to_be_visible()
