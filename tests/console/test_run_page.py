"""The page of a run: live and from its journal alike."""

from __future__ import annotations

import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support import forkserver
from support.console import console
from support.console_runs import finish, gated, page_of, put_agent, put_loop, start, step
from support.eventually import eventually
from support.repositories import repository
from support.server import PATIENCE, TOKEN, Process, environment, process

pytestmark = pytest.mark.browser

GATED = f"""\
name: Gated
steps:
{step(gated("echo one", "echo two"), "wait")}"""

OTHER = """\
name: Other
steps:
  - command: echo from the other run
    id: wait
"""

LINES = 16
COUNTED = f"""\
name: Counted
steps:
{step(f"for i in $(seq {LINES}); do echo line $i; sleep 0.08; done", "count")}\
{step(gated("true", "echo last word"), "wait")}"""

ROUNDS = """\
name: Rounds
steps:
  - loop: fix
    max: 60
    until: {contains: DONE, in: "{{agent.result}}"}
    steps:
      - agent: fake
        useWorktree: false
        prompt: go
"""

REWOUND = f"""\
name: Rewound
steps:
{step("echo 1 > a.txt; echo same > c.txt", "first")}\
{step("if [ ! -e ../again ]; then echo 2 > a.txt; echo b > b.txt; fi", "second")}\
{step("echo done", "third")}"""

CHANGE = """\
name: Change
steps:
  - agent: fake
    prompt: go
"""

