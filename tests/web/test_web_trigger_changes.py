"""What the console asks of the API about a trigger: another address, another secret."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.login import cookie_of, log_in
from support.server import TOKEN, Answer, Client, here, put_workflow
from support.trigger_requests import ECHO, GITHUB, SECRET, make, send, signed

ANOTHER = "another-1234567890"


class Session:
    """Somebody who has logged in with a browser."""

    def __init__(self, client: Client) -> None:
        self.port = client.port
        self.cookie = cookie_of(log_in(client))
        self.origin = f"http://127.0.0.1:{client.port}"

    def ask(self, method: str, path: str, content: Any = None) -> Answer:
        headers = {"cookie": self.cookie, "origin": self.origin, "content-type": "application/json"}
        body = json.dumps(content).encode() if content is not None else b""
        return Client(self.port).ask(method, path, body=body, headers=headers)


@pytest.mark.claim("I21")
async def test_a_session_gives_a_trigger_a_new_address_and_the_old_one_is_dead(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, session = make(client), Session(client)
        assert send(client, trigger["id"]).status == 202
        path = f"/api/triggers/{trigger['id']}/regenerate"
        moved = session.ask("POST", path)
        assert moved.status == 200
        now = moved.json()["trigger"]
        assert (now["id"] != trigger["id"], now["mark"] != trigger["mark"]) == (True, True)
        assert send(client, trigger["id"]).status == 401
        assert send(client, now["id"], b"{ }").status == 202
        again = session.ask("POST", path)  # a page from before
        assert again.status == 404
        assert "there is no trigger" in again.json()["message"]

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


@pytest.mark.claim("I25")
async def test_a_session_sets_the_secret_and_nobody_is_shown_it(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, session = make(client, **GITHUB, secret=SECRET), Session(client)
        path = f"/api/triggers/{trigger['id']}"
        content = {**GITHUB, "name": "Any", "enabled": True, "workflowId": "echo"}
        changed = session.ask("PUT", path, {**content, "secret": ANOTHER})
        assert changed.status == 200
        assert ANOTHER.encode() not in changed.body
        assert send(client, trigger["id"], b"{}", **signed(b"{}")).status == 401
        assert send(client, trigger["id"], b"{}", **signed(b"{}", ANOTHER)).status == 202
        short = session.ask("PUT", path, {**content, "secret": "15 characters!!"})
        assert short.status == 400
        assert "at least 16 bytes" in short.json()["message"]
        kept = session.ask("PUT", path, content)
        assert kept.json()["trigger"]["secretSet"]
        assert send(client, trigger["id"], b"{ }", **signed(b"{ }", ANOTHER)).status == 202
        entries = client.get("/api/audit?event=trigger.changed").json()["entries"]
        assert {entry["actor"]["kind"] for entry in entries} == {"browser-session"}
        assert ANOTHER not in json.dumps(entries)

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_page_of_another_site_changes_no_trigger(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, session = make(client, **GITHUB, secret=SECRET), Session(client)
        path = f"/api/triggers/{trigger['id']}"
        theirs = {**GITHUB, "enabled": True, "workflowId": "echo", "secret": "theirs-1234567890"}
        session.origin = "https://evil.example"
        assert session.ask("PUT", path, theirs).status == 403
        assert session.ask("POST", f"{path}/regenerate").status == 403
        session.origin = f"http://127.0.0.1:{client.port}"
        session.cookie = "infloop_session=forged"
        assert session.ask("PUT", path, theirs).status == 401
        assert session.ask("POST", f"{path}/regenerate").status == 401
        assert send(client, trigger["id"], b"{}", **signed(b"{}")).status == 202

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


async def test_without_a_session_a_page_leads_to_the_login_and_back(tmp_path: Path) -> None:
    def look(client: Client) -> None:
        sent_away = Client(client.port).get("/dispatch")
        there = (303, "/login?next=%2Fdispatch")
        assert (sent_away.status, sent_away.headers["location"]) == there

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)
