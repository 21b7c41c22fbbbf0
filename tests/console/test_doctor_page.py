"""Doctor: the levels of isolation, what to change, and the proof by attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, process

pytestmark = pytest.mark.browser


def test_levels_checks_and_an_attack_with_its_findings(tmp_path: Path, browser: Browser) -> None:
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
        expect(page.get_by_text("attacking host")).to_be_visible()
        expect(page.get_by_role("button", name="Attack")).to_be_disabled()
        expect(page.get_by_role("progressbar", name="Attempts made")).to_be_visible()
        # The battery takes a minute: what it found is told at once.
        answer = server.client.get("/api/doctor/attack").json()
        findings = [finding("read_secret", reached=True), finding("connect_unix", reached=False)]
        report = {"level": "host", "holds": False, "error": "", "findings": findings}
        done = {"state": "done", "finishedAt": 1, "made": 2, "report": report}
        answer["attack"] |= done
        tabs.context.route("**/api/doctor/attack", lambda route: route.fulfill(json=answer))
        rows = page.get_by_role("table", name="Attempts").get_by_role("row")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("broken")
        expect(rows.first).to_contain_text("Tries read_secret.")
        expect(rows.first).to_contain_text("reached: yes")
        expect(page.get_by_role("row", name="connect_unix, kept")).to_contain_text("promised: no")
        expect(page.get_by_text("a promise was broken, 2 attempts")).to_be_visible()


def finding(attempt: str, *, reached: bool) -> dict[str, Any]:
    """An attempt on something that the level promised to prevent."""
    return {
        "attempt": attempt,
        "what": f"Tries {attempt}.",
        "promise": "files",
        "promised": True,
        "reached": reached,
        "holds": not reached,
        "detail": "",
    }


def test_a_server_without_a_token_starts_no_attack(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client, expected=["403"]) as tabs:
        page = tabs.open("/doctor")
        page.get_by_role("button", name="Attack").click()
        expect(page.get_by_text("infloop doctor --attack")).to_be_visible()
