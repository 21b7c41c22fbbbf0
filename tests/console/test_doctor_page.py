"""Doctor: the levels of isolation, what to change, and the proof by attack."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, process

pytestmark = pytest.mark.browser


def test_levels_checks_and_an_attack_that_has_begun(tmp_path: Path, browser: Browser) -> None:
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        report = server.client.get("/api/doctor").json()
        page = tabs.open("/doctor")
        for level in report["levels"]:
            word = "holds" if level["holds"] else "does not hold"
            expect(page.get_by_text(f"{level['level']} {word}", exact=True)).to_be_visible()
        wrong = [each for each in report["checks"] if each["status"] != "ok"]
        first = page.get_by_role("table", name="Checks").get_by_role("row").first
        assert any(each["id"] in (first.text_content() or "") for each in wrong)
        expect(first).to_contain_text("→")
        page.get_by_role("combobox", name="Level").select_option("host")
        page.get_by_role("button", name="Attack").click()
        expect(page.get_by_text("attempts at host")).to_be_visible()
        expect(page.get_by_role("button", name="Attack")).to_be_disabled()


def test_a_server_without_a_token_starts_no_attack(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client, expected=["403"]) as tabs:
        page = tabs.open("/doctor")
        page.get_by_role("button", name="Attack").click()
        expect(page.get_by_text("infloop doctor --attack")).to_be_visible()
