"""Costs: what was spent, by whom, and what has no price."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.runs import scripted
from support.server import process, put_workflow

pytestmark = pytest.mark.browser


def test_costs_by_workflow_provider_and_run_with_what_has_no_price(
    tmp_path: Path, browser: Browser
) -> None:
    tokens = {"tokens": {"input": 1_000_000, "output": 200_000}}
    scripted(tmp_path / "data/providers", "dear", {"do": [{"cost": 4.1}, tokens]})
    scripted(tmp_path / "data/providers", "silent", {"do": [{"text": "hm"}]})
    for name in ("dear", "silent"):
        config = {"providerId": name, "prompt": "go"}
        nodes = [{"id": "s", "type": "start"}, {"id": "a", "type": "agent", "config": config}]
        edges = [{"source": "s", "target": "a"}]
        content = {"id": name, "name": name, "nodes": nodes, "edges": edges}
        put_workflow(tmp_path / "data", content)
    limits = {"max_total_cost_usd": "20", "cost_window": "day"}
    with process(tmp_path, **limits) as server, console(browser, server.client) as tabs:
        run = server.client.run("dear")["runId"]
        server.client.run("silent")
        page = tabs.open("/costs")
        expect(page.get_by_text("$4.10 or more")).to_be_visible()
        expect(page.get_by_text("2 calls, 1 without a price")).to_be_visible()
        expect(page.get_by_role("meter", name="$4.10 of $20.00 a day")).to_be_visible()
        expect(page.get_by_role("img", name="Cost per day")).to_be_visible()
        page.get_by_role("combobox", name="By").select_option("workflow")
        row = page.get_by_role("row", name="dear, $4.10")
        expect(row).to_contain_text("1.2M tok")
        expect(page.get_by_role("row", name="silent")).to_contain_text("1 without a price")
        page.reload()
        expect(row).to_be_visible()
        page.get_by_role("combobox", name="By").select_option("run")
        page.get_by_role("link", name=run[:8]).click()
        page.wait_for_url(f"**/r/{run}")
