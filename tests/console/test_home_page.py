"""Home: what waits for a person, what runs, and what ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.eventually import eventually
from support.server import TOKEN, process, put_workflow, workflow

pytestmark = pytest.mark.browser

ASKING = {
    "id": "tidy",
    "name": "tidy",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "clean", "type": "approval", "config": {"question": "may I delete build/?"}},
    ],
    "edges": [{"source": "start", "target": "clean"}],
}


def test_home_shows_what_waits_what_runs_and_what_ended(tmp_path: Path, browser: Browser) -> None:
    put_workflow(tmp_path / "data", ASKING)
    put_workflow(tmp_path / "data", workflow("deploy", "echo 2 failed >&2; exit 1", strict=True))
    put_workflow(tmp_path / "data", workflow("long", "sleep 600"))
    put_workflow(tmp_path / "data", workflow("quick", "true"))
    with (
        process(tmp_path, api_token=TOKEN, max_run_cost_usd="5") as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        client = server.client
        for name in ("tidy", "long"):
            client.post("/api/run", {"workflowId": name})
        eventually(lambda: client.get("/api/approvals").json()["approvals"])
        client.run("quick")
        page = tabs.open("/")
        asked = page.get_by_role("region", name="Waits for you")
        expect(asked).to_contain_text("may I delete build/?")
        running = page.get_by_role("table", name="Running")
        row = running.get_by_role("row", name="long")
        expect(row).to_contain_text("c1")
        expect(row).to_contain_text("sign")
        expect(row).to_contain_text("/$5.00")
        expect(running.get_by_role("row", name="tidy")).to_have_accessible_name(
            re.compile("waits for you")
        )
        ended = page.get_by_role("table", name="Just ended")
        expect(ended.get_by_role("row", name="quick")).to_have_count(1)
        expect(page.get_by_role("region", name="Today")).to_contain_text("1 succeeded")
        expect(page).to_have_title("(1) infloop")
        page.get_by_role("button", name="Run quick").click()
        page.wait_for_url("**/r/*")
        client.finished(page.url.rpartition("/")[2])
        page.go_back()
        expect(ended.get_by_role("row", name="quick")).to_have_count(2)
        page.get_by_role("link", name="Review").click()
        expect(page.get_by_role("button", name="Allow once")).to_be_enabled()


def test_a_workflow_is_begun_or_imported_from_home(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/")
        page.get_by_role("button", name="Import").click()
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        page.get_by_role("button", name="New workflow").click()
        page.get_by_role("dialog").get_by_label("Name").fill("Nightly")
        page.get_by_role("button", name="Create").click()
        page.wait_for_url("**/w/nightly")
