"""The token that the server makes for itself, and the link that logs a browser in once."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infloop.errors import StoreError
from infloop.store.secret_file import keep_secret, read_secret
from support import forkserver
from support.login import cookie_of, log_in, with_cookie
from support.server import (
    Client,
    Process,
    environment,
    here,
    infloop,
    process,
    put_workflow,
    refused,
    workflow,
)


def token_in(folder: Path) -> str:
    return (folder / "data/api-token").read_text().strip()


def link_of(served: Process) -> str:
    """The path of the link that a server prints after its address."""
    assert served.process.stdout is not None
    line = served.process.stdout.readline()
    address = served.said.split()[-1]
    words, _, link = line.strip().rpartition(" ")
    assert words == "log in, once:"
    assert link.startswith(f"{address}/login?code=")
    return link.removeprefix(address)


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_a_server_makes_its_own_token_and_keeps_it(tmp_path: Path, way: str) -> None:
    arguments = ("--token", "auto") if way == "argument" else ()
    settings = {} if way == "argument" else {"api_token": "auto"}
    with process(tmp_path, *arguments, **settings) as served:
        token = token_in(tmp_path)
        assert len(token) >= 43
        file = tmp_path / "data/api-token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        port = served.client.port
        assert Client(port).get("/api/runs").status == 401
        assert Client(port, "auto").get("/api/runs").status == 401
        assert Client(port, token).get("/api/runs").status == 200
        assert served.end() == 0
    with process(tmp_path, *arguments, **settings) as again:
        assert token_in(tmp_path) == token
        assert Client(again.client.port, token).get("/api/runs").status == 200
    assert token not in (tmp_path / "stderr").read_text()


def test_the_link_logs_a_browser_in_once(tmp_path: Path) -> None:
    with process(tmp_path, "--token", "auto") as served:
        browser = Client(served.client.port)
        link = link_of(served)
        assert token_in(tmp_path) not in link
        ahead = browser.get(link, **{"sec-purpose": "prefetch"})
        assert (ahead.status, ahead.cookies) == (200, ())
        page = browser.ask("HEAD", link)
        assert page.cookies == ()
        first = browser.get(link)
        assert (first.status, first.headers["location"]) == (303, "/")
        assert "HttpOnly" in first.cookies[0]
        assert "samesite=strict" in first.cookies[0].lower()
        cookie = cookie_of(first)
        assert with_cookie(browser, cookie).status == 200
        again = browser.get(link)
        assert (again.status, again.cookies) == (401, ())
        audit = with_cookie(browser, cookie, "/api/audit?event=login").json()["entries"]
        assert [(entry["event"], entry["outcome"]) for entry in audit] == [
            ("login.failed", "wrong-link"),
            ("login.succeeded", "link"),
        ]
        assert link.partition("=")[2] not in str(audit)


@pytest.mark.parametrize("code", ["x", "auto", "%C3%A9", "%00", "a" * 3_000, "..", "{}"])
async def test_a_code_that_nobody_made_opens_nothing(tmp_path: Path, code: str) -> None:
    async with here(tmp_path, api_token="auto") as served:
        made = served.server.web.logins.make_code()
        for given in (code, made[:-1], made + "x", made.upper(), f"{made}%20"):
            answer = await served.ask("GET", f"/login?code={given}")
            assert (answer.status, answer.cookies) == (401, ())
        assert (await served.ask("GET", f"/login?code={made}")).status == 303


async def test_a_link_is_too_old_after_an_hour_and_tries_are_counted(tmp_path: Path) -> None:
    async with here(tmp_path, api_token="auto", login_rate_limit=3) as served:
        made = served.server.web.logins.make_code()
        served.clock.forward(3_600_000)
        statuses = [(await served.ask("GET", f"/login?code={made}")).status for _ in range(4)]
        assert statuses == [401, 401, 401, 429]


async def test_two_browsers_with_one_link_are_one_session(tmp_path: Path) -> None:
    async with here(tmp_path, api_token="auto") as served:
        made = served.server.web.logins.make_code()
        assert (await served.ask("GET", "/login")).status == 200
        asked = [served.ask("GET", f"/login?code={made}") for _ in range(4)]
        statuses = sorted(answer.status for answer in await asyncio.gather(*asked))
    assert statuses == [303] + [401] * 3


def test_the_token_from_the_file_logs_in_at_the_form(tmp_path: Path) -> None:
    with process(tmp_path, "--token", "auto") as served:
        assert log_in(served.client, token_in(tmp_path)).status == 303
        assert log_in(served.client, "auto").status == 401


def test_commands_and_mcp_need_no_token_beside_a_server_that_has_one(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    with process(tmp_path, "--token", "auto") as served:
        client = Client(served.client.port, token_in(tmp_path))
        assert client.run("tiny")["status"] == "succeeded"
        listed = json.loads(infloop(tmp_path, "runs", "--json").stdout)
        assert "tiny" in str(listed)
        assert infloop(tmp_path, "approvals").returncode == 0
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
        said = subprocess.run(
            [forkserver.PROGRAMS / "infloop", "mcp"],
            cwd=tmp_path,
            env=forkserver.for_others(environment(tmp_path)),
            input=json.dumps(hello) + "\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert json.loads(said.stdout.splitlines()[0])["result"]["serverInfo"]


def test_a_run_that_prints_the_token_shows_nothing_of_it(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("leak", f"cat {tmp_path}/data/api-token"))
    put_workflow(tmp_path / "data", workflow("key", f"cat {tmp_path}/data/sessions/key"))
    with process(tmp_path, "--token", "auto") as served:
        client = Client(served.client.port, token_in(tmp_path))
        key = (tmp_path / "data/sessions/key").read_text().strip()
        for name, secret in (("leak", client.token), ("key", key)):
            run = client.run(name)
            assert secret not in str(run)
            assert "[redacted:" in str(run)
        done = infloop(tmp_path, "run", "leak")
        assert client.token not in done.stdout + done.stderr


def test_the_variables_of_children_do_not_hold_the_token(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("look", f"env | sort > {tmp_path}/seen"))
    with process(tmp_path, api_token="auto") as served:
        client = Client(served.client.port, token_in(tmp_path))
        client.run("look")
        seen = (tmp_path / "seen").read_text()
        assert "PATH=" in seen
        assert client.token not in seen
        assert "INFLOOP_" not in seen


def test_any_other_word_is_no_token_on_the_command_line(tmp_path: Path) -> None:
    assert "auto" in refused(tmp_path, "--token", "my-own-token")


def test_a_server_without_a_token_recommends_one(tmp_path: Path) -> None:
    with process(tmp_path) as served:
        assert served.process.stdout is not None
        assert "--token auto" in served.process.stdout.readline()
        assert not (tmp_path / "data/api-token").exists()


def test_a_network_address_is_served_with_the_token_that_the_server_made(tmp_path: Path) -> None:
    with process(tmp_path, "--host", "0.0.0.0", "--token", "auto") as served:
        assert served.process.stdout is not None
        link = served.process.stdout.readline().split()[-1]
        assert link.startswith(f"http://127.0.0.1:{served.client.port}/login?code=")
        path = link.partition(f":{served.client.port}")[2]
        assert Client(served.client.port).get(path).status == 303


# -- the file --------------------------------------------------------------------------------------


def test_a_secret_is_made_once_however_many_ask_for_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secret"
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: keep_secret(file), range(64)))
    assert len(found) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == ["secret"]


def test_secrets_are_different(tmp_path: Path) -> None:
    assert len({keep_secret(tmp_path / str(number)) for number in range(20)}) == 20


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o606, 0o610])
def test_a_secret_that_others_could_have_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    kept = keep_secret(file)
    file.chmod(mode)
    for read in (keep_secret, read_secret):
        with pytest.raises(StoreError, match="others can read") as error:
            read(file)
        assert kept not in str(error.value)


@pytest.mark.parametrize("content", ["", "short", "a b" * 30, "é" * 60, "x" * 50 + "\0"])
def test_what_infloop_did_not_write_is_no_secret(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(StoreError, match="Remove the file"):
        keep_secret(file)


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory"])
def test_only_a_regular_file_holds_a_secret(tmp_path: Path, kind: str) -> None:
    file, target = tmp_path / "secret", tmp_path / "target"
    keep_secret(target)
    match kind:
        case "link":
            file.symlink_to(target)
        case "dangling":
            file.symlink_to(tmp_path / "nowhere")
        case "fifo":
            os.mkfifo(file, 0o600)
        case _:
            file.mkdir(0o700)
    with pytest.raises(StoreError, match="Remove the file"):
        keep_secret(file)
    assert not (tmp_path / "nowhere").exists()


def test_a_server_whose_token_others_could_have_read_does_not_start(tmp_path: Path) -> None:
    with process(tmp_path, "--token", "auto") as served:
        assert served.client.port
    file = tmp_path / "data/api-token"
    file.chmod(0o644)
    said = forkserver.run(("serve", "--token", "auto"), tmp_path, environment(tmp_path), 60)
    assert said.returncode != 0
    assert "Remove the file" in said.stderr
    assert "Traceback" not in said.stderr
    assert file.read_text().strip() not in said.stderr
