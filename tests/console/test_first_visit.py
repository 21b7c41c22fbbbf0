"""The first visit to the console: the one journey in a browser that `make test` makes too."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from support.console import console
from support.server import process


def test_the_first_visit_starts_an_example_that_ends_green(
    tmp_path: Path, browser: Browser
) -> None:
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/workflows")
        expect(page.get_by_role("region", name="Example")).to_be_visible()
        page.goto(tabs.origin + "/")
        page.get_by_role("button", name="Run the example").click()
        page.wait_for_url("**/r/*")
        run_id = page.url.rpartition("/")[2]
        assert server.client.finished(run_id)["status"] == "succeeded"
        expect(page.get_by_role("main").get_by_text("succeeded").first).to_be_visible()
        page.goto(tabs.origin + "/")
        expect(page.get_by_role("row", name="succeeded")).to_have_count(1)
        expect(page.get_by_role("button", name="Run the example")).to_have_count(0)
        page.goto(tabs.origin + "/workflows")
        expect(page.get_by_role("region", name="Example")).to_have_count(0)
