"""The real `claude` and `codex` in whole runs, confined as another user, with a key of ours.

`make test-agents` runs these too. The model is a fake one on loopback; infloop reaches it through
its broker, and the agents reach nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.record import PATCH
from infloop.model.events import Notice, Output, RunStarted, TreeSaved
from infloop.providers import SHIPPED_DIR
from support.agent_programs import CODEX_CONFIG, leave_the_network, need_agents
from support.confined_agents import Place, asking, once, place, rounds
from support.eventually import eventually_async
from support.fake_model import CACHED, READ, WRITTEN, Asked, FakeModel, Say, Turn, Use
from support.runs import Finished, World
from support.service_user import CHILD_UID

pytestmark = pytest.mark.agents

DEADLINE_S = 60.0
DONE = [Say("It is DONE")]
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY"}
OPEN, ENFORCED = {"egress_enforce": False}, {"egress_enforce": True}


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    need_agents()
    leave_the_network()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with place(monkeypatch) as made:
        yield made


@pytest.fixture
def key() -> str:
    return f"sk-ant-api03-{secrets.token_hex(24)}"


class Ours:
    """infloop with a key, a model behind it, and agents that use the one by way of the other."""

    def __init__(self, here: Place, model: FakeModel, world: World) -> None:
        self.place = here
        self.model = model
        self.world = world

    async def run(self, root: dict[str, Any]) -> Finished:
        async with asyncio.timeout(DEADLINE_S):
            ended = await self.world.run(root)
        assert ended.status == "succeeded", (ended.result, ended.said("stderr"), warnings(ended))
        return ended


@asynccontextmanager
async def brokered(
    here: Place,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    level: str,
    key: str,
    *turns: Turn,
    **settings: Any,
) -> AsyncIterator[Ours]:
    async with FakeModel(*turns) as model:
        monkeypatch.setenv(KEYS[provider], key)
        if provider == "claude":
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        else:
            shipped = json.loads((SHIPPED_DIR / "codex.json").read_text())
            here.manifest("codex", broker={**shipped["broker"], "baseUrl": model.url})
        async with here.world(level, **settings) as world:
            yield Ours(here, model, world)


def writing(provider: str, file: Path) -> Use:
    """The use of a tool that makes `file` with a line in it."""
    if provider == "claude":
        return Use("Write", {"file_path": str(file), "content": "hello\n"})
    return Use("exec_command", {"cmd": PATCH})


def running(provider: str, command: str) -> Use:
    if provider == "claude":
        return Use("Bash", {"command": command, "description": "run it"})
    return Use("exec_command", {"cmd": command})


def warnings(ended: Finished) -> list[str]:
    found = [r.event for r in ended.recorded if isinstance(r.event, Notice)]
    return [event.message for event in found if event.level == "warning"]


def said_to(asked: Asked) -> str:
    body = asked.body
    return str(body.get("messages") or body.get("input"))


@pytest.mark.parametrize(
    ("provider", "level", "egress"),
    [
        ("claude", "host", ENFORCED),
        ("claude", "guard", OPEN),
        ("claude", "guard", ENFORCED),
        ("claude", "sandbox", OPEN),
        ("claude", "sandbox", ENFORCED),
        ("codex", "host", OPEN),
        ("codex", "guard", ENFORCED),
        ("codex", "sandbox", OPEN),
        ("codex", "sandbox", ENFORCED),
    ],
)
async def test_it_edits_a_file_and_runs_a_command_where_it_is_confined(
    here: Place,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    provider: str,
    level: str,
    egress: dict[str, Any],
) -> None:
    outside = here.folder / "outside.txt"
    outside.write_text("canary-outside")
    looks = f"id -u > uid.txt; cat {outside} > seen.txt; touch {here.folder}/home/planted; true"
    turns: list[Turn] = [[Say("I write."), writing(provider, here.work / "hello.txt")]]
    turns += [[running(provider, looks)], DONE]
    async with brokered(here, monkeypatch, provider, level, key, *turns, **egress) as ours:
        ended = await ours.run(once(asking(provider)))
    assert (here.work / "hello.txt").read_text() == "hello\n"
    assert (here.work / "uid.txt").read_text() == f"{CHILD_UID}\n"
    assert ((here.work / "seen.txt").read_text() == "canary-outside") == (level == "host")
    assert (here.home / "planted").exists() == (level == "host")
    started = ended.recorded[0].event
    assert isinstance(started, RunStarted)
    assert (started.isolation, started.egress) == (
        level,
        "allowlist" if egress["egress_enforce"] else "open",
    )
    outputs = ended.scope["a"]
    assert outputs["stdout"] == "I write.\nIt is DONE"
    assert outputs["tokens"] == {"input": 3 * READ, "output": 3 * WRITTEN, "cached": 3 * CACHED}
    assert 0 < outputs["costUsd"] < 0.1
    shown = [r.seq for r in ended.recorded if isinstance(r.event, Output)]
    assert len(shown) > 1, "it is shown as it comes"
    if provider == "claude":  # it opens its connection first, without a token
        assert warnings(ended) == []
    assert here.processes() == []


@pytest.mark.parametrize("provider", ["claude", "codex"])
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_the_next_round_continues_its_session(
    here: Place, monkeypatch: pytest.MonkeyPatch, key: str, provider: str, level: str
) -> None:
    agent = asking(provider, "The one question", continueSession=True)
    async with brokered(here, monkeypatch, provider, level, key, DONE, **ENFORCED) as ours:
        ended = await ours.run(rounds(agent, 2))
        heard = [said_to(asked) for asked in ours.model.asked]
        homes = [path for path, _ in here.texts() if "homes" in path.parts]
    assert [text.count("The one question") for text in heard] == [1, 2]
    assert ended.scope["a"]["sessionTokens"]["input"] == 2 * READ
    assert homes == [], "what an agent kept is gone with its run"


@pytest.mark.parametrize(
    ("provider", "level"), [("claude", "guard"), ("claude", "sandbox"), ("codex", "sandbox")]
)
async def test_cancelled_it_leaves_no_process_and_no_home(
    here: Place, monkeypatch: pytest.MonkeyPatch, key: str, provider: str, level: str
) -> None:
    slow = running(provider, "touch started; (setsid sleep 1000 &) ; sleep 1000")
    async with brokered(
        here, monkeypatch, provider, level, key, [Say("I wait."), slow], DONE, **ENFORCED
    ) as ours:
        run_id = await ours.world.start(once(asking(provider)))
        await eventually_async((here.work / "started").exists, within_s=DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            assert here.processes() != []
            await ours.world.service.stop(run_id, "enough")
            ended = await ours.world.finish(run_id)
        assert ended.status == "cancelled"
        assert here.processes() == []


# -- the key ---------------------------------------------------------------------------------

# Everything an agent can look through. The pattern does not match itself.
SEARCH = """
env > env.txt
cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n' > environ.txt
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > cmdline.txt
grep -rhoE 'sk-ant-api0[3]-[0-9a-f]+' "$HOME" /tmp /var/tmp /dev/shm "${TMPDIR:-/tmp}" . \
  > found.txt 2>/dev/null
