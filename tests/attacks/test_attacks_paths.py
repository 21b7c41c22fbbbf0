"""Paths and files that a server must not fall for, row by row of a table."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import GuardError, StepError
from infloop.providers.acp.files import MAX_BYTES, AgentFiles
from infloop.sandbox.levels.host import HostSandbox
from infloop.workspace import beneath
from infloop.workspace.worktrees.uncommitted import matching
from support.acp_agents import ALL_ALLOWED, STOP, Bench
from support.attack_tables import Attack, AttackTable
from support.eventually import eventually
from support.parts import ruled_out
from support.processes import peak_kib
from support.repositories import contents
from support.runs import scripted, world
from support.server import here
from support.small_disk import left, small_disk
from support.user_machine import agent, machine
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = AttackTable("paths")
SECRET = "the-canary-outside"


def test_every_row_is_tried() -> None:
    TABLE.check()


class Scene:
    """A workspace, and a secret beside it."""

    def __init__(self, top: Path) -> None:
        self.workspace = top / "workspace"
        self.outside = top / "outside"
        self.workspace.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)

    def fill(self, text: str) -> str:
        return text.replace("{W}", str(self.workspace)).replace("{O}", str(self.outside))

    def make(self, attack: Attack) -> None:
        if attack.get("root") and os.geteuid() != 0:
            ruled_out("only root can make a device")
        subprocess.run(
            ["/bin/sh", "-c", self.fill(attack.get("make", ""))], cwd=self.workspace, check=True
        )

    async def asked(self, method: str, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Let an agent that works in the workspace ask us for something; return our answers."""
        calls = [{"call": [method, {"sessionId": "sess-1", **each}]} for each in requests]
        sandbox = HostSandbox()
        try:
            bench = Bench(self.workspace, sandbox, *calls, STOP, permissions=ALL_ALLOWED)
            await bench.done()
        finally:
            await sandbox.close()
        return bench.answers


@pytest.mark.parametrize("attack", TABLE.at("read"))
async def test_an_agent_reads_files_of_its_workspace_alone(tmp_path: Path, attack: Attack) -> None:
    scene = Scene(tmp_path)
    scene.make(attack)
    before = peak_kib()
    requests = [{"path": scene.fill(path)} for path in attack["paths"]]
    answers = await scene.asked("fs/read_text_file", *requests)
    assert len(answers) == len(requests)
    assert SECRET not in json.dumps(answers)
    for answer in answers:
        got = answer["result"]["content"] if "result" in answer else "refused"
        assert got == attack["expect"], answer
    assert peak_kib() - before < 64 * 1024


@pytest.mark.parametrize("attack", TABLE.at("write"))
async def test_an_agent_has_nothing_written_that_git_or_others_act_upon(
    tmp_path: Path, attack: Attack
) -> None:
    scene = Scene(tmp_path)
    scene.make(attack)
    requests = [{"path": scene.fill(path), "content": "evil"} for path in attack["paths"]]
    answers = await scene.asked("fs/write_text_file", *requests)
    assert ["error" in answer for answer in answers] == [True] * len(requests)
    made = [path for path in scene.workspace.iterdir() if path.is_dir() and not path.is_symlink()]
    assert made == []
    assert list(contents(scene.outside)) == [b"", b"secret.txt"]


@pytest.mark.parametrize("attack", TABLE.at("growing"))
def test_of_a_file_that_grows_only_so_much_is_read(tmp_path: Path, attack: Attack) -> None:
    scene = Scene(tmp_path)
    file = scene.workspace / attack["path"]
    with subprocess.Popen(["/bin/sh", "-c", attack["make"]], cwd=scene.workspace) as writer:
        try:
            eventually(lambda: file.exists() and file.stat().st_size > MAX_BYTES)
            before = peak_kib()
            with pytest.raises(StepError, match="larger than"):
                AgentFiles(str(scene.workspace)).read(str(file))
            assert peak_kib() - before < 64 * 1024
        finally:
            writer.kill()


