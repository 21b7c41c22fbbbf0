"""Audit: who did what, in pages, and the proof that nothing was changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, process, workflow

pytestmark = pytest.mark.browser


def test_entries_are_filtered_paged_and_verified(tmp_path: Path, browser: Browser) -> None:
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        client = server.client
        for number in range(101):
            made = client.post("/api/workflows", workflow(f"w{number}", "true"))
            assert made.status == 201
        last = client.get("/api/audit?limit=1").json()["entries"][0]["correlationId"]
        page = tabs.open("/audit")
        rows = page.get_by_role("table", name="Audit log").get_by_role("row")
        expect(rows).to_have_count(100)
        page.get_by_role("button", name="Older entries").click()
        expect(rows.last).to_contain_text("server.started")
        assert rows.count() > 101
        expect(page.get_by_role("button", name="Older entries")).to_have_count(0)

        page.get_by_label("Event").select_option("login")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("browser-session")
        page.get_by_label("Event").select_option("")
        page.get_by_label("Correlation id").fill(last)
        expect(rows).to_have_count(1)
        page.reload()
        expect(page.get_by_label("Correlation id")).to_have_value(last)
        expect(rows).to_have_count(1)
        rows.first.get_by_text("w100").click()
        expect(rows.first.get_by_text(last, exact=True)).to_be_visible()

        page.get_by_role("button", name="Verify").click()
        chain = page.get_by_role("status", name="Chain")
        expect(chain).to_contain_text("entries verified")
        (log,) = (tmp_path / "data/audit").glob("*.jsonl")
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join([*lines[:3], lines[3].replace("w", "v"), *lines[4:]]))
        page.get_by_role("button", name="Verify").click()
        expect(chain).to_contain_text("line 4")