cp -r "$HOME" itshome 2>/dev/null
true
"""


@pytest.mark.parametrize(
    ("provider", "level", "egress"),
    [
        ("claude", "host", OPEN),
        ("claude", "guard", ENFORCED),
        ("claude", "sandbox", ENFORCED),
        ("codex", "guard", OPEN),
        ("codex", "sandbox", ENFORCED),
    ],
)
async def test_its_key_is_nowhere_to_be_found_and_yet_used(
    here: Place,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    provider: str,
    level: str,
    egress: dict[str, Any],
) -> None:
    for copy in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_SMALL_FAST_MODEL", "OPENAI_API_KEY"):
        monkeypatch.setenv(copy, key)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{key}@127.0.0.1:9")
    search = running(provider, SEARCH)
    async with brokered(here, monkeypatch, provider, level, key, [search], DONE, **egress) as ours:
        ended = await ours.run(once(asking(provider)))
        shown = [asked.headers for asked in ours.model.asked]
    environment = (here.work / "env.txt").read_text() + (here.work / "environ.txt").read_text()
    (token,) = {
        line.partition("=")[2]
        for line in environment.splitlines()
        if line.startswith(f"{KEYS[provider]}=")
    }
    assert len(token) >= 32
    field, scheme = {"claude": ("x-api-key", ""), "codex": ("authorization", "Bearer ")}[provider]
    assert {headers[field] for headers in shown} == {f"{scheme}{key}"}
    assert token not in str(shown)
    assert key not in (here.work / "found.txt").read_text()
    assert (here.work / "cmdline.txt").read_text() != ""
    assert [path for path, data in here.texts() if key.encode() in data] == []
    assert key not in str(ended.recorded)
    assert key not in str(ended.scope)


CALLS = """
import json, os, sys, urllib.request, urllib.error
base = os.environ["ANTHROPIC_BASE_URL"]
def call(path, key):
    request = urllib.request.Request(
        base + path, b'{"model": "m", "messages": []}',
        {"x-api-key": key, "content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
own = os.environ["ANTHROPIC_API_KEY"]
old = open("token.txt").read() if os.path.exists("token.txt") else "none"
print(json.dumps({
    "own": call("/v1/messages", own), "old": call("/v1/messages", old),
    "thief": call("/v1/messages", "sk-ant-of-a-thief"), "files": call("/v1/files", own),
    "dots": call("/v1/messages/../files", own)}), file=open("calls.json", "w"))
open("token.txt", "w").write(own)
open("base.txt", "w").write(base)
"""


@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_a_token_is_worth_its_own_run_and_its_own_calls(
    here: Place, monkeypatch: pytest.MonkeyPatch, key: str, level: str
) -> None:
    (here.work / "calls.py").write_text(CALLS)
    tool = running("claude", "/usr/bin/python3 calls.py")
    answers = []
    async with brokered(
        here, monkeypatch, "claude", level, key, [tool], DONE, [tool], DONE, **ENFORCED
    ) as ours:
        for _ in range(2):
            await ours.run(once(asking("claude")))
            answers.append(json.loads((here.work / "calls.json").read_text()))
        asked = {item.path.partition("?")[0] for item in ours.model.asked}
    first, second = answers
    refused = {"thief": 401, "files": 403, "dots": 400}
    assert first == {"own": 200, "old": 401, **refused}
    assert second == {"own": 200, "old": 401, **refused}, "the first run's token is an old one now"
    assert asked == {"/v1/messages"}


# -- the home --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_it_finds_what_its_manifest_lists_of_the_home_and_no_more(
    here: Place, monkeypatch: pytest.MonkeyPatch, key: str, level: str
) -> None:
    here.put(".claude/CLAUDE.md", "Remember the word xyzzy.")
    here.put(".claude/projects/other/session.jsonl", "canary-of-another-session")
    here.put(".claude.json", '{"mcpServers": {}, "note": "canary-config"}')
    here.put(".ssh/id_ed25519", "canary-ssh")
    dotfiles = here.put("dotfiles/gitconfig", "[user]\n\tname = Dee\n")
    (here.home / ".gitconfig").symlink_to(dotfiles)
    login = here.put(".claude/.credentials.json", "canary-login")
    looks = """git config user.name > name.txt
grep -rhE "c[a]nary" "$HOME" > found.txt 2>/dev/null
echo '{"hooks": {}}' > "$HOME/.claude/settings.json"; echo x >> "$HOME/.claude/CLAUDE.md"; true"""
    async with brokered(
        here, monkeypatch, "claude", level, key, [running("claude", looks)], DONE
    ) as ours:
        await ours.run(once(asking("claude")))
        heard = str([asked.body for asked in ours.model.asked])
    assert "xyzzy" in heard
    assert (here.work / "name.txt").read_text() == "Dee\n"
    assert "canary" not in (here.work / "found.txt").read_text()
    assert (here.home / ".claude/CLAUDE.md").read_text() == "Remember the word xyzzy."
    assert not (here.home / ".claude/settings.json").exists(), "it planted nothing"
    assert login.read_text() == "canary-login"


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_login_that_it_renews_is_renewed_for_all(
    here: Place, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    # As `claude` does it: to a file beside it, which takes its place or, failing that, is copied.
    renews = """cd "$HOME/.claude" && echo renewed > .credentials.json.tmp &&
(mv -f .credentials.json.tmp .credentials.json || cp .credentials.json.tmp .credentials.json)"""
    login = here.put(".claude/.credentials.json", "stale")
    async with FakeModel([running("claude", renews)], DONE) as model:
        port = int(model.url.rpartition(":")[2])
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-the-agent")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        async with here.world(level, **ENFORCED) as world:
            ours = Ours(here, model, world)
            await ours.run(once(asking("claude"), allowLocal=[port]))
    assert login.read_text() == "renewed\n"
    assert model.asked[0].headers["authorization"] == "Bearer of-the-agent"


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_codex_finds_its_own_configuration(
    here: Place, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    async with FakeModel(DONE) as model:
        here.put(".codex/config.toml", CODEX_CONFIG.format(url=model.url))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-agent")
        port = int(model.url.rpartition(":")[2])
        async with here.world(level, **ENFORCED) as world:
            ours = Ours(here, model, world)
            await ours.run(once(asking("codex", profile=""), allowLocal=[port]))
    assert model.asked[0].body["model"] == "gpt-5-codex"
    assert model.asked[0].headers["authorization"] == "Bearer sk-of-the-agent"


@pytest.mark.parametrize("provider", ["claude", "codex"])
async def test_in_a_worktree_it_edits_a_copy_and_the_repository_stays_as_it_is(
    here: Place, monkeypatch: pytest.MonkeyPatch, key: str, provider: str
) -> None:
    monkeypatch.setenv("IS_SANDBOX", "1")  # without it claude asks for another user than root
    repository = here.folder / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "a.txt").write_text("as it was\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    turns: list[Turn] = [[running(provider, "echo changed > a.txt; echo new > b.txt")], DONE]
    agent = asking(provider, cwd=str(repository), useWorktree=True)
    settings = {"service_user": "", "snapshots": True}
    async with brokered(here, monkeypatch, provider, "host", key, *turns, **settings) as ours:
        ended = await ours.run(once(agent))
        (saved,) = ours.world.service.workspaces.listed(ended.run_id)  # type: ignore[union-attr]
    assert ended.scope["a"]["worktreePath"] == saved.path
    assert (repository / "a.txt").read_text() == "as it was\n"
    assert not (repository / "b.txt").exists()
    changed = [r.event.files for r in ended.recorded if isinstance(r.event, TreeSaved)]
    assert changed[-1] == 2
