"""The frame around all pages: logging in, navigation, keys, and what the server sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import TOKEN, Client, process

pytestmark = pytest.mark.browser


def test_a_login_leads_back_to_the_page_that_was_wanted(tmp_path: Path, browser: Browser) -> None:
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, expected=["401"]) as tabs,
    ):
        page = tabs.open("/runs?status=failed")
        page.get_by_label("Token").fill("not the token")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("That is not the token.")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/runs?status=failed")
        page.goto(tabs.origin + "/settings")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(tabs.origin + "/")
        expect(page.get_by_label("Token")).to_be_visible()


def test_the_palette_and_keys_go_to_every_page(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/")
        main = page.get_by_role("navigation", name="Main")
        names = main.get_by_role("link").all_inner_texts()
        assert {"Home", "Runs", "Approvals", "Dispatch", "Doctor"} <= {
            n.split("\n")[-1] for n in names
        }
        page.keyboard.press("Control+k")
        page.get_by_role("combobox").fill("doct")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Doctor")
        page.keyboard.press("g")
        page.keyboard.press("r")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


HOSTILE = [
    "//evil.example/",
    "https://evil.example/",
    "/\\evil.example",
    "/api/runs",
    "/runs\r\nset-cookie: a=b",
    "javascript:alert(1)",
    "/login?next=/runs",
    "",
]


@pytest.mark.parametrize("wanted", HOSTILE)
def test_a_login_never_leads_away(server_with_token: Client, wanted: str) -> None:
    from urllib.parse import urlencode

    body = urlencode({"token": TOKEN, "next": wanted}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = Client(server_with_token.port).ask("POST", "/login", body=body, headers=headers)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_a_link_on_another_site_opens_the_console_without_its_content(
    server_with_token: Client,
) -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    foreign["sec-fetch-dest"] = "document"
    bare = Client(server_with_token.port)
    shell = bare.ask("GET", "/r/some-run?step=a", headers=foreign)
    assert shell.status == 200
    assert b"some-run" not in shell.body
    assert bare.ask("GET", "/api/runs", headers=foreign).status == 403
    own = bare.ask("GET", "/r/some-run?step=a")
    assert (own.status, own.headers["location"]) == (303, "/login?next=%2Fr%2Fsome-run%3Fstep%3Da")


def test_assets_are_kept_for_good_and_no_name_is_a_path(server_with_token: Client) -> None:
    bare = Client(server_with_token.port)
    page = server_with_token.get("/")
    name = page.body.decode().split('src="/assets/')[1].split('"')[0]
    asset = bare.ask("GET", f"/assets/{name}", headers={"accept-encoding": "gzip"})
    assert asset.status == 200
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert asset.headers["content-encoding"] == "gzip"
    for wrong in ("nothing.js", "..%2findex.html", "%2e%2e%2f%2e%2e%2fapp.py", ".."):
        assert bare.get(f"/assets/{wrong}").status == 404, wrong
