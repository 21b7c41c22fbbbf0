"""What a confined agent is given: a home for its run, what is listed of the real one, no key."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from infloop.runtime.confinement.homes import Homes, linked_home
from support.eventually import eventually_async
from support.parts import ruled_out
from support.prompt_agent import agent_folder, asking, manifest, settings, theirs
from support.runs import Finished, World, scripted, world
from support.service_user import NOBODY
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-real-0123456789abcdef"
LEVELS = ["host", "guard", "sandbox"]
CONFINED = LEVELS[1:]


@pytest.fixture
def top() -> Iterator[Path]:
    with agent_folder() as folder:
        yield folder


def rounds(code: str, times: int, **config: Any) -> dict[str, Any]:
    agent = node("a", "agent", providerId="it", prompt=code, **config)
    loop = node("l", "loop", [agent], maxIterations=times)
    return workflow([node("s", "start"), loop], edges("s next l"))


async def succeeded(here: World, root: dict[str, Any]) -> Finished:
    ended = await here.run(root)
    assert ended.status == "succeeded", (ended.result, ended.said("stderr"))
    return ended


@contextmanager
def api() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve an API on loopback; yield its address and the fields of each request."""
    asked: list[dict[str, str]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# -- the key ---------------------------------------------------------------------------------


@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_uses_a_key_that_it_does_not_have(
    top: Path, monkeypatch: pytest.MonkeyPatch, level: str, enforced: bool
) -> None:
    code = """
token = os.environ["THE_KEY"]
print(json.dumps({
    "argv": sys.argv[1:], "base": os.environ["BASE"], "env": dict(os.environ),
    "calls": [call("/v1/messages", token), call("/v1/messages", "mine"), call("/v1/files", token)],
}))
"""
    with api() as (url, asked):
        broker: dict[str, Any] = {"dialect": "anthropic", "keyVariable": "THE_KEY", "baseUrl": url}
        broker |= {"baseUrlVariable": "BASE", "args": ["--api={url}/v1"], "withheld": ["OTHER"]}
        manifest(top, args=["ask"], envPassthrough=["THE_*", "COPY", "OTHER"], broker=broker)
        monkeypatch.setenv("THE_KEY", KEY)
        monkeypatch.setenv("COPY", f"Bearer {KEY}")
        monkeypatch.setenv("OTHER", "another secret")
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:{KEY}@127.0.0.1:9")
        async with world(top, **settings(level), egress_enforce=enforced) as here:
            ended = await succeeded(here, asking(code))
    got = json.loads(ended.scope["a"]["stdout"])
    assert got["argv"] == [f"--api={got['base']}/v1", "ask"]
    assert got["calls"] == [200, 401, 403]
    assert [fields["x-api-key"] for fields in asked] == [KEY]
    assert KEY not in json.dumps(got)
    assert not {"COPY", "OTHER"} & set(got["env"])
    assert "127.0.0.1" in got["env"]["NO_PROXY"]
    assert KEY not in str(ended.recorded)


async def test_without_the_key_nothing_is_withheld(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = {"dialect": "anthropic", "keyVariable": "THE_KEY", "baseUrl": "https://example.org"}
    manifest(top, envPassthrough=["OTHER"], broker={**broker, "withheld": ["OTHER"]})
    monkeypatch.setenv("OTHER", "a login of another kind")
    async with world(top, **settings("host")) as here:
        ended = await succeeded(here, asking("print(os.environ['OTHER'][::-1])"))
    assert ended.scope["a"]["stdout"].strip()[::-1] == "a login of another kind"


# -- the home --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", CONFINED)
async def test_a_run_that_paused_finds_the_homes_of_its_agents_when_it_goes_on(
    top: Path, level: str
) -> None:
    manifest(top)
    scripted(top / "data/providers", "paid", *[{"do": [{"cost": 0.6}]}] * 3)
    note = "(home / 'session').open('a').write('x'); print((home / 'session').read_text())"
    body = [
        node("a", "agent", providerId="it", prompt=note),
        node("b", "agent", providerId="paid", prompt="go"),
    ]
    root = workflow(
        [node("s", "start"), node("l", "loop", body, maxIterations=3)],
        edges("s next l", "a next b"),
        onBudget="pause",
        limits={"maxCostUsd": 1.0},
    )
    async with world(top, **settings(level)) as here:
        paused = await here.run(root)
        assert paused.status == "paused", paused.result
        await here.service.recover()
        await here.service.resume(paused.run_id, max_cost_usd=5.0)
        ended = await here.finish(paused.run_id)
    assert ended.status == "succeeded", ended.result
    assert ended.said().split() == ["x", "xx", "xxx"]


@pytest.mark.parametrize("level", CONFINED)
async def test_a_home_lasts_for_a_run_and_shows_what_is_listed(
    top: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    home = top / "home"
    settled = theirs(home / ".it/settings.json", "settings")
    theirs(home / ".it/secret.txt", "canary")
    (home / ".itrc").symlink_to(theirs(top / "dotfiles/itrc", "by link"))
    login = theirs(home / ".it/login", "stale")
    monkeypatch.setenv("HOME", str(home))
    manifest(top, homeRead=[".it/settings.json", ".itrc", ".missing"], homeWrite=[".it/login"])
    code = """
print(listing(), (home / ".it/settings.json").read_text(), (home / ".itrc").read_text())
(home / "kept").write_text("from the round before")
try:
    (home / ".it/settings.json").write_text("planted")
except OSError as error:
    print("not written")
new = home / ".it/login.new"
new.write_text("renewed")
try:
    new.replace(home / ".it/login")
except OSError:
    (home / ".it/login").write_text("renewed")
    new.unlink()
"""
    async with world(top, **settings(level)) as here:
        ended = await succeeded(here, rounds(code, 2))
        again = await succeeded(here, asking("print(listing())"))
        # Where children run as another user, their homes are not in the data directory.
        homes = top / "data/homes"
        await eventually_async(lambda: not homes.exists() or not any(homes.iterdir()), "no home")
    first, second = (line for line in ended.said().splitlines() if line.startswith("["))
    shown = "['.it/login', '.it/settings.json', '.itrc'{}] settings by link"
    assert first == shown.format("")
    assert second == shown.format(", 'kept'")
    assert "'kept'" not in again.scope["a"]["stdout"]
    assert login.read_text() == "renewed"
    assert settled.read_text() == "settings"
    assert not (home / "kept").exists()


@pytest.mark.parametrize("level", CONFINED)
async def test_who_uses_a_key_without_having_it_does_not_see_a_login_either(
    top: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    theirs(top / "home/.it/login", "canary")
    monkeypatch.setenv("HOME", str(top / "home"))
    monkeypatch.setenv("THE_KEY", KEY)
    broker = {"dialect": "anthropic", "keyVariable": "THE_KEY", "baseUrl": "https://example.org"}
    manifest(top, homeWrite=[".it/login"], broker=broker)
    async with world(top, **settings(level)) as here:
        ended = await succeeded(here, asking("print(listing())"))
    assert ended.scope["a"]["stdout"].strip() == "[]"


async def test_a_rewound_run_begins_a_new_session_and_says_so(top: Path) -> None:
    said = {"type": "system", "subtype": "init", "session_id": "s-1"}
    done = {"type": "result", "subtype": "success", "result": "done", "session_id": "s-1"}
    code = f"print({json.dumps(said)!r})\nprint({json.dumps(done)!r})\n"
    code += "open('asked.txt', 'a').write(' '.join(sys.argv[1:]) + ';')"
    manifest(top, outputFormat="claude-stream-json", resumeArgs=["--resume", "{session}"])
    async with world(top, **settings("guard")) as here:
        first = await succeeded(here, rounds(code, 2, continueSession=True))
        new = await here.service.rewind(first.run_id, "l[2]/a")
        ended = await here.finish(new)
    assert (top / "work/asked.txt").read_text() == ";--resume s-1;;"
    assert (
        "[session] the home that held it is gone: a new session begins"
        in (ended.scope["a"]["transcript"])
    )


# -- a home that was in an agent's hands --------------------------------------------------------


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A kept home, a real one with a login, and a place outside of both."""
    kept, real, outside = (tmp_path / name for name in ("kept", "real", "outside"))
    for each in (kept, real / ".it", outside):
        each.mkdir(parents=True)
    (real / ".it/login").write_text("real")
    return kept, real, outside


def plant_link_above(kept: Path, outside: Path) -> None:
    (kept / ".it").symlink_to(outside)


def plant_link(kept: Path, outside: Path) -> None:
    (kept / ".it").mkdir()
    (outside / "login").write_text("outside")
    (kept / ".it/login").symlink_to(outside / "login")


def plant_file(kept: Path, _: Path) -> None:
    (kept / ".it").mkdir()
    (kept / ".it/login").write_text("forged")


def plant_folder(kept: Path, _: Path) -> None:
    (kept / ".it/login").mkdir(parents=True)


def plant_pipe(kept: Path, _: Path) -> None:
    (kept / ".it").mkdir()
    os.mkfifo(kept / ".it/login")


@pytest.mark.parametrize(
    "plant", [plant_link_above, plant_link, plant_file, plant_folder, plant_pipe]
)
def test_what_an_agent_left_in_the_way_leads_nowhere(
    homes: tuple[Path, Path, Path], plant: Any
) -> None:
    kept, real, outside = homes
    plant(kept, outside)
    before = sorted(outside.rglob("*"))
    login = str(real / ".it/login")
    with linked_home(str(kept), str(real), [], [login], mounted=False):
        pass
    assert sorted(outside.rglob("*")) == before
    assert (real / ".it/login").read_text() == "real"


@pytest.mark.parametrize(
    "replace_by",
    [
        lambda file, outside: file.symlink_to(outside / "secret"),
        lambda file, _: os.mkfifo(file),
        lambda file, _: file.mkdir(),
        lambda file, _: file.write_text(""),
        lambda file, _: file.write_bytes(b"x" * (2 << 20)),
    ],
    ids=["link", "pipe", "folder", "empty", "large"],
)
def test_only_a_plain_file_is_brought_back(homes: tuple[Path, Path, Path], replace_by: Any) -> None:
    kept, real, outside = homes
    (outside / "secret").write_text("secret")
    login = str(real / ".it/login")
    with linked_home(str(kept), str(real), [], [login], mounted=False):
        (kept / ".it/login").unlink()
        replace_by(kept / ".it/login", outside)
    assert (real / ".it/login").read_text() == "real"


def test_a_login_of_somebody_else_is_not_replaced(homes: tuple[Path, Path, Path]) -> None:
    if os.geteuid() != 0:
        ruled_out("only root can give files away")
    kept, real, _ = homes
    os.chown(kept, NOBODY, NOBODY)
    login = str(real / ".it/login")
    with linked_home(str(kept), str(real), [], [login], mounted=False):
        (kept / ".it/login").unlink()
        (kept / ".it/login").write_text("forged")
        os.chown(kept / ".it/login", NOBODY, NOBODY)
    assert (real / ".it/login").read_text() == "real"


async def test_homes_of_runs_that_are_over_are_removed(tmp_path: Path) -> None:
    homes = Homes(tmp_path / "homes")
    for run in ("over", "going-on"):
        (Path(homes.make(run, "a")) / "deep/er").mkdir(parents=True)

    async def is_over(run_id: str) -> bool:
        return run_id == "over"

    await homes.recover(is_over)
    assert not homes.exists("over", "a")
    assert homes.exists("going-on", "a")
    assert not homes.exists("going-on", "b")
