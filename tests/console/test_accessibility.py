"""Every page, light and dark, on a desk and on a phone: nothing keeps anyone out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect
from playwright.sync_api import TimeoutError as NotIdle

from support.axe import violations
from support.console import Console, console
from support.eventually import eventually
from support.server import process, put_workflow, workflow

pytestmark = pytest.mark.browser

SIZES = (ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844))
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
PAGES = {
    "home": "/",
    "workflows": "/workflows",
    "canvas": "/w/tiny",
    "node": "/w/tiny?node=c1",
    "text": "/w/tiny?view=split",
    "runs": "/runs",
    "run": "/r/{run}",
    "graph": "/r/{run}?view=graph&tab=events",
    "changes": "/r/{run}/changes",
    "compare": "/compare/{run}/{other}",
    "queue": "/queue",
    "approval": "/approvals/{approval}",
    "dispatch": "/dispatch",
    "dev": "/dev",
    "costs": "/costs",
    "audit": "/audit",
    "doctor": "/doctor",
    "connections": "/connections",
    "settings": "/settings",
    "no such run": "/r/none",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A console with something on every page."""

    tabs: Console
    ids: dict[str, str]


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


@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_serious_violation(place: Place, name: str) -> None:
    page = place.tabs.open(PAGES[name].format(**place.ids))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    with suppress(NotIdle):  # a page that asks again and again is never idle
        page.wait_for_load_state("networkidle", timeout=3_000)
    found = {}
    for size in SIZES:
        page.set_viewport_size(size)
        for theme in ("light", "dark"):
            _show(page, theme)
            wrong = violations(page)
            if wrong:
                found[f"{theme} {size['width']}"] = wrong
    page.close()
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
