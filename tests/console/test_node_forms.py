"""The form of a node: made from the catalog, with references that exist, problems and undo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.console import console
from support.eventually import eventually
from support.server import process, put_workflow

pytestmark = pytest.mark.browser

FLOW: dict[str, Any] = {
    "id": "flow",
    "name": "Flow",
    "inputs": [{"name": "goal", "type": "string", "default": "x"}],
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "first", "type": "command", "config": {"cmd": "echo one"}},
        {"id": "ask", "type": "agent", "config": {"prompt": "Do {{inputs.gaol}}"}},
        {"id": "later", "type": "command", "config": {"cmd": "echo two"}},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"source": "start", "target": "first"},
        {"source": "first", "target": "ask"},
        {"source": "ask", "target": "later"},
        {"source": "later", "target": "end"},
    ],
}
STYLE = "document.head.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))"


def settings(page: Page) -> Any:
    return page.get_by_role("complementary", name="Node settings")


def test_a_prompt_offers_only_references_that_exist(tmp_path: Path, browser: Browser) -> None:
    put_workflow(tmp_path / "data", FLOW)
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/w/flow?node=ask")
        prompt = settings(page).get_by_role("textbox", name="Prompt")
        # An unknown reference says so at its field, with what was probably meant.
        expect(settings(page).get_by_text("goal")).to_be_visible()
        prompt.click()
        page.keyboard.press("Control+A")
        page.keyboard.type("Do {{")
        listed = settings(page).get_by_role("listbox").get_by_role("option")
        expect(listed.filter(has_text="inputs.goal")).to_be_visible()
        names = listed.all_inner_texts()
        assert any(name.startswith("first.stdout") for name in names)
        assert not any(name.startswith(("later.", "ask.", "inputs.gaol")) for name in names)
        page.keyboard.type("goa")
        expect(listed).to_have_count(1)
        page.keyboard.press("Enter")
        expect(prompt).to_have_text("Do {{inputs.goal}}")
        expect(settings(page).get_by_text("did you mean")).to_have_count(0)
        # Escape closes the list and Tab leaves the editor; the keyboard is never caught.
        page.keyboard.type(" {{")
        expect(listed.first).to_be_visible()
        page.keyboard.press("Escape")
        expect(listed).to_have_count(0)
        page.keyboard.press("Tab")
        expect(prompt).not_to_be_focused()
        # The policy is in force: what the editor avoids is refused and would be reported.
        assert tabs.complaints == []
        with page.expect_console_message(lambda message: "style-src" in message.text):
            page.evaluate(STYLE)
        assert any("style-src" in text for text in tabs.complaints)
        tabs.complaints.clear()


def test_a_form_writes_what_differs_from_the_defaults(tmp_path: Path, browser: Browser) -> None:
    put_workflow(tmp_path / "data", FLOW)
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/w/flow?node=first")
        form = settings(page)
        command = form.get_by_role("textbox", name="Command", exact=True)
        command.click()
        page.keyboard.press("Control+End")
        page.keyboard.type(" two")
        form.get_by_text("More", exact=True).click()
        form.get_by_label("Time limit").fill("soon")
        expect(form.get_by_text("Write it with a unit")).to_be_visible()
        form.get_by_label("Time limit").fill("10m")  # the default
        form.get_by_role("button", name="Add to Environment").click()
        form.get_by_label("Environment, name 1").fill("WORD")
        form.get_by_role("textbox", name="Environment, value of WORD").fill("{{inputs.goal}}")
        form.get_by_label("Run in isolated git worktree").check()
        form.get_by_label("Run in isolated git worktree").uncheck()
        page.keyboard.press("Control+s")

        def saved() -> dict[str, Any]:
            content = server.client.get("/api/workflows/flow").json()["workflow"]
            found = next(node for node in content["nodes"] if node["id"] == "first")
            return dict(found["config"])

        wanted = {"cmd": "echo one two", "env": {"WORD": "{{inputs.goal}}"}}
        assert eventually(lambda: saved() == wanted)

        # Undo inside of an editor is the page's own: it takes back the last edits, one by one.
        command.click()
        for _ in range(20):
            page.keyboard.press("Control+z")
        expect(command).to_have_text("echo one")
        expect(form.get_by_label("Environment, name 1")).to_have_count(0)
        page.keyboard.press("Control+Shift+z")
        expect(command).not_to_have_text("echo one")
