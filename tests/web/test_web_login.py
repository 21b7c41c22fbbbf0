"""Logging in with a browser: the cookie, how long it lasts, and how often one may try."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from infloop.application.sessions import SESSION_MS, Sessions
from infloop.errors import StoreError
from infloop.policy.secrets import same_secret
from infloop.runtime.clock import SetClock
from support.cluster import DatabaseKind, shared_database
from support.login import cookie_of, log_in, with_cookie
from support.server import TOKEN, Client, Here, here, process, put_workflow
from support.trigger_requests import ECHO, make, send


@pytest.mark.claim("I12", "I62")
async def test_a_browser_logs_in_and_out(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(_logs_in_and_out, served)


def _logs_in_and_out(served: Here) -> None:
    sent_away = Client(served.client.port).get("/")
    assert (sent_away.status, sent_away.headers["location"]) == (303, "/login")
    page = Client(served.client.port).get("/login")
    assert page.status == 200
    assert b'name="token"' in page.body
    answer = log_in(served.client)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = cookie_of(answer)
    assert with_cookie(served.client, cookie, "/").status == 200
    assert with_cookie(served.client, cookie).status == 200
    left = Client(served.client.port).ask("POST", "/logout", headers={"cookie": cookie})
    assert (left.status, left.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in left.cookies[0]
    assert with_cookie(served.client, cookie).status == 401
    audit = served.client.get("/api/audit?event=login").json()["entries"]
    assert [entry["event"] for entry in audit] == ["login.ended", "login.succeeded"]


@pytest.mark.claim("I62")
async def test_a_wrong_token_opens_nothing_and_is_written_down(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        for wrong in ("", "wrong", TOKEN[:-1], TOKEN + "x", "é", "\0"):
            answer = await asyncio.to_thread(log_in, served.client, wrong)
            assert answer.status == 401
            assert answer.cookies == ()
        audit = await served.ask("GET", "/api/audit?event=login")
    entries = audit.json()["entries"]
    assert [entry["event"] for entry in entries] == ["login.failed"] * 6
    assert {entry["actor"]["kind"] for entry in entries} == {"anonymous"}
    assert "wrong" not in str([entry["details"] for entry in entries])


@pytest.mark.parametrize("wrong", ["Bearer wrong", "Bearer", "Basic dXNlcjp3b3Jk"])
async def test_a_wrong_token_is_refused_although_a_session_is_open(
    tmp_path: Path, wrong: str
) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        cookie = cookie_of(await asyncio.to_thread(log_in, served.client))
        assert (await asyncio.to_thread(with_cookie, served.client, cookie)).status == 200
        both = {"cookie": cookie, "authorization": wrong}
        answer = await asyncio.to_thread(
            lambda: Client(served.client.port).ask("GET", "/api/runs", headers=both)
        )
    assert answer.status == 401


@pytest.mark.claim("I13")
async def test_the_cookie_is_for_this_site_and_not_for_scripts(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        (cookie,) = (await asyncio.to_thread(log_in, served.client)).cookies
    words = [word.strip().lower() for word in cookie.split(";")]
    assert "httponly" in words
    assert "samesite=strict" in words
    assert "path=/" in words
    assert not any(word.startswith("domain") for word in words)


@pytest.mark.claim("I18")
async def test_the_cookie_is_secure_behind_https_and_not_on_plain_http(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        log = served.client
        for proto, secure in (("https", True), ("HTTPS", True), ("http", False), ("", False)):
            answer = await asyncio.to_thread(log_in, log, TOKEN, **{"x-forwarded-proto": proto})
            (cookie,) = answer.cookies
            assert ("; Secure" in cookie) == secure
            assert cookie.startswith("__Host-") == secure
            assert (await asyncio.to_thread(with_cookie, log, cookie_of(answer))).status == 200


@pytest.mark.claim("I15")
async def test_the_cookie_holds_a_hash_of_the_token_that_is_no_bearer_token(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        cookie = cookie_of(await asyncio.to_thread(log_in, served.client))
        value = cookie.partition("=")[2]
        head, _, digest = value.rpartition(".")
        random_part = (served.data / "sessions/key").read_bytes().strip()
        key = hmac.digest(random_part, b"infloop session key\n" + TOKEN.encode(), hashlib.sha256)
        assert digest == hmac.digest(key, head.encode(), hashlib.sha256).hex()
        for hidden in (TOKEN, TOKEN[:12], TOKEN[-12:], TOKEN[::-1], quote(TOKEN)):
            assert hidden not in value
        for encode in (base64.b64encode, base64.urlsafe_b64encode, binascii.hexlify):
            assert encode(TOKEN.encode()).decode()[:12] not in value
        words = (value, digest, head, key.hex(), hashlib.sha256(TOKEN.encode()).hexdigest())
        for word in words:
            stranger = Client(served.client.port, token=word)
            assert (await asyncio.to_thread(stranger.get, "/api/runs")).status == 401


@pytest.mark.claim("I16", "I17")
def test_a_session_outlives_a_restart_and_not_a_change_of_the_token(tmp_path: Path) -> None:
    with process(tmp_path, api_token=TOKEN) as first:
        kept, left = (cookie_of(log_in(first.client)) for _ in range(2))
        Client(first.client.port).ask("POST", "/logout", headers={"cookie": left})
        first.end()
    with process(tmp_path, api_token=TOKEN) as second:
        assert with_cookie(second.client, kept).status == 200
        assert with_cookie(second.client, left).status == 401
        second.end()
    with process(tmp_path, api_token=TOKEN + "2") as third:
        assert with_cookie(third.client, kept).status == 401


FORGED: tuple[Callable[[str], str], ...] = (
    lambda good: good[:-1] + ("0" if good[-1] != "0" else "1"),
    lambda good: good.replace(".", ".9", 1),
    lambda good: "x" + good,
    lambda good: good + "." + good,
    lambda good: good.rpartition(".")[0],
    lambda good: good.rpartition(".")[0] + ".",
    lambda good: good.upper(),
    lambda good: "..",
    lambda good: "",
    lambda good: "a" * 10_000,
    lambda good: "é" + good,
    lambda good: hashlib.sha256(TOKEN.encode()).hexdigest(),
    lambda good: TOKEN,
)


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_cookie_is_no_session(tmp_path: Path, forge: Callable[[str], str]) -> None:
    sessions = Sessions(TOKEN, tmp_path, SetClock())
    good = sessions.open()
    assert sessions.knows(good)
    assert not sessions.knows(forge(good))


def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    clock = SetClock()
    sessions = Sessions(TOKEN, tmp_path, clock)
    cookie = sessions.open()
    clock.forward(SESSION_MS - 1)
    assert sessions.knows(cookie)
    clock.forward(1)
    assert not sessions.knows(cookie)


def test_what_was_logged_out_is_forgotten_once_it_would_have_ended(tmp_path: Path) -> None:
    clock, file = SetClock(), tmp_path / "ended.json"
    sessions = Sessions(TOKEN, tmp_path, clock)
    assert sessions.end(sessions.open())
    clock.forward(2 * SESSION_MS)
    assert sessions.end(sessions.open())
    assert file.read_text().count(":") == 1
    assert oct(file.stat().st_mode)[-3:] == "600"


def test_a_list_of_ended_sessions_that_cannot_be_read_is_not_taken_for_empty(
    tmp_path: Path,
) -> None:
    for broken in ("", "[]", "{", '{"a": "b"}'):
        (tmp_path / "ended.json").write_text(broken)
        with pytest.raises(StoreError, match="logged"):
            Sessions(TOKEN, tmp_path, SetClock())


@pytest.mark.claim("I19")
def test_comparing_a_token_takes_the_same_steps_however_much_is_right() -> None:
    def steps(given: str) -> list[str]:
        taken: list[str] = []

        def note(frame: Any, event: str, argument: Any) -> None:
            taken.append(f"{event} {getattr(argument, '__name__', frame.f_code.co_name)}")

        sys.setprofile(note)
        try:
            same_secret(given, TOKEN)
        finally:
            sys.setprofile(None)
        return taken

    wrong = ["x" * len(TOKEN), TOKEN[:1] + "x" * (len(TOKEN) - 1), TOKEN[:-1] + "x", "", "x" * 99]
    right = steps(TOKEN)
    assert any("compare_digest" in step for step in right)
    assert all(steps(each) == right for each in wrong)


@pytest.mark.claim("I27", "I28")
async def test_all_logins_together_are_held_to_a_limit_and_bearer_tokens_are_not(
    tmp_path: Path,
) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        for number in range(20):
            token = TOKEN if number % 2 else "wrong"
            assert (await asyncio.to_thread(log_in, served.client, token)).status in (303, 401)
        refused = await asyncio.to_thread(log_in, served.client)
        assert (refused.status, refused.json()["error"]) == (429, "rate-limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        for _ in range(30):
            assert (await served.ask("GET", "/api/runs")).status == 200
        served.clock.forward(60_000)
        assert (await asyncio.to_thread(log_in, served.client)).status == 303


@pytest.mark.claim("I27")
async def test_the_operator_sets_how_many_logins_a_minute_there_may_be(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN, login_rate_limit=2) as served:
        statuses = [(await asyncio.to_thread(log_in, served.client)).status for _ in range(3)]
    assert statuses == [303, 303, 429]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_servers_that_share_a_store_count_logins_and_requests_together(
    tmp_path: Path, kind: DatabaseKind
) -> None:
    put_workflow(tmp_path / "data", ECHO)
    limits: dict[str, Any] = {"login_rate_limit": 3, "webhook_rate_limit": 3}
    shared = shared_database(kind, tmp_path)
    async with (
        here(tmp_path, api_token=TOKEN, **limits, **shared) as one,
        here(tmp_path, api_token=TOKEN, **limits, **shared) as two,
    ):

        def look() -> None:
            both = (one.client, two.client, one.client, two.client)
            assert [log_in(each).status for each in both] == [303, 303, 303, 429]
            assert log_in(one.client).status == 429
            hook = make(one.client)["id"]
            sent = [send(each, hook) for each in both]
            assert [each.status for each in sent] == [202, 202, 202, 429]
            assert 1 <= int(sent[-1].headers["retry-after"]) <= 60

        await asyncio.to_thread(look)
