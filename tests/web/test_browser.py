"""The server's pages in a real browser, which sends what no test client thinks of sending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from support.parts import need_program
from support.server import TOKEN, process, put_workflow
from support.trigger_requests import ECHO, GITHUB, SECRET, make, send, signed

pytestmark = pytest.mark.browser


@pytest.fixture
def page() -> Iterator[Page]:
    """A fresh page of a browser without a sandbox, which as root it must be; it sees only us."""
    chromium = need_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.mark.claim("I12", "I21", "I25")
def test_a_browser_logs_in_sees_to_a_trigger_and_logs_out(tmp_path: Path, page: Page) -> None:
    put_workflow(tmp_path / "data", ECHO)
    with process(tmp_path, api_token=TOKEN) as server:
        trigger = make(server.client, **GITHUB, secret=SECRET)
        page.goto(f"http://127.0.0.1:{server.client.port}/dispatch")
        page.get_by_label("Token").fill("not the token")
        page.get_by_role("button", name="Log in").click()
        assert page.get_by_text("That is not the token.").is_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Dispatch").click()
        assert page.get_by_text(f"/api/webhook/{trigger['id']}").is_visible()
        page.get_by_role("button", name="New address").click()
        assert page.get_by_text(f"/api/webhook/{trigger['id']}").count() == 0
        assert send(server.client, trigger["id"]).status == 401
        assert page.get_by_text("Signing secret (set)").is_visible()
        page.get_by_label("Signing secret").fill("another-0123456789")
        page.get_by_role("button", name="Set secret").click()
        (now,) = server.client.get("/api/triggers").json()["triggers"]
        assert send(server.client, now["id"], b"{}", **signed(b"{}")).status == 401
        newly = signed(b"{}", "another-0123456789")
        assert send(server.client, now["id"], b"{}", **newly).status == 202
        page.goto(f"http://127.0.0.1:{server.client.port}/")
        page.get_by_role("button", name="Log out").click()
        assert page.url.endswith("/login")
