"""Settings: each value with its source; the theme and keys of this browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, process

pytestmark = pytest.mark.browser


def test_settings_show_their_source_and_the_browser_keeps_its_own(
    tmp_path: Path, browser: Browser
) -> None:
    with (
        process(tmp_path, api_token=TOKEN, max_run_cost_usd="5") as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        page = tabs.open("/settings")
        cap = page.get_by_role("row", name="INFLOOP_MAX_RUN_COST_USD, 5")
        expect(cap).to_contain_text("environment")
        token = page.get_by_role("row", name="INFLOOP_API_TOKEN, set")
        expect(token).to_contain_text("environment")
        assert TOKEN not in page.content()
        page.get_by_label("Find a setting").fill("cost_window")
        expect(page.get_by_role("row")).to_have_count(1)
        expect(page.get_by_role("row")).to_contain_text("default")

        page.get_by_label("Theme").select_option("dark")
        page.get_by_label("Keys without Ctrl and Alt").uncheck()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_label("Keys without Ctrl and Alt")).not_to_be_checked()
        page.get_by_role("heading", level=1).click()
        page.keyboard.press("g")
        page.keyboard.press("h")
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Find")).to_be_visible()
        assert page.url.endswith("/settings")