@pytest.mark.parametrize("attack", TABLE.at("race"))
def test_a_link_that_comes_and_goes_leads_nowhere(tmp_path: Path, attack: Attack) -> None:
    scene = Scene(tmp_path)
    files = AgentFiles(str(scene.workspace))
    path = f"{scene.workspace}/d/secret.txt"
    read = set()
    with flipping(scene.workspace / "d", scene.outside):
        for _ in range(attack["tries"]):
            with suppress(StepError):
                read.add(files.read(path))
    assert read == {"inside"}


@contextmanager
def flipping(directory: Path, outside: Path) -> Iterator[None]:
    """Let a path be a directory and a link to another in turn."""
    real, link = directory.with_name("real"), directory.with_name("link")
    real.mkdir()
    (real / "secret.txt").write_text("inside")
    link.symlink_to(outside)
    stopping = threading.Event()

    def flip() -> None:
        while not stopping.is_set():
            for each in (real, link):
                each.rename(directory)
                time.sleep(0)
                directory.rename(each)

    flipper = threading.Thread(target=flip)
    flipper.start()
    try:
        yield
    finally:
        stopping.set()
        flipper.join()


@pytest.mark.parametrize("attack", TABLE.at("names"))
def test_a_name_is_shown_and_not_obeyed(tmp_path: Path, attack: Attack) -> None:
    here_is = machine(tmp_path)
    here_is.bot([{"write": name, "content": "x\n"} for name in attack["names"]])
    here_is.infloop("run", here_is.file("w", [agent(useWorktree=True)], "start next work"))
    for words in (["diff", "last", "--stat"], ["diff", "last"], ["show", "last"]):
        done = here_is.infloop(*words)
        shown = done.stdout + done.stderr
        assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}, words
        assert not any(line.startswith("line.txt") for line in shown.splitlines())


@pytest.mark.parametrize("attack", TABLE.at("fill"))
def test_an_agent_that_writes_without_end_is_ended(tmp_path: Path, attack: Attack) -> None:
    with small_disk(tmp_path / "disk", files=30_000) as disk:
        here_is = machine(disk / "machine")
        here_is.variables = {"INFLOOP_MIN_FREE_DISK_BYTES": str(128 << 20)}
        here_is.bot([{"shell": attack["line"]}])
        flow = here_is.file("w", [agent(useWorktree=False)], "start next work")
        ended = here_is.infloop("run", flow, code=1)
        assert attack["says"] in ended.stdout + ended.stderr
        assert left(disk) > 64 << 20
        assert os.statvfs(disk).f_favail > 10_000
        assert here_is.messages()[-1]["status"] == "failed"


@pytest.mark.parametrize("attack", TABLE.at("list"))
async def test_a_long_listing_says_that_it_is_cut(tmp_path: Path, attack: Attack) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(attack["count"]):
        (folder / f"d{number:05}").mkdir()
    async with here(tmp_path / "server") as served:
        answer = await served.ask("GET", f"/api/fs/list?path={folder}")
        few = await served.ask("GET", f"/api/fs/list?path={tmp_path}")
    assert len(answer.json()["entries"]) == attack["most"]
    assert answer.json()["truncated"] is True
    assert few.json()["truncated"] is False


@pytest.mark.parametrize("attack", TABLE.at("glob"))
async def test_a_pattern_looks_into_each_directory_once(tmp_path: Path, attack: Attack) -> None:
    folder = tmp_path
    for _ in range(attack["depth"]):
        folder = folder / "d"
        folder.mkdir()
        (folder / "loop").symlink_to(tmp_path)
    (folder / "file").touch()
    (tmp_path / "outside").symlink_to("/etc")
    for pattern in attack["patterns"]:
        async with asyncio.timeout(20):
            found = await asyncio.to_thread(matched, tmp_path, pattern)
        assert b"d/" * attack["depth"] + b"file" in found
        assert not any(b"loop/" in path or b"outside/" in path for path in found)


