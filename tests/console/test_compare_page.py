"""Two runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.console_runs import finish, page_of, put_loop
from support.server import process

pytestmark = pytest.mark.browser

WORDS = """\
name: Words
inputs:
  word: red
steps:
  - command: echo same
    id: same
  - loop: tries
    max: 2
    until: "test $(cat n.txt) = {{inputs.word}}"
    steps:
      - command: if [ -e n.txt ]; then echo blue > n.txt; else echo red > n.txt; fi
        id: try
  - command: echo end
    id: end
"""


def test_a_comparison_names_the_first_divergence(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        put_loop(server, "words", WORDS)
        red = finish(server.client, "words", tmp_path / "1")
        also_red = finish(server.client, "words", tmp_path / "2")
        blue = finish(server.client, "words", tmp_path / "3", word="blue")

        page = tabs.open(f"/compare/{red}/{blue}")
        named = page.get_by_role("status", name="First divergence")
        expect(named).to_contain_text("tries[0]/tries-check configuration differs: command")
        row = page.get_by_role("button", name="tries[2]/try, only in B")
        expect(row).to_be_visible()
        expect(page.get_by_role("row", name="Input word ≠ red blue")).to_be_visible()
        expect(
            page.get_by_role("row", name="Definition version 1 version 1, the same")
        ).to_be_visible()
        row.click()
        page.wait_for_url(lambda url: "step=tries%5B2%5D%2Ftry" in url)

        already = finish(server.client, "words", tmp_path / "2")  # n.txt is there from the start
        page.goto(f"{tabs.origin}/compare/{red}/{already}")
        expect(named).to_contain_text("tries[0]/tries-check left by not_met in A, by met in B")

        page.goto(f"{tabs.origin}/compare/{red}/{also_red}")
        expect(named).to_contain_text("The steps of both runs are the same.")

        page.goto(tabs.origin + page_of(blue))
        page.get_by_role("button", name="More actions").click()
        page.get_by_role("menuitem", name="Compare").click()
        page.get_by_role("dialog").get_by_role("link").last.click()
        page.wait_for_url(f"**/compare/{red}/{blue}")
        expect(named).to_be_visible()
