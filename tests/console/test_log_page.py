"""The log of a run: its tail, its history, what is found in it, and text that must stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.console_runs import finish, gated, page_of, put_agent, put_loop, start, step
from support.server import Process, process

pytestmark = pytest.mark.browser

AGENT = """\
name: Talk
steps:
  - agent: fake
    id: talk
    useWorktree: false
    prompt: go
"""

LINES = f"""\
name: Lines
steps:
{step(gated("seq 1 200; echo complaint >&2", "seq 201 230"), "count")}"""

HOSTILE = [
    "<img src=x onerror=\"document.title='taken'\">",
    "<script>document.title='taken'</script>",
    "[a link](javascript:document.title='taken')",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b[31mred\x1b[0m \x1b[2J\x1b[1A",
    "gnp.exe\u202etxt \u2066x\u2069 zero\u200bwidth \ufeffmark \U000e0041tag",
    "back\bspace carriage\rreturn \x00null \x9b31m",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with process(tmp_path_factory.mktemp("logs")) as made:
        put_loop(made, "talk", AGENT)
        put_loop(made, "lines", LINES)
        yield made


def test_a_log_opens_at_its_tail_and_reads_its_history_on_the_way_up(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    words = [{"text": "word\n"}, {"stderr": "oh\n"}] * 1_500  # one stream's would be joined
    put_agent(server, [*words, {"text": "the end\n"}])
    run_id = finish(server.client, "talk", tmp_path)
    with console(browser, server.client) as tabs:
        page = tabs.open(page_of(run_id))
        box = page.locator("[data-rows]")
        expect(page.get_by_text("the end", exact=True)).to_be_visible()
        at_first = int(box.get_attribute("data-rows") or 0)
        assert 900 < at_first < 2_000
        page.set_viewport_size({"width": 1440, "height": 700})
        expect(page.get_by_text("run succeeded")).to_be_in_viewport()  # also when it gets shorter
        box.evaluate("box => box.scrollTo(0, 0)")
        expect(box).to_have_attribute("data-rows", re.compile(r"^3\d\d\d$"))
        expect(page.get_by_text("Paused")).to_be_visible()
        drawn = page.get_by_role("region", name="Log").locator("[data-kind]").count()
        assert drawn < 200  # of more than 3,000


def test_scrolling_up_pauses_and_counts_and_a_line_has_an_address(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    with console(browser, server.client) as tabs:
        run_id = start(server.client, "lines", tmp_path)
        page = tabs.open(page_of(run_id, step="count"))
        log = page.get_by_role("region", name="Log")
        expect(log.get_by_text("complaint")).to_be_visible()
        page.locator("[data-rows]").hover()
        page.mouse.wheel(0, -1_500)
        expect(log.get_by_text("Paused")).to_be_visible()
        (tmp_path / "go").touch()
        expect(log.get_by_text("Paused, 31 new lines")).to_be_visible()
        log.get_by_role("button", name="Follow").click()
        expect(log.get_by_text("230", exact=True)).to_be_visible()
        expect(log.get_by_text("Paused")).to_have_count(0)

        page.get_by_label("Find in log").fill("complain")
        expect(log.get_by_text("1/1")).to_be_visible()
        row = log.locator("[data-kind=stderr]")
        expect(row).to_be_visible()
        row.get_by_role("button").click()
        page.wait_for_url(lambda url: "seq=" in url)
        linked = tabs.open(page.url.removeprefix(tabs.origin))
        expect(linked.locator("[data-linked]")).to_contain_text("complaint")

        page.get_by_label("Find in log").fill("")
        page.get_by_role("button", name="Log options").click()
        page.get_by_role("menuitem", name="Only stderr").click()
        expect(page.locator("[data-rows]")).to_have_attribute("data-rows", "1")
        page.get_by_role("button", name="Log options").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name="Download raw").click()
        saved = Path(download.value.path()).read_text().split("\n")
        assert saved.count("7") == 1
        assert "complaint" in saved


def test_a_tool_call_is_one_line_that_opens(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    put_agent(
        server,
        [{"text": "I look"}, {"text": " around.\n"}, {"shell": "echo inside"}, {"text": "Seen."}],
    )
    run_id = finish(server.client, "talk", tmp_path)
    with console(browser, server.client) as tabs:
        page = tabs.open(page_of(run_id, step="talk"))
        log = page.get_by_role("region", name="Log")
        expect(log.get_by_text("I look around.", exact=True)).to_be_visible()
        call = log.get_by_role("button", name="Bash")
        expect(call).to_have_attribute("aria-expanded", "false")
        expect(log.get_by_text("inside", exact=True)).to_have_count(0)
        call.click()
        expect(call).to_have_attribute("aria-expanded", "true")
        expect(log.locator("pre")).to_contain_text("inside")


def test_hostile_text_stays_text(server: Process, browser: Browser, tmp_path: Path) -> None:
    printed = "\n".join(HOSTILE)
    write = {"write": "<b>x.txt", "content": printed.replace("\0", "")}  # else it is binary
    put_agent(server, [{"text": printed}, {"stderr": printed}, write, {"exit": 3}])
    run_id = finish(server.client, "talk", tmp_path)
    shown = ("<img src=x onerror", "<script>document.title", "\\u{202e}", "\\u{200b}", "\\u{0}")
    with console(browser, server.client) as tabs:
        page = tabs.open(page_of(run_id, step="talk"))
        log = page.get_by_role("region", name="Log")
        for part in shown:
            expect(log).to_contain_text(part)
        for tab in ("In & out", "Changes", "Events"):
            page.get_by_role("tab", name=tab).click()
            expect(page.get_by_role("tabpanel", name=tab)).to_contain_text("u{202e}")
        whole = page.locator("body").inner_text()
        for hidden in "\u202e\u2066\u200b\ufeff\x1b\x00\b\x9b":
            assert hidden not in whole, json.dumps(hidden)
        assert page.locator("main img[src=x], main script, main b, main a[href^=java]").count() == 0
        assert "taken" not in page.title()