def matched(folder: Path, pattern: str) -> list[bytes]:
    with beneath.open_root(folder) as root:
        return matching(root, [pattern])


@pytest.mark.parametrize("attack", TABLE.at("protected"))
def test_an_alias_of_git_does_not_come_home_unasked(tmp_path: Path, attack: Attack) -> None:
    here_is = machine(tmp_path)
    here_is.bot([{"write": name, "content": "evil\n"} for name in attack["names"]])
    here_is.infloop("run", here_is.file("w", [agent(useWorktree=True)], "start next work"))
    before = contents(here_is.repo)
    refused = here_is.infloop("apply", "last", code=1).stderr
    assert refused.count("git acts on it") == len(attack["names"])
    assert contents(here_is.repo) == before


def turn(top: Path, attack: Attack) -> Path:
    """Do to the directories beside each other what the attack does; return the one outside."""
    outside = top / "outside"
    outside.mkdir()
    subprocess.run(
        ["/bin/sh", "-ec", attack["make"].replace("{O}", str(outside))], cwd=top, check=True
    )
    return outside


@pytest.mark.parametrize("attack", TABLE.at("moved"))
async def test_no_run_works_where_a_link_has_taken_a_directorys_place(
    tmp_path: Path, attack: Attack
) -> None:
    named = tmp_path / attack["named"]
    (named / attack.get("cwd", "")).mkdir(parents=True)
    step = node("c", "condition", kind="command", command={"cmd": "touch was-here"})
    step["config"]["cwd"] = attack.get("cwd", "")
    flow = workflow([node("s", "start"), step], edges("s next c"))
    async with world(tmp_path) as here:
        here.folder = named
        assert (await here.run(flow)).status == "succeeded"
    turn(tmp_path, attack)
    async with world(tmp_path) as here:
        here.folder = named
        if "cwd" in attack:
            said = (await here.run(flow)).result.error
        else:
            with pytest.raises(GuardError) as refused:
                await here.run(flow)
            said = str(refused.value)
            assert len(await here.service.store.run_log.runs()) == 1
    replaced = named / attack.get("cwd", "")
    assert f"'{replaced}' leads to '{replaced.resolve()}'" in said
    assert f"work in '{replaced.resolve()}' instead" in said
    assert not list((tmp_path / "outside").rglob("was-here"))


@pytest.mark.parametrize("attack", TABLE.at("resumed"))
async def test_a_run_goes_on_in_the_directory_in_which_it_began_or_not_at_all(
    tmp_path: Path, attack: Attack
) -> None:
    bill, touch = {"do": [{"cost": 2.0}]}, {"do": [{"shell": "touch was-here"}]}
    scripted(tmp_path / "data/providers", "fake", bill, touch)
    rounds = node(
        "l", "loop", [node("a", "agent", providerId="fake", prompt="go")], maxIterations=2
    )
    flow = workflow([node("s", "start"), rounds], edges("s next l"), onBudget="pause")
    flow["limits"] = {"maxCostUsd": 1.0}
    async with world(tmp_path) as here:
        paused = await here.run(flow)
        assert paused.status == "paused"
    work = tmp_path / "work"
    async with world(tmp_path) as here:
        outside = turn(tmp_path, attack)
        with pytest.raises(GuardError, match=attack["says"]) as refused:
            await here.service.resume(paused.run_id, max_cost_usd=9.0)
        assert f"'{work}'" in str(refused.value)
        assert f"infloop rewind {paused.run_id}" in str(refused.value)
        assert not list(outside.iterdir())
        work.rename(tmp_path / "the-other")
        (tmp_path / "gone").rename(work)
        await here.service.resume(paused.run_id, max_cost_usd=9.0)
        assert (await here.finish(paused.run_id)).status == "succeeded"
    assert (work / "was-here").exists()