BROKEN = f"""\
name: Broken
steps:
{step("echo fine", "fine")}\
{step("echo went wrong >&2; exit 3", "deploy")}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with process(tmp_path_factory.mktemp("runs")) as made:
        for name, text in {
            "gated": GATED,
            "other": OTHER,
            "counted": COUNTED,
            "rounds": ROUNDS,
            "rewound": REWOUND,
            "broken": BROKEN,
        }.items():
            put_loop(made, name, text)
        yield made


def said(page: Page, text: str) -> Locator:
    """Find a line of the log."""
    return page.get_by_role("region", name="Log").get_by_text(text, exact=True)


def log_of(page: Page) -> list[str]:
    """Return the lines of the log that are drawn, without their steps."""
    rows = page.get_by_role("region", name="Log").locator("[data-kind]")
    return [text.split("\n")[-1].strip() for text in rows.all_inner_texts()]


def steps_of(page: Page) -> list[str | None]:
    rows = page.get_by_role("region", name="Steps").locator("button[aria-label]")
    return [row.get_attribute("aria-label") for row in rows.all()]


def state_of(page: Page) -> str:
    return page.get_by_role("status", name="Run state").inner_text()


def test_a_run_is_watched_and_stopped_within_a_second(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    with console(browser, server.client) as tabs:
        run_id = start(server.client, "gated", tmp_path)
        page = tabs.open(page_of(run_id, view="graph"))
        expect(said(page, "one")).to_be_visible()
        expect(page.get_by_role("status", name="Run state")).to_contain_text("running")
        expect(page.get_by_role("region", name="Why")).to_contain_text("at wait for")
        expect(page.get_by_role("button", name="wait, running")).to_be_visible()
        painted = page.get_by_role("group", name="wait, command, running")
        expect(painted).to_be_visible()

        before = steps_of(page)
        finish(server.client, "other", tmp_path)
        expect(painted).to_be_visible()
        assert steps_of(page) == before
        assert "from the other run" not in page.locator("main").inner_text()

        page.get_by_role("button", name="Stop").click()
        asked = time.monotonic()
        expect(page.get_by_role("status", name="Run state")).to_contain_text(
            re.compile("stopping|cancelled"), timeout=1_000
        )
        expect(page.get_by_role("status", name="Run state")).to_contain_text("cancelled")
        assert time.monotonic() - asked < 10
        expect(page.get_by_role("region", name="Why")).to_contain_text("asked to stop")


def test_a_run_of_the_command_line_looks_the_same(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    by_command, by_api = tmp_path / "command", tmp_path / "api"
    by_command.mkdir()
    file = server.data / "workflows" / "gated.loop.yaml"
    with (
        (tmp_path / "printed").open("w") as printed,
        console(browser, server.client) as tabs,
        _command(("run", str(file)), by_command, server, printed.fileno()),
    ):
        first = eventually(lambda: _running(server, "cli"))
        second = start(server.client, "gated", by_api)
        pages = [tabs.open(page_of(first)), tabs.open(page_of(second))]
        seen = []
        for page in pages:
            expect(said(page, "one")).to_be_visible()
            seen.append((state_of(page), steps_of(page), log_of(page)))
        assert seen[0] == seen[1]
        (by_command / "go").touch()
        (by_api / "go").touch()
        for page in pages:
            expect(page.get_by_role("status", name="Run state")).to_contain_text("succeeded")
            expect(said(page, "two")).to_be_visible()
        plain = [[re.sub(r"[\d.]+m?s", "_", line) for line in log_of(page)] for page in pages]
        assert plain[0] == plain[1]


@contextmanager
def _command(
    arguments: tuple[str, ...], cwd: Path, server: Process, output: int
) -> Iterator[forkserver.Command]:
    """A command beside a server, ended when the test is over."""
    made = forkserver.Command(
        arguments, cwd, environment(server.folder), stdout=output, stderr=output
    )
    try:
        yield made
    finally:
        if made.poll() is None:
            made.kill()
        made.wait(PATIENCE)


def _running(server: Process, kind: str) -> str | None:
    runs = server.client.get("/api/runs?workflowId=gated&status=running").json()["runs"]
    found = [run["runId"] for run in runs if run["cause"].get("kind", "cli") == kind]
    return found[0] if found else None


def test_a_reload_and_eight_tabs_show_every_line_once(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    with console(browser, server.client) as tabs:
        run_id = start(server.client, "counted", tmp_path)
        page = tabs.open(page_of(run_id, step="count"))
        expect(said(page, "line 5")).to_be_visible()
        page.reload()
        expect(said(page, f"line {LINES}")).to_be_visible()
        wanted = [f"line {number}" for number in range(1, LINES + 1)]
        assert [line for line in log_of(page) if line.startswith("line")] == wanted

        pages = [page, *(tabs.open(page_of(run_id)) for _ in range(7))]
        for each in pages[1:]:
            expect(said(each, f"line {LINES}")).to_be_visible()
            assert [line for line in log_of(each) if line.startswith("line")] == wanted
        (tmp_path / "go").touch()
        for each in pages[1:]:
            expect(said(each, "last word")).to_have_count(1)
            expect(each.get_by_text("run succeeded")).to_be_visible()


def test_a_loop_of_forty_rounds_is_folded_and_has_a_diff_for_each_round(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    rounds = [
        [{"write": "n.txt", "content": "x\n" * number}, {"text": f"round {number}\n"}]
        for number in range(1, 40)
    ]
    put_agent(server, *rounds, [{"write": "n.txt", "content": "x\n" * 40}, {"text": "DONE"}])
    run_id = finish(server.client, "rounds", tmp_path)
    with console(browser, server.client) as tabs:
        page = tabs.open(page_of(run_id))
        expect(page.get_by_role("button", name="round 40, met")).to_be_visible()
        expect(page.get_by_role("img", name="41 rounds")).to_be_visible()
        expect(page.locator("[data-lane]")).to_have_count(
            11
        )  # the run, 3 + 6 of 41 rounds, the fold
        expect(page.locator('[data-lane="fix[40]"]')).to_be_visible()

        page.get_by_role("button", name="⋯ 32 rounds").click()
        expect(page.get_by_role("button", name="round 20, not met")).to_be_visible()
        page.get_by_role("button", name="round 20, not met").click()
        page.get_by_role("tab", name="Changes").click()
        page.wait_for_url(lambda url: "step=fix%5B20%5D" in url and "tab=changes" in url)
        patch = page.get_by_role("article", name="n.txt")
        expect(patch).to_contain_text("+1")
        expect(patch.locator("tr[data-kind=add]")).to_have_count(1)

        page.keyboard.press("]")
        page.wait_for_url(lambda url: "step=fix%5B21%5D" in url)
        page.keyboard.press("j")
        page.wait_for_url(lambda url: "step=fix%5B22%5D" in url or "agent" in url)
        page.goto(f"{tabs.origin}/r/{run_id}/changes?step=fix%5B40%5D")
        expect(page.get_by_role("article", name="n.txt")).to_contain_text("+1")

        # On the graph a round is chosen at its frame, and the frame can be folded.
        page.goto(f"{tabs.origin}/r/{run_id}?view=graph")
        agent = page.get_by_role("group", name="agent, agent, succeeded")
        expect(agent).to_be_visible()
        picker = page.get_by_role("combobox", name="Round of fix")
        picker.select_option("7")
        page.wait_for_url(lambda url: "step=fix%5B7%5D" in url)
        expect(picker).to_have_value("7")
        page.get_by_role("button", name="Fold fix").click()
        expect(agent).to_have_count(0)
        page.get_by_role("button", name="Open fix").click()
        expect(agent).to_be_visible()


def test_the_preview_of_a_rewind_is_what_it_changes(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    run_id = finish(server.client, "rewound", work)
    assert sorted(each.name for each in work.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    (tmp_path / "again").touch()  # the second time, the step leaves the files alone
    with console(browser, server.client) as tabs:
        page = tabs.open(page_of(run_id, step="second"))
        page.get_by_role("button", name="Rewind to here").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("Kept: 2 steps")).to_be_visible()
        expect(dialog.get_by_text("Run again: 2 steps")).to_be_visible()
        files = dialog.get_by_role("list", name="Files restored").locator("code")
        expect(files).to_have_text(["a.txt", "b.txt"])
        dialog.get_by_role("button", name="Rewind and restore 2 files").click()
        page.wait_for_url(lambda url: "/r/" in url and run_id not in url)
        expect(page.get_by_role("status", name="Run state")).to_contain_text("succeeded")
        expect(page.get_by_role("button", name="third, succeeded")).to_be_visible()
    assert (work / "a.txt").read_text() == "1\n"
    assert (work / "c.txt").read_text() == "same\n"
    assert not (work / "b.txt").exists()


def test_why_a_run_failed_is_said_first_and_the_next_failure_is_one_key_away(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    run_id = finish(server.client, "broken", tmp_path)
    with console(browser, server.client, size=(390, 844)) as tabs:
        page = tabs.open(page_of(run_id))
        why = page.get_by_role("region", name="Why")
        expect(why).to_contain_text("deploy")
        expect(why).to_contain_text("went wrong")
        expect(page.get_by_role("button", name="Rewind to deploy")).to_be_visible()
        names = [tab.inner_text() for tab in page.get_by_role("tab").all()]
        assert names[:4] == ["Steps", "Log", "Changes", "Graph"]
        page.keyboard.press("n")
        page.wait_for_url(lambda url: "step=deploy" in url)
        page.get_by_role("tab", name="In & out").click()
        expect(page.get_by_text("exitCode")).to_be_visible()
        page.get_by_role("tab", name="Events").click()
        expect(page.get_by_role("button", name=re.compile("node_finished"))).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_killed_run_is_resumed_and_one_of_a_stopped_process_is_taken_over(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    file = server.data / "workflows" / "gated.loop.yaml"
    folders = {"killed": tmp_path / "killed", "stopped": tmp_path / "stopped"}
    with (tmp_path / "printed").open("w") as printed, console(browser, server.client) as tabs:
        for name, folder in folders.items():
            folder.mkdir()
            known = {run["runId"] for run in _gated_runs(server)}
            with _command(("run", str(file)), folder, server, printed.fileno()) as made:
                new = partial(_new_runs, server, known)
                (run_id,) = eventually(new)
                page = tabs.open(page_of(run_id))
                expect(said(page, "one")).to_be_visible()
                if name == "killed":
                    made.kill()
                    made.wait(PATIENCE)
                    asked = page.get_by_role("button", name="Resume")
                else:
                    made.send_signal(signal.SIGSTOP)
                    _age_heartbeats(server)
                    asked = page.get_by_role("region", name="Why").get_by_role(
                        "button", name="Take over"
                    )
                page.reload()
                asked.click()
                expect(page.get_by_role("status", name="Run state")).to_contain_text("running")
                (folder / "go").touch()
                expect(page.get_by_role("status", name="Run state")).to_contain_text("succeeded")
                expect(said(page, "two")).to_be_visible()


def _gated_runs(server: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client.get("/api/runs?workflowId=gated").json()["runs"]
    return found


def _new_runs(server: Process, known: set[str]) -> list[str]:
    return [run["runId"] for run in _gated_runs(server) if run["runId"] not in known]


def _age_heartbeats(server: Process) -> None:
    """Let the last heartbeats of all processes but the server be old, as if time had passed."""
    with closing(sqlite3.connect(next(server.data.glob("*.db")))) as database, database:
        database.execute(
            "UPDATE instance SET beat_at = beat_at - 600000 WHERE pid != ?",
            (server.process.pid,),
        )


def test_changes_are_applied_and_protected_files_only_if_they_are_allowed(
    tmp_path: Path, browser: Browser
) -> None:
    repo = repository(tmp_path / "repo", {"a.txt": "old\n"})
    with process(tmp_path / "server", api_token=TOKEN) as made:
        put_agent(
            made,
            [
                {"write": "a.txt", "content": "new\n"},
                {"write": ".github/workflows/ci.yml", "content": "on: push\n"},
            ],
        )
        put_loop(made, "change", CHANGE)
        run_id = finish(made.client, "change", repo)
        with console(browser, made.client, token=TOKEN) as tabs:
            page = tabs.open(page_of(run_id))
            page.get_by_role("button", name="More actions").click()
            page.get_by_role("menuitem", name="Apply changes…").click()
            dialog = page.get_by_role("dialog")
            files = dialog.get_by_role("listitem")
            expect(files.first).to_contain_text(".github/workflows/ci.yml")
            allow = dialog.get_by_role("checkbox", name=re.compile("ci.yml"))
            expect(allow).not_to_be_checked()
            dialog.get_by_role("button", name="Apply 2 files").click()
            expect(dialog).to_contain_text("ci.yml")
            assert (repo / "a.txt").read_text() == "old\n"
            allow.check()
            dialog.get_by_role("button", name="Apply 2 files").click()
            expect(dialog.get_by_text("Applied 2 files")).to_be_visible()
    assert (repo / "a.txt").read_text() == "new\n"
    assert (repo / ".github/workflows/ci.yml").read_text() == "on: push\n"


def test_a_server_without_a_token_shows_the_command_that_applies(
    server: Process, browser: Browser, tmp_path: Path
) -> None:
    run_id = finish(server.client, "rewound", tmp_path / "work")
    with console(browser, server.client, expected=["403"]) as tabs:
        page = tabs.open(page_of(run_id))
        page.get_by_role("button", name="More actions").click()
        page.get_by_role("menuitem", name="Apply changes…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name=re.compile("Apply .* files?")).click()
        expect(dialog.get_by_text(f"infloop apply {run_id}")).to_be_visible()
