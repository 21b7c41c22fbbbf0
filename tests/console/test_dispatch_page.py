"""Dispatch: triggers made, tried, fired and listed; their secrets never on the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from support.console import console
from support.eventually import eventually
from support.server import TOKEN, Client, process, put_workflow
from support.trigger_requests import ECHO, GITHUB, make, send, signed

pytestmark = pytest.mark.browser

SECRET = "first-0123456789-secret"
ANOTHER = "another-0123456789-secret"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("dispatch")
    put_workflow(folder / "data", ECHO)
    with process(folder, api_token=TOKEN) as server:
        yield server.client


def triggers(client: Client) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in client.get("/api/triggers").json()["triggers"]}


def on_page(page: Page) -> str:
    """Everything that the document holds, the values of its fields too."""
    values = page.locator("input, textarea").evaluate_all("all => all.map(each => each.value)")
    return page.content() + json.dumps(values)


@pytest.mark.claim("I12", "I21", "I25")
def test_a_signed_trigger_is_made_tried_fired_and_listed(client: Client, browser: Browser) -> None:
    with console(browser, client, expected=["400"]) as tabs:
        page = tabs.open("/dispatch")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/dispatch")

        page.get_by_role("button", name="New trigger").click()
        form = page.get_by_role("dialog", name="New trigger")
        form.get_by_label("Name").fill("pushed")
        form.get_by_label("Workflow").select_option("echo")
        form.get_by_label("Sender").select_option("github")
        form.get_by_label("Event").select_option("push")
        form.get_by_label("Signing secret").fill(SECRET)
        form.get_by_label("word").fill("{{body.ref}}")
        form.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name="pushed")).to_be_visible()
        assert SECRET not in on_page(page)
        made = triggers(client)["pushed"]
        assert page.url.endswith(f"/dispatch/{made['mark']}")
        assert made["id"] not in on_page(page)
        page.get_by_role("button", name="Copy").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"{tabs.origin}/api/webhook/{made['id']}"

        page.get_by_label("Payload").fill('{"ref": "main"}')
        page.get_by_role("button", name="Test").click()
        expect(page.get_by_role("status", name="Answer")).to_contain_text("202 queued")
        body = b'{"ref": "next"}'
        assert send(client, made["id"], body, **signed(body, SECRET)).status == 202
        assert send(client, made["id"], body, **signed(body, ANOTHER)).status == 401
        listed = page.get_by_role("table", name="Deliveries")
        expect(listed.get_by_role("row", name="queued 202")).to_have_count(2)
        expect(listed.get_by_role("row", name="refused 401")).to_have_count(1)
        expect(listed.get_by_role("link", name="run").first).to_be_visible()

        page.get_by_label("Signing secret").fill(ANOTHER)
        page.get_by_role("button", name="Set secret").click()
        newly = signed(b"{}", ANOTHER)
        eventually(lambda: send(client, made["id"], b"{}", **newly).status == 202)
        assert ANOTHER not in on_page(page)
        assert send(client, made["id"], b"{}", **signed(b"{}", SECRET)).status == 401
        page.get_by_label("Signing secret").fill("short")
        page.get_by_role("button", name="Set secret").click()
        expect(page.get_by_role("alert")).to_contain_text("at least 16 bytes")
        assert "short" not in json.dumps(
            page.locator("input").evaluate_all("all => all.map(each => each.value)")
        )

        page.get_by_role("button", name="New address").click()
        page.get_by_role("button", name="Replace").click()
        eventually(lambda: triggers(client).get("pushed", made)["id"] != made["id"])
        moved = triggers(client)["pushed"]
        page.wait_for_url(f"**/dispatch/{moved['mark']}")
        assert send(client, made["id"], b"{}", **signed(b"{}", ANOTHER)).status == 401
        assert send(client, moved["id"], b"{ }", **signed(b"{ }", ANOTHER)).status == 202


def test_every_kind_of_trigger_has_its_own_fields(client: Client, browser: Browser) -> None:
    # 404: a question about it may be on its way while it is deleted.
    refusals = ["400", "422", "404"]
    with console(browser, client, token=TOKEN, expected=refusals) as tabs:
        page = tabs.open("/dispatch")
        page.get_by_role("button", name="New trigger").click()
        form = page.get_by_role("dialog", name="New trigger")
        for kind in ("webhook", "schedule", "file"):
            expect(form.get_by_label("Kind").locator("option", has_text=kind)).to_have_count(1)
        form.get_by_label("Kind").select_option("file")
        expect(form.get_by_label("Quiet time (ms)")).to_have_value("500")
        form.get_by_label("Kind").select_option("schedule")
        form.get_by_label("Name").fill("report")
        form.get_by_label("Workflow").select_option("echo")
        form.get_by_label("Cron").fill("not a time")
        form.get_by_role("button", name="Create").click()
        expect(form.get_by_role("alert")).to_contain_text("not a time")
        form.get_by_label("Cron").fill("30 9 * * 1-5")
        form.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name="report")).to_be_visible()
        expect(page.get_by_text("Next", exact=True)).to_be_visible()
        made = triggers(client)["report"]
        assert made["schedule"] == {"cron": "30 9 * * 1-5", "timeZone": "UTC", "misfire": "once"}
        page.get_by_role("button", name="Edit").click()
        form = page.get_by_role("dialog", name="Edit trigger")
        form.get_by_label("Time zone").fill("Europe/Berlin")
        form.get_by_role("button", name="Save").click()
        eventually(lambda: "Berlin" in json.dumps(triggers(client)["report"]["schedule"]))
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("link", name="report")).to_have_count(0)


def test_the_switch_shows_at_once_and_goes_back_when_it_is_refused(
    client: Client, browser: Browser
) -> None:
    name = '<img src=x onerror="alert(1)">\u202etxt'
    made = make(client, **GITHUB, secret=SECRET, name=name)
    with console(browser, client, token=TOKEN, expected=["500"]) as tabs:
        page = tabs.open(f"/dispatch/{made['mark']}")
        expect(page.get_by_role("heading", name=r"\u{202e}txt")).to_be_visible()
        switch = page.get_by_role("switch", name="Enabled")
        expect(switch).to_be_checked()
        held: list[Route] = []

        def hold(route: Route) -> None:
            if route.request.method == "PUT":
                held.append(route)
            else:
                route.continue_()

        page.route("**/api/triggers/*", hold)
        switch.click()
        expect(switch).not_to_be_checked()
        assert client.get(f"/api/triggers/{made['id']}").json()["trigger"]["enabled"]
        held[0].fulfill(status=500, json={"error": "x", "message": "no", "correlationId": "c"})
        expect(switch).to_be_checked()
        page.unroute("**/api/triggers/*")
        switch.click()
        path = f"/api/triggers/{made['id']}"
        eventually(lambda: not client.get(path).json()["trigger"]["enabled"])
        assert client.get(path).json()["trigger"]["secretSet"]
