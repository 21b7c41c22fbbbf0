"""Connections: machines with model servers, and the providers of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, process

pytestmark = pytest.mark.browser

KEY = "a-key-that-nobody-sees"


def test_a_machine_is_added_changed_and_deleted(tmp_path: Path, browser: Browser) -> None:
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        client = server.client
        page = tabs.open("/connections")
        page.get_by_role("button", name="Add").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Name").fill("gpu-box")
        form.get_by_label("Host").fill("127.0.0.1")
        form.get_by_label("Ports").fill("not a port")
        form.get_by_label("Access token").fill(KEY)
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("does not begin with a port")
        form.get_by_label("Ports").fill("8642 my-model")
        form.get_by_label("Access token").fill(KEY)
        form.get_by_role("button", name="Save").click()
        row = page.get_by_role("row", name="gpu-box, http://127.0.0.1")
        expect(row).to_contain_text("8642 my-model")
        expect(row).to_contain_text("token set")
        assert KEY not in page.content()
        page.get_by_role("button", name="Edit gpu-box").click()
        form.get_by_label("Ports").fill("8642 my-model\n8643 other")
        form.get_by_role("button", name="Save").click()
        expect(row).to_contain_text("8643 other")
        expect(row).to_contain_text("token set")
        page.get_by_role("button", name="Delete gpu-box").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(row).to_have_count(0)
        assert client.get("/api/providers/hermes-local").json()["connections"] == []
        providers = page.get_by_role("table", name="Providers")
        expect(providers.get_by_role("row", name="Claude Code")).to_be_visible()
