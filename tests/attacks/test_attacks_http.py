"""Strangers, web pages and impostors at the server's door, row by row of a table."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from infloop.policy.secrets import same_secret
from infloop.sandbox.access import Access, Network
from infloop.sandbox.base import ChildRequest
from infloop.web import guards
from infloop.web.credentials import COOKIE
from support.attack_tables import Attack, AttackTable
from support.canaries import PATH, directory_for_children, place
from support.confinement import sandbox_at
from support.login import cookie_of, log_in, with_cookie
from support.server import TOKEN, Client, Here, here, process, put_workflow, raw, refused, workflow

TABLE = AttackTable("http")
ROTATED = f"{TOKEN}-rotated"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


def test_every_row_is_tried() -> None:
    TABLE.check()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """A server without a token and one that has one, both as processes."""
    with contextlib.ExitStack() as stack:
        found = {}
        for door, settings in (("open", {}), ("closed", {"api_token": TOKEN})):
            folder = tmp_path_factory.mktemp(door)
            put_workflow(folder / "data", workflow("tiny", "true"))
            found[door] = stack.enter_context(process(folder, **settings)).client
        yield found


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("open"))
def test_the_open_server_is_open_to_this_machine_alone(
    servers: dict[str, Client], attack: Attack
) -> None:
    send_all(servers["open"], attack)


@pytest.mark.parametrize("attack", TABLE.at("closed"))
def test_without_the_token_nothing_is_answered(servers: dict[str, Client], attack: Attack) -> None:
    send_all(servers["closed"], attack)


def send_all(client: Client, attack: Attack) -> None:
    """Send a row's requests; what they wanted has not happened, and nothing was told."""
    before = state(client)
    for request in attack["send"]:
        said = request.replace("{P}", str(client.port)).replace("{T}", TOKEN)
        got = raw(client.port, said.replace("{E}", "Connection: close\r\n\r\n").encode())
        assert status_of(got) in attack["expect"], (request, got[:300])
        assert b'"tiny"' not in got
        assert b"set-cookie" not in got.lower()
    assert state(client) == before


def state(client: Client) -> tuple[Any, Any]:
    runs = client.get("/api/runs").json()
    return runs, client.get("/api/workflows/tiny").json()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize("attack", TABLE.at("body"))
async def test_a_body_is_not_waited_for_and_not_kept(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    if 408 in attack["expect"]:
        monkeypatch.setattr(guards, "BODY_SECONDS", 0.3)
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    async with here(tmp_path) as served:
        got, sent = await asyncio.to_thread(pour, served.client.port, attack)
        assert status_of(got) in attack["expect"], got[:300]
        # What the kernel holds between the two ends comes on top of the bound.
        assert sent < guards.MAX_BODY_BYTES + (16 << 20)
        assert (await served.ask("GET", "/api/workflows/tiny")).status == 200


def pour(port: int, attack: Attack) -> tuple[bytes, int]:
    """Send a head and pieces after it until there is an answer; return it and what was sent."""
    piece = {"chunk": CHUNK, "plain": b"x" * 0x10000, "none": b""}[attack["piece"]]
    sent, got = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(attack["send"].replace("{P}", str(port)).encode())
        with contextlib.suppress(ConnectionError):
            while piece and sent < attack["most"]:
                connection.sendall(piece)
                sent += len(piece)
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65_536):
                got += more
    return got, sent


# -- sessions --------------------------------------------------------------------------------------


