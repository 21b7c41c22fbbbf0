"""The workflows: begin, import, run with inputs, copy, delete."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from support.console import console
from support.server import process, put_workflow, workflow

pytestmark = pytest.mark.browser

LOOP_FILE = """name: Until done
steps:
  - loop: rounds
    max: 3
    until: test -e done.txt
    steps:
      - command: touch done.txt
"""
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.evil\u0007"


def test_a_file_is_imported_after_its_mistakes_are_shown(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client, expected=["422"]) as tabs:
        page = tabs.open("/workflows")
        page.get_by_role("button", name="Import").first.click()
        editor = page.get_by_role("textbox", name="Workflow text")
        styled = "el => getComputedStyle(el).fontFamily"
        expect(editor).to_be_editable()
        # The editor's styles are in effect although the policy allows no style element.
        assert "mono" in editor.evaluate(styled)
        assert page.locator("style").count() == 0

        chooser = page.get_by_label("Workflow file")
        broken = FilePayload(name="broken.json", mimeType="", buffer=b'{"id": "a", "nodes": [')
        chooser.set_input_files([broken])
        expect(page.get_by_role("alert")).to_contain_text("not")
        expect(page.get_by_role("dialog").get_by_role("button", name="Import")).to_be_disabled()

        good = FilePayload(name="until-done.loop.yaml", mimeType="", buffer=LOOP_FILE.encode())
        chooser.set_input_files([good])
        expect(page.get_by_text("Until done, 2 nodes")).to_be_visible()
        # The keyboard is never caught: Tab leaves the editor.
        editor.click()
        page.keyboard.press("Tab")
        expect(page.get_by_label("Id", exact=True)).to_be_focused()
        page.get_by_role("dialog").get_by_role("button", name="Import").click()
        page.wait_for_url("**/w/until-done")
        saved = server.client.get("/api/workflows/until-done").json()["workflow"]
        assert saved["name"] == "Until done"


def test_a_new_workflow_names_an_agent_and_can_be_copied_and_deleted(
    tmp_path: Path, browser: Browser
) -> None:
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/workflows")
        page.get_by_role("button", name="New workflow").click()
        page.get_by_label("Name", exact=True).fill("Mend Größe!")
        expect(page.get_by_label("Id", exact=True)).to_have_value("mend-gro-e")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        page.wait_for_url("**/w/mend-gro-e")
        made = server.client.get("/api/workflows/mend-gro-e").json()
        assert made["workflow"]["name"] == "Mend Größe!"
        assert [one for one in made["problems"] if one["severity"] == "error"] == []

        page.goto(tabs.origin + "/workflows")
        page.get_by_role("button", name="Actions for Mend Größe!").click()
        page.get_by_role("menuitem", name="Duplicate").click()
        page.wait_for_url("**/w/mend-gro-e-copy")
        page.goto(tabs.origin + "/workflows")
        page.get_by_role("button", name="Actions for Mend Größe! copy").click()
        page.get_by_role("menuitem", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("row", name="Mend Größe! copy")).to_have_count(0)
        expect(page.get_by_role("row", name="Mend Größe!")).to_be_visible()
        assert server.client.get("/api/workflows/mend-gro-e-copy").status == 404


INPUTS = [
    {"name": "word", "type": "string", "description": HOSTILE},
    {"name": "count", "type": "number", "default": 3},
    {"name": "loud", "type": "boolean"},
]


def test_a_run_asks_for_its_inputs_and_starts_once(tmp_path: Path, browser: Browser) -> None:
    greet = {**workflow("greet", "true", inputs=INPUTS), "name": HOSTILE}
    put_workflow(tmp_path / "data", greet)
    (tmp_path / "home").mkdir()
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        page = tabs.open("/workflows")
        # A hostile name is text, and what it hides is shown.
        expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>")).to_be_visible()
        expect(page.get_by_text("\\u{202e}gnp.evil").first).to_be_visible()
        page.get_by_label("Search workflows").fill("greet")
        page.get_by_role("button", name="Run <img").click()
        dialog = page.get_by_role("dialog")
        start = dialog.get_by_role("button", name="Run", exact=True)
        expect(start).to_be_disabled()
        dialog.get_by_label("word").fill("ahoy")
        dialog.get_by_label("count").fill("x")
        expect(dialog.get_by_text("Write a number.")).to_be_visible()
        dialog.get_by_label("count").fill("4")
        dialog.get_by_role("button", name="Choose Working directory").click()
        picker = page.get_by_role("dialog", name="Choose a directory")
        picker.get_by_role("button", name="Use this directory").click()
        expect(dialog.get_by_label("Working directory", exact=True)).not_to_have_value("")
        start.dblclick()
        page.wait_for_url("**/r/*")
        runs = server.client.get("/api/runs").json()["runs"]
        assert len(runs) <= 1
        run_id = page.url.rsplit("/", 1)[1]
        ended = server.client.finished(run_id)
        assert ended["scope"]["inputs"] == {"word": "ahoy", "count": 4, "loud": False}
