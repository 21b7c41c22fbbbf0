"""Every page, light and dark, on a desk and on a phone: nothing keeps anyone out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, ViewportSize, expect

from support.axe import violations
from support.console import Console, console
from support.eventually import eventually
from support.server import process, put_workflow, workflow
from support.thorough import FACTOR

pytestmark = pytest.mark.browser

LINK = """path => {
  history.pushState(null, "", path)
  dispatchEvent(new PopStateEvent("popstate"))
}"""
DESK, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)
LOOKS = [(DESK, "light"), (PHONE, "dark")]
if FACTOR:
    LOOKS += [(PHONE, "light"), (DESK, "dark")]
QUESTION: dict[str, Any] = {
    "id": "asks",
    "name": "Asks",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "may", "type": "approval", "config": {"question": "Delete build/?"}},
        {"id": "end", "type": "end"},
    ],
    "edges": [{"source": "start", "target": "may"}, {"source": "may", "target": "end"}],
}
PAGES = {  # with what their headings contain
    "home": ("/", "Home"),
    "workflows": ("/workflows", "Workflows"),
    "canvas": ("/w/tiny", "tiny"),
    "node": ("/w/tiny?node=c1", "tiny"),
    "text": ("/w/tiny?view=split", "tiny"),
    "runs": ("/runs", "Runs"),
    "run": ("/r/{run}", "tiny"),
    "graph": ("/r/{run}?view=graph&tab=events", "tiny"),
    "changes": ("/r/{run}/changes", "Changes"),
    "compare": ("/compare/{run}/{other}", "Compare"),
    "queue": ("/queue", "Queue"),
    "workers": ("/workers", "Workers"),
    "approval": ("/approvals/{approval}", "Approvals"),
    "dispatch": ("/dispatch", "Dispatch"),
    "dev": ("/dev", "Dev loop"),
    "costs": ("/costs", "Costs"),
    "audit": ("/audit", "Audit"),
    "doctor": ("/doctor", "Doctor"),
    "connections": ("/connections", "Connections"),
    "settings": ("/settings", "Settings"),
    "no such run": ("/r/none", "none"),
}


class Place:
    """A console with something on every page, in one tab, because a new one takes a second."""

    def __init__(self, tabs: Console, ids: dict[str, str]) -> None:
        self.tabs = tabs
        self.ids = ids
        self.page = tabs.open()
        self._asked: set[Request] = set()
        self.page.on("request", self._note)
        self.page.on("requestfinished", self._answered)
        self.page.on("requestfailed", self._answered)

    def show(self, name: str) -> Page:
        """Go to a page, as a link there does, and wait until it has all that it asked for."""
        path, heading = PAGES[name]
        self.page.evaluate(LINK, path.format(**self.ids))
        expect(self.page.get_by_role("heading", level=1)).to_contain_text(heading)
        quiet = 0
        while quiet < 4:
            self.page.wait_for_timeout(50)
            quiet = 0 if self._asked else quiet + 1
        return self.page

    def _note(self, request: Request) -> None:
        if request.resource_type == "fetch":  # streams of events, which do not end, are none
            self._asked.add(request)

    def _answered(self, request: Request) -> None:
        self._asked.discard(request)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("accessibility")
    put_workflow(folder / "data", workflow("tiny", "echo one; true", "false"))
    put_workflow(folder / "data", QUESTION)
    with (
        process(folder) as server,
        console(browser, server.client, expected=["404", "403"]) as tabs,
    ):
        client = server.client
        runs = [str(client.run("tiny")["runId"]) for _ in range(2)]
        client.post("/api/run", {"workflowId": "asks"})
        asked = eventually(lambda: client.get("/api/approvals").json()["approvals"])
        hook = {"name": "t", "enabled": True, "workflowId": "tiny"}
        client.post("/api/triggers", hook)
        ids = {"run": runs[0], "other": runs[1], "approval": str(asked[0]["id"])}
        yield Place(tabs, ids)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_serious_violation(place: Place, name: str) -> None:
    page = place.show(name)
    found = {}
    for size, theme in LOOKS:
        page.set_viewport_size(size)
        _show(page, theme)
        if wrong := violations(page):
            found[f"{theme} {size['width']}"] = wrong
    assert not found, "\n".join(
        f"{where}: {one}" for where, wrong in found.items() for one in wrong
    )


def test_the_login_page_has_no_serious_violation(place: Place) -> None:
    page = place.tabs.open("/login")
    assert violations(page) == []
    page.close()


def _show(page: Page, theme: str) -> None:
    """Switch the theme, as the system does."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