class Browser:
    """Does a row's steps against a server that can be started anew with another token."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.token = TOKEN
        self.cookies: list[str] = []
        self.planted = ""

    async def start(self) -> None:
        opened = here(self.folder, api_token=self.token, login_rate_limit=3)
        self.served: Here = await self.stack.enter_async_context(opened)

    async def step(self, words: str) -> int:
        verb, *rest = words.split()
        if verb == "rotate":
            await self.stack.aclose()
            self.token = ROTATED
            await self.start()
            return 0
        return await asyncio.to_thread(getattr(self, verb), *rest)

    def plant(self, value: str) -> int:
        self.planted = f"{COOKIE}={value}"
        return 0

    def login(self, word: str, *origin: str) -> int:
        token = {"right": self.token, "old": TOKEN}.get(word, word)
        headers = {"x-forwarded-for": origin[1]} if origin else {}
        if self.planted:
            headers["cookie"] = self.planted
        answer = log_in(self.served.client, token, **headers)
        if answer.status == 303:
            self.cookies.append(cookie_of(answer))
        return answer.status

    def logout(self) -> int:
        headers = {"cookie": self.cookies[-1]}
        return Client(self.served.client.port).ask("POST", "/logout", headers=headers).status

    def use(self, what: str) -> int:
        port, value = self.served.client.port, self.cookies[-1].partition("=")[2]
        match what:
            case "token":
                return Client(port, self.token).get("/api/runs").status
            case "cookie-as-bearer":
                return Client(port, value).get("/api/runs").status
            case "seal-as-bearer":
                return Client(port, value.rpartition(".")[2]).get("/api/runs").status
        cookie = {
            "cookie": self.cookies[-1],
            "first-cookie": self.cookies[0],
            "planted": self.planted,
            "token-as-cookie": f"{COOKIE}={self.token}",
            "hash-as-cookie": f"{COOKIE}={hashlib.sha256(self.token.encode()).hexdigest()}",
        }[what]
        return with_cookie(self.served.client, cookie).status


@pytest.mark.parametrize("attack", TABLE.at("session"))
async def test_a_session_is_opened_by_the_token_and_by_nothing_else(
    tmp_path: Path, attack: Attack
) -> None:
    async with AsyncExitStack() as stack:
        browser = Browser(tmp_path, stack)
        await browser.start()
        assert [await browser.step(words) for words in attack["do"]] == attack["expect"]


@pytest.mark.parametrize("attack", TABLE.at("cookie"))
async def test_a_cookie_says_where_it_may_go(tmp_path: Path, attack: Attack) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        (cookie,) = (await asyncio.to_thread(log_in, served.client, **attack["headers"])).cookies
    for word in attack["says"]:
        assert word in cookie
    for word in attack["not"]:
        assert word not in cookie


@pytest.mark.parametrize("attack", TABLE.at("compare"))
def test_comparing_takes_the_same_steps_however_much_agrees(attack: Attack) -> None:
    right = steps(attack["right"], attack["right"])
    assert any("compare_digest" in step for step in right)
    for given in attack["given"]:
        assert not same_secret(given, attack["right"])
        assert steps(given, attack["right"]) == right


def steps(given: str, right: str) -> list[str]:
    """The calls that a comparison makes."""
    taken: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        taken.append(f"{event} {getattr(argument, '__name__', frame.f_code.co_name)}")

    sys.setprofile(note)
    try:
        same_secret(given, right)
    finally:
        sys.setprofile(None)
    return taken


# -- where it listens ------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("start"))
def test_a_server_that_would_be_open_to_all_does_not_start(tmp_path: Path, attack: Attack) -> None:
    for settings in attack["settings"]:
        said = refused(tmp_path, **settings)
        assert attack["says"] in said
        assert not settings.get("api_token", "").strip() or settings["api_token"] not in said


# -- from inside -----------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("child"))
@pytest.mark.parametrize("level", ["guard", "sandbox"])
@pytest.mark.parametrize("network", ["open", "none"])
async def test_a_confined_child_does_not_reach_the_server(
    tmp_path: Path, level: str, network: Network, attack: Attack
) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        # So that the child of another user reaches it where nothing confines it.
        async with here(tmp_path, allow_insecure=True) as served:
            line = attack["line"].replace("{P}", str(served.client.port))
            child = ChildRequest(
                ("sh", "-c", line),
                str(workspace),
                {"PATH": PATH},
                timeout_ms=20_000,
                access=Access(write=(str(workspace),), network=network),
            )
            async with sandbox_at(level, parent) as sandbox:
                confined = await sandbox.run(child)
            assert confined.error == ""
            assert attack["free"] not in confined.stdout + confined.stderr
            assert (await served.ask("GET", "/api/runs")).json()["runs"] == []
            async with sandbox_at("host", parent) as sandbox:
                free = await sandbox.run(child)
            assert attack["free"] in free.stdout
