"""Wrong credentials are limited and audited; what fails says nothing but its correlation id."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infloop.application.refused_access import PER_MINUTE
from infloop.application.sessions import Sessions
from infloop.lowlevel.directory_lock import lock_directory
from infloop.policy.repetitions import WINDOW_MS, Repetitions
from infloop.runtime.clock import SetClock
from infloop.web.api import create_api
from infloop.web.app import create_app
from infloop.web.http_server import bind_port, serve
from support.eventually import eventually
from support.login import cookie_of, log_in, with_cookie
from support.server import TOKEN, Answer, Client, Here, here, process, put_workflow, raw, workflow


def wrong_bearer(client: Client, number: int) -> Answer:
    return Client(client.port, f"wrong-{number}").get("/api/runs")


def forged_cookie(client: Client, number: int) -> Answer:
    return with_cookie(client, f"infloop_session=id.99999999999999.{number:064x}")


@pytest.mark.parametrize("ask", [wrong_bearer, forged_cookie])
async def test_wrong_credentials_of_one_sender_are_limited_and_the_right_ones_are_not(
    tmp_path: Path, ask: Callable[[Client, int], Answer]
) -> None:
    def look(client: Client) -> None:
        cookie = cookie_of(log_in(client))
        answers = [ask(client, number) for number in range(PER_MINUTE + 5)]
        assert [answer.status for answer in answers] == [401] * PER_MINUTE + [429] * 5
        assert answers[-1].json()["error"] == "rate-limited"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert client.get("/api/runs").status == 200
        assert with_cookie(client, cookie).status == 200
        assert Client(client.port).get("/api/runs").status == 401
        assert Client(client.port).get("/login").status == 200
        assert Client(client.port).get("/").status == 303
        assert 'limited_total{what="access"} 5.0' in client.get("/metrics").body.decode()

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)
        served.clock.forward(60_000)
        assert (await asyncio.to_thread(ask, served.client, 0)).status == 401


async def test_of_many_wrong_credentials_few_are_in_the_audit_log_with_their_number(
    tmp_path: Path,
) -> None:
    def look(client: Client) -> list[dict[str, Any]]:
        for number in range(150):
            wrong_bearer(client, number)
        for number in range(9):
            forged_cookie(client, number)
        entries: list[dict[str, Any]] = client.get("/api/audit?event=access").json()["entries"]
        return entries[::-1]

    async with here(tmp_path, api_token=TOKEN) as served:
        entries = await asyncio.to_thread(look, served.client)
    told = [(entry["outcome"], entry["details"]) for entry in entries]
    assert told == [
        ("wrong-token", {"sender": "127.0.0.1", "count": 1}),
        ("wrong-token", {"sender": "127.0.0.1", "count": 10}),
        ("wrong-token", {"sender": "127.0.0.1", "count": 100}),
        ("wrong-session", {"sender": "127.0.0.1", "count": 1}),
    ]
    assert {entry["actor"]["kind"] for entry in entries} == {"anonymous"}
    assert "wrong-1" not in str([entry["details"] for entry in entries])
    assert all(entry["correlationId"].startswith("cid_") for entry in entries)


async def test_a_request_without_credentials_is_no_wrong_one(tmp_path: Path) -> None:
    def look(client: Client) -> None:
        stranger = Client(client.port)
        statuses = {stranger.get("/api/runs").status for _ in range(PER_MINUTE + 5)}
        assert statuses == {401}
        assert client.get("/api/audit?event=access").json()["entries"] == []

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


async def test_a_wrong_token_is_refused_although_it_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infloop.store.audit.files._LOCK_SECONDS", 0.05)

    def look(client: Client) -> None:
        assert client.get("/api/runs").status == 200
        (tmp_path / "data/audit").mkdir(exist_ok=True)
        with lock_directory(tmp_path / "data/audit", 5, "testing"):
            assert wrong_bearer(client, 1).status == 401

    async with here(tmp_path, api_token=TOKEN) as served:
        await asyncio.to_thread(look, served.client)


TWO_HEADERS = (
    (f"Bearer {TOKEN}", f"Bearer {TOKEN}"),
    (f"Bearer {TOKEN}", "Bearer wrong"),
    ("Bearer wrong", f"Bearer {TOKEN}"),
    ("", f"Bearer {TOKEN}"),
    (f"Bearer {TOKEN}", ""),
    ("Basic eDp5", f"Bearer {TOKEN}"),
)


@pytest.mark.parametrize("given", TWO_HEADERS, ids=str)
async def test_two_authorization_headers_are_no_credential(
    tmp_path: Path, given: tuple[str, str]
) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        cookie = cookie_of(await asyncio.to_thread(log_in, served.client))
        head = "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += "".join(f"Authorization: {value}\r\n" for value in given)
        for more in ("", f"Cookie: {cookie}\r\n"):
            request = f"{head}{more}\r\n".encode()
            got = await asyncio.to_thread(raw, served.client.port, request)
            assert got.startswith(b"HTTP/1.1 401"), got[:200]


def test_a_million_repetitions_are_seven_lines() -> None:
    repetitions = Repetitions()
    lines = [number for at in range(1_000_000) if (number := repetitions.count("a", at // 100))]
    assert lines == [10**power for power in range(7)]


def test_repetitions_are_bounded_whoever_causes_them() -> None:
    repetitions = Repetitions(max_keys=10, per_minute=5)
    assert sum(bool(repetitions.count(str(n), 0)) for n in range(1_000)) == 5
    assert len(repetitions._counts) == 10
    assert repetitions.count("later", 60_000) == 1


def test_a_quiet_key_starts_again() -> None:
    repetitions = Repetitions()
    assert [repetitions.count("a", 0) for _ in range(3)] == [1, 0, 0]
    assert repetitions.count("a", WINDOW_MS) == 1


# -- sessions --------------------------------------------------------------------------------------


def test_the_token_alone_makes_no_cookie(tmp_path: Path) -> None:
    clock = SetClock()
    (tmp_path / "a").mkdir(0o700)
    (tmp_path / "b").mkdir(0o700)
    here_, elsewhere = (Sessions(TOKEN, tmp_path / name, clock) for name in ("a", "b"))
    assert here_.knows(here_.open())
    assert not here_.knows(elsewhere.open())
    assert Sessions(TOKEN, tmp_path / "a", clock).knows(here_.open())
    assert not Sessions(f"{TOKEN}2", tmp_path / "a", clock).knows(here_.open())


def test_a_server_without_a_token_keeps_no_key(tmp_path: Path) -> None:
    with process(tmp_path) as served:
        assert served.client.get("/api/runs").status == 200
        assert not (tmp_path / "data/sessions").exists()


# -- failures --------------------------------------------------------------------------------------

DETAIL = "s3cr3t detail of a failure"


async def failing(*_: object) -> None:
    raise RuntimeError(DETAIL)


async def test_what_fails_is_answered_500_with_a_correlation_id_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with here(tmp_path) as served:
        web = served.server.web
        api = await asyncio.to_thread(create_api, web, failing)
        apps = {
            "below the guards": (create_app(web, failing), "/anything"),
            "below the framework": (create_app(web, api), "/api/mcp"),
        }
        for where, (app, path) in apps.items():
            answer = await asked(served, app, path)
            assert answer.status == 500, where
            body = answer.json()
            assert sorted(body) == ["correlationId", "error", "message"]
            assert body["error"] == "internal"
            assert DETAIL not in answer.body.decode()
            assert "RuntimeError" not in answer.body.decode()
            assert body["correlationId"] == answer.headers["x-correlation-id"]
            assert body["correlationId"] in caplog.text
            assert DETAIL in caplog.text
            assert answer.headers["x-content-type-options"] == "nosniff"
            caplog.clear()


async def asked(served: Here, app: Any, path: str) -> Answer:
    """What a server with another application answers."""
    stopping, ready = asyncio.Event(), asyncio.Event()
    web = served.server.web
    with bind_port("127.0.0.1", 0, lambda port: None) as listening:
        serving = asyncio.create_task(
            serve(app, web.connections, web.streams, listening, stopping, ready.set)
        )
        await ready.wait()
        client = Client(listening.getsockname()[1])
        answer = await asyncio.to_thread(client.post, path, {})
        stopping.set()
        await serving
    return answer


def test_a_server_that_cannot_store_runs_is_not_ready_and_says_nothing_else(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    with process(tmp_path, api_token=TOKEN) as served:
        stranger = Client(served.client.port)
        assert stranger.get("/readyz").status == 200
        (database,) = (tmp_path / "data").glob("*.db")
        with sqlite3.connect(database) as connection:
            connection.execute("ALTER TABLE queued RENAME TO hidden")
        refused = stranger.get("/readyz")
        assert (refused.status, refused.json()["error"]) == (503, "not-ready")
        assert refused.headers["retry-after"] == "5"
        assert "queued" not in refused.body.decode()
        assert stranger.get("/healthz").status == 200
        with sqlite3.connect(database) as connection:
            connection.execute("ALTER TABLE hidden RENAME TO queued")
        eventually(lambda: stranger.get("/readyz").status == 200)
        assert served.client.run("tiny")["status"] == "succeeded"
