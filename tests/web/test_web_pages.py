"""The pages of the server itself, used as a browser does: read the form, fill it in, send it."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from support.login import cookie_of, log_in
from support.server import TOKEN, Answer, Client, here, put_workflow
from support.trigger_requests import ECHO, GITHUB, SECRET, make, send, signed


class Forms(HTMLParser):
    """The forms of a page: where each goes, and the fields it has filled in."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            assert given["method"] == "post"
            self.found.append((given["action"], {}))
        elif tag == "input" and self.found:
            self.found[-1][1][given["name"]] = given.get("value", "")


class Browser:
    """Somebody with a session who looks at pages."""

    def __init__(self, client: Client) -> None:
        self.port = client.port
        self.cookie = cookie_of(log_in(client))

    def look(self, path: str) -> Answer:
        return Client(self.port).get(path, cookie=self.cookie)

    def submit(self, page: Answer, action: str, **filled: str) -> Answer:
        (fields,) = [fields for where, fields in Forms(page.body).found if where == action]
        assert set(filled) <= set(fields)
        return self.post(action, {**fields, **filled}, f"http://127.0.0.1:{self.port}")

    def post(self, path: str, fields: dict[str, str], origin: str) -> Answer:
        headers = {
            "cookie": self.cookie,
            "origin": origin,
            "content-type": "application/x-www-form-urlencoded",
        }
        body = urlencode(fields).encode()
        return Client(self.port).ask("POST", path, body=body, headers=headers)


@pytest.mark.claim("I21")
async def test_the_console_gives_a_trigger_a_new_address_and_the_old_one_is_dead(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, browser = make(client), Browser(client)
        page = browser.look("/dispatch")
        assert f"/api/webhook/{trigger['id']}" in page.body.decode()
        assert send(client, trigger["id"]).status == 202
        moved = browser.submit(page, "/dispatch/address")
        assert (moved.status, moved.headers["location"]) == (303, "/dispatch")
        assert send(client, trigger["id"]).status == 401
        (now,) = client.get("/api/triggers").json()["triggers"]
        assert now["id"] != trigger["id"]
        assert send(client, now["id"]).status == 202
        again = browser.submit(page, "/dispatch/address")  # a page from before
        assert again.status == 400
        assert b"there is no trigger" in again.body

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


@pytest.mark.claim("I25")
async def test_the_signing_secret_is_entered_in_the_dispatch_form_and_not_shown(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, browser = make(client, **GITHUB, secret=SECRET), Browser(client)
        page = browser.look("/dispatch")
        assert b"Signing secret (set)" in page.body
        assert browser.submit(page, "/dispatch/secret", secret="another-1234567890").status == 303
        assert send(client, trigger["id"], b"{}", **signed(b"{}")).status == 401
        newly = signed(b"{}", "another-1234567890")
        assert send(client, trigger["id"], b"{}", **newly).status == 202
        assert b"another-1234567890" not in browser.look("/dispatch").body
        empty = browser.submit(page, "/dispatch/secret", secret=" ")
        assert empty.status == 400
        assert b"a secret cannot be empty" in empty.body
        short = browser.submit(page, "/dispatch/secret", secret="15 characters!!")
        assert short.status == 400
        assert b"at least 16 bytes" in short.body
        still = signed(b"{ }", "another-1234567890")
        assert send(client, trigger["id"], b"{ }", **still).status == 202
        changed = client.get("/api/audit?event=trigger.changed").json()["entries"]
        assert [entry["actor"]["kind"] for entry in changed] == ["browser-session"]

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


@pytest.mark.parametrize("path", ["/dispatch/address", "/dispatch/secret"])
async def test_a_form_of_another_page_changes_nothing(tmp_path: Path, path: str) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        trigger, browser = make(client, **GITHUB, secret=SECRET), Browser(client)
        fields = {"trigger": trigger["id"], "secret": "theirs-1234567890"}
        assert browser.post(path, fields, "https://evil.example").status == 403
        browser.cookie = "infloop_session=forged"
        assert browser.post(path, fields, f"http://127.0.0.1:{client.port}").status == 401
        assert send(client, trigger["id"], b"{}", **signed(b"{}")).status == 202

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


async def test_what_a_trigger_is_called_is_text_on_the_page(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", ECHO)

    def look(client: Client) -> None:
        make(client, name='<script src="/x"></script>{id}')
        page = Browser(client).look("/dispatch").body
        assert b"<script" not in page
        assert b"&lt;script src=&quot;/x&quot;&gt;&lt;/script&gt;{id}" in page

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


async def test_without_a_session_the_page_leads_to_the_login(tmp_path: Path) -> None:
    def look(client: Client) -> None:
        sent_away = Client(client.port).get("/dispatch")
        assert (sent_away.status, sent_away.headers["location"]) == (303, "/login")

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)
