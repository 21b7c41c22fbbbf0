"""Approvals: the exact action, and the answer of a person."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.acp_agents import bot
from support.console import console
from support.eventually import eventually
from support.runs import scripted
from support.server import TOKEN, Client, process, put_workflow

pytestmark = pytest.mark.browser

PHONE = (390, 844)
HIDDEN = "echo safe \u202e# dm -fr eteled\u202c <img src=x onerror=alert(1)>"


def agent(name: str, provider: str, *more: str, **fields: Any) -> dict[str, Any]:
    nodes = [{"id": "start", "type": "start"}]
    edges = []
    for each in ("clean", *more):
        config = {"providerId": provider, "prompt": "tidy up"}
        edges.append({"source": nodes[-1]["id"], "target": each})
        nodes.append({"id": each, "type": "agent", "config": config})  # type: ignore[dict-item]
    return {"id": name, "name": name, "nodes": nodes, "edges": edges, **fields}


def ask(client: Client) -> dict[str, Any]:
    """Start a run that asks; return its question."""
    known = {each["id"] for each in client.get("/api/approvals").json()["approvals"]}
    client.post("/api/run", {"workflowId": "tidy"})

    def new() -> list[dict[str, Any]]:
        asked = client.get("/api/approvals").json()["approvals"]
        return [each for each in asked if each["id"] not in known]

    question: dict[str, Any] = eventually(new)[0]
    return question


def state_of(client: Client, approval: dict[str, Any]) -> tuple[str, str]:
    found = client.get(f"/api/approvals/{approval['id']}").json()["approval"]
    return found["state"], found["note"]


def is_in_view(page: Page, name: str) -> bool:
    box = page.get_by_role("button", name=name).bounding_box()
    return box is not None and box["y"] + box["height"] <= PHONE[1]


def test_a_person_allows_and_denies_on_a_phone(tmp_path: Path, browser: Browser) -> None:
    long = "\n".join(f"line {number} of the command" for number in range(100))
    raw = {"command": HIDDEN, "script": long}
    wants = {"kind": "execute", "title": "`rm -rf build`", "rawInput": raw}
    bot(tmp_path, {"ask": wants}, {"say": "done"}, {"stop": "end_turn"})
    put_workflow(tmp_path / "data", agent("tidy", "bot"))
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, size=PHONE, token=TOKEN) as tabs,
    ):
        client = server.client
        first, second = ask(client), ask(client)
        page = tabs.open("/")
        page.get_by_role("link", name="Review").first.click()
        exact = page.get_by_role("region", name="The exact action")
        expect(exact).to_contain_text("line 99 of the command")
        expect(exact).to_contain_text(r"echo safe \u{202e}# dm -fr eteled\u{202c} <img")
        assert "\u202e" not in page.content()
        expect(page.get_by_text("confined: host")).to_be_visible()
        assert is_in_view(page, "Deny")
        assert is_in_view(page, "Allow once")
        page.get_by_label("Reason").fill("it can be rebuilt")
        page.get_by_role("button", name="Allow once").click()
        expect(page.get_by_text("allowed by browser-session")).to_be_visible()
        assert state_of(client, first) == ("allowed", "it can be rebuilt")
        page.goto(f"{tabs.origin}/approvals/{second['id']}")
        page.get_by_label("Reason").fill("not today")
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_text("denied by browser-session")).to_be_visible()
        assert state_of(client, second) == ("denied", "not today")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]


def test_what_the_server_cut_is_not_allowed_unseen(tmp_path: Path, browser: Browser) -> None:
    wants = {"kind": "execute", "title": "run it", "rawInput": {"command": "x" * 5_000}}
    bot(tmp_path, {"ask": wants}, {"stop": "end_turn"})
    put_workflow(tmp_path / "data", agent("tidy", "bot"))
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        ask(server.client)
        page = tabs.open("/approvals")
        expect(page.get_by_text("Part of this action is not shown")).to_be_visible()
        expect(page.get_by_role("button", name="Allow once")).to_be_disabled()
        expect(page.get_by_role("button", name="Deny")).to_be_enabled()


def test_a_server_without_a_token_shows_the_command(tmp_path: Path, browser: Browser) -> None:
    bot(tmp_path)
    put_workflow(tmp_path / "data", agent("tidy", "bot"))
    with process(tmp_path) as server, console(browser, server.client) as tabs:
        asked = ask(server.client)
        page = tabs.open("/approvals")
        command = f"infloop approve {asked['id'][:8]}"
        expect(page.get_by_text(command, exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Allow once")).to_have_count(0)
        expect(page.get_by_role("button", name="Deny")).to_have_count(0)
        page.get_by_role("button", name="Copy").first.click()
        assert page.evaluate("navigator.clipboard.readText()") == command


def test_a_spent_budget_is_raised_and_a_missed_schedule_is_made_up_for(
    tmp_path: Path, browser: Browser
) -> None:
    data = tmp_path / "data"
    scripted(data / "providers", "fake", {"do": [{"cost": 2.0}]})
    limits = {"onBudget": "pause", "limits": {"maxCostUsd": 1.0}}
    put_workflow(data, agent("costly", "fake", "more", **limits))
    put_workflow(data, agent("cheap", "fake"))
    name = "abcdefghijklmnopqrstuv"
    schedule = {"cron": "0 9 1 1 *", "misfire": "ask"}
    trigger = {"id": name, "name": "Nightly", "enabled": True, "workflowId": "cheap"}
    (data / "triggers").mkdir(mode=0o700)
    content = json.dumps({**trigger, "kind": "schedule", "schedule": schedule})
    (data / f"triggers/{name}.json").write_text(content)
    missed = {"first_ms": 1_000, "last_ms": 9_000, "count": 3}
    marks = {name: {"consideredMs": int(time.time() * 1000), "asked": missed}}
    (data / "triggers/schedules.state").write_text(json.dumps(marks))
    with (
        process(tmp_path, api_token=TOKEN) as server,
        console(browser, server.client, token=TOKEN) as tabs,
    ):
        run_id = server.client.run("costly")["runId"]
        page = tabs.open("/approvals")
        page.get_by_role("link", name="Nightly missed its time 3 times").click()
        assert name not in page.url
        assert name not in page.content()
        page.get_by_role("button", name="Run now").click()
        expect(page.get_by_role("link", name="Nightly missed")).to_have_count(0)
        eventually(lambda: server.client.get("/api/runs?workflowId=cheap").json()["runs"])
        page.get_by_role("link", name="paused").click()
        page.get_by_label("New limit in USD").fill("50")
        page.get_by_role("button", name="Resume").click()
        page.wait_for_url(f"**/r/{run_id}")
        run = server.client.get(f"/api/runs/{run_id}").json()["run"]
        assert eventually(lambda: server.client.finished(run_id)["status"] == "succeeded"), run
