"""Workers: the processes that drive runs, as they come, work and die."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from support.cluster import worker
from support.console import console
from support.server import process, put_workflow, workflow

pytestmark = pytest.mark.browser

PHONE = (390, 844)


def test_a_worker_appears_with_its_labels_and_load_and_is_gone_when_it_stops(
    tmp_path: Path, browser: Browser
) -> None:
    put_workflow(tmp_path / "data", workflow("long", "sleep 600", requires=["gpu"]))
    with (
        process(tmp_path) as server,
        console(browser, server.client, size=PHONE) as tabs,
    ):
        page = tabs.open("/workers")
        expect(page.get_by_role("heading", name="1 process", exact=True)).to_be_visible()
        expect(page.get_by_role("row", name="serve")).to_contain_text("alive")
        expect(page.get_by_text("One process drives all runs")).to_be_visible()
        assert server.client.post("/api/run", {"workflowId": "long"}).status == 202
        page.get_by_role("link", name="1 run waits").click()
        waiting = page.get_by_role("row", name="long")
        expect(waiting).to_contain_text("no worker has the label gpu")
        page.go_back()
        with worker(tmp_path, "gpu", "--label", "gpu", "--capacity", "2") as made:
            row = page.get_by_role("row", name=f"worker {made.id}, alive")
            expect(row).to_contain_text("gpu")
            expect(row).to_contain_text("heard ")
            expect(page.get_by_text("One process drives all runs")).to_have_count(0)
            expect(row).to_contain_text("1/2 runs")
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE[0], "the page scrolls sideways"
            assert made.end(signal.SIGTERM) == 0
        expect(page.get_by_role("row")).to_have_count(1)
        expect(page.get_by_role("heading", name="1 process", exact=True)).to_be_visible()


def test_what_is_wrong_comes_first_and_is_said_in_words(tmp_path: Path, browser: Browser) -> None:
    states = ("alive", "frozen", "dead")

    def with_others(route: Route) -> None:
        """Add processes that a test would have to wait for until they are taken for dead."""
        answer = route.fetch().json()
        (first,) = answer["workers"]
        made = [first | {"id": f"i-{state}", "state": state, "host": state} for state in states]
        route.fulfill(json={"workers": made})

    def held(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"held": "the budget of today is spent"})

    with process(tmp_path) as server, console(browser, server.client) as tabs:
        tabs.context.route("**/api/workers", with_others)
        page = tabs.open("/workers")
        rows = page.get_by_role("table", name="Workers").get_by_role("row")
        expect(rows).to_have_count(3)
        names = [row.get_attribute("aria-label") for row in rows.all()]
        assert names == ["serve i-dead, dead", "serve i-frozen, frozen", "serve i-alive, alive"]
        tabs.context.route("**/api/triggers/queue", held)
        expect(page.get_by_text("No run is started: the budget of today is spent")).to_be_visible()
        expect(page.get_by_role("row", name="serve i-alive, held")).to_be_visible()
