"""Queue: what waits, and taking it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from support.console import console
from support.eventually import eventually
from support.server import process, put_workflow, workflow

pytestmark = pytest.mark.browser


def test_a_waiting_run_leaves_the_list_at_once_and_comes_back_if_it_cannot(
    tmp_path: Path, browser: Browser
) -> None:
    put_workflow(tmp_path / "data", workflow("long", "sleep 600"))
    put_workflow(tmp_path / "data", workflow("next", "true"))
    with (
        process(tmp_path, max_concurrent_runs="1") as server,
        console(browser, server.client, expected=["500"]) as tabs,
    ):
        client = server.client
        for name in ("long", "next", "next"):
            client.post("/api/run", {"workflowId": name})
        page = tabs.open("/queue")
        rows = page.get_by_role("table", name="Queue").get_by_role("row")
        expect(rows).to_have_count(2)
        held: list[Route] = []
        page.route("**/api/triggers/queue/*", lambda route: held.append(route))
        first = rows.first
        name = first.get_attribute("aria-label") or ""
        first.get_by_role("button", name="Remove").click()
        expect(page.get_by_role("row", name=name)).to_have_count(0)
        assert client.get("/api/triggers/queue").json()["size"] == 2
        held[0].fulfill(status=500, json={"error": "x", "message": "no room", "correlationId": "c"})
        expect(page.get_by_role("row", name=name)).to_have_count(1)
        expect(page.get_by_text("no room (c)")).to_be_visible()
        page.unroute("**/api/triggers/queue/*")
        page.get_by_role("row", name=name).get_by_role("button", name="Remove").click()
        expect(rows).to_have_count(1)
        expect(page.get_by_role("heading", name="1 run waits")).to_be_visible()
        eventually(lambda: client.get("/api/triggers/queue").json()["size"] == 1)
