"""Runs whose workspace is a repository: fetched by whoever starts them, seen from any machine.

Another machine is a data directory of its own with the same database and nothing else.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infloop.errors import GuardError, StepError
from infloop.model.events import StepFinished
from infloop.workspace.repositories.mirrors import Mirrors
from infloop.workspace.repositories.packs import import_packs, make_pack
from infloop.workspace.snapshots.store import SnapshotStore
from support.eventually import eventually
from support.postgresql import database_for
from support.repositories import git, programs, repository, write
from support.runs import world
from support.service_user import SERVICE_USER, folder_for_children
from support.user_machine import Machine, command, machine, script
from support.workflows import edges, node, workflow

FILES = {"a.txt": "one\ntwo\n", "src/b.txt": "b\n", ".gitignore": "*.log\n"}


def first_machine(folder: Path) -> Machine:
    """A machine with a repository that its operator allows."""
    here = machine(folder / "one")
    repository(folder / "git/web", FILES)
    here.variables["INFLOOP_REPOSITORIES"] = str(folder / "git")
    return here


def another_machine(here: Machine, name: str = "two") -> Machine:
    """A machine that shares the database of `here`, and no other file."""
    there = Machine(here.folder.parent / name, dict(here.variables))
    for folder in (there.home, there.data, there.repo):
        folder.mkdir(parents=True)
    there.data.chmod(0o700)
    copy_database(here, there)
    return there


def copy_database(here: Machine, there: Machine) -> None:
    for file in there.data.glob("journal.db*"):
        file.unlink()
    for file in here.data.glob("journal.db*"):
        shutil.copy2(file, there.data)


def in_repository(here: Machine, *nodes: Any, ref: str = "main", **more: Any) -> str:
    source = {"repository": str(here.folder.parent / "git/web"), "ref": ref}
    chain = "start next " + " next ".join(each["id"] for each in nodes)
    return here.file("w", list(nodes), chain, workspace=source, **more)


CHANGE = """
import pathlib
pathlib.Path('a.txt').write_text('one\\nTWO\\n')
pathlib.Path('new.txt').write_text('new\\n')
pathlib.Path('build.log').write_text('ignored\\n')
"""


def test_a_run_works_in_a_checkout_of_its_own_and_any_machine_shows_and_applies_the_changes(
    tmp_path: Path,
) -> None:
    here = first_machine(tmp_path)
    origin = tmp_path / "git/web"
    commit = git("rev-parse", "HEAD", cwd=origin)
    before = git("status", "--porcelain", cwd=origin)
    here.infloop("run", in_repository(here, script("change", CHANGE)))
    (run,) = here.run_ids()
    fetched = [m for m in here.messages() if m["type"] == "workspace_fetched"]
    assert [(m["repository"], m["ref"], m["commit"]) for m in fetched] == [
        (str(origin), "main", commit)
    ]
    shown = here.infloop("show", run).stdout
    assert f"{origin} at main" in shown
    assert commit in shown
    assert git("status", "--porcelain", cwd=origin) == before  # nobody worked in the source
    assert here.worktrees() == []  # the checkout is removed
    local = here.infloop("diff", run).stdout
    assert "+TWO" in local
    assert "build.log" not in local

    there = another_machine(here)
    assert there.infloop("diff", run).stdout == local
    assert "new.txt" in there.infloop("diff", run, "change", "--stat").stdout
    clone = tmp_path / "clone"
    git("clone", "-q", str(origin), str(clone), cwd=tmp_path)
    assert "--into" in there.infloop("apply", run, code=2).stderr
    there.infloop("apply", run, cwd=clone)
    assert (clone / "a.txt").read_text() == "one\nTWO\n"
    assert (clone / "new.txt").read_text() == "new\n"
    assert not (clone / "build.log").exists()
    there.infloop("apply", run, "--into", str(clone), "--to", "agents/x")
    assert git("show", "agents/x:a.txt", cwd=clone) == "one\nTWO"


def test_a_run_whose_machine_died_goes_on_elsewhere_with_its_stored_files(tmp_path: Path) -> None:
    here = first_machine(tmp_path)
    go = tmp_path / "go"
    wait = script(
        "wait",
        f"""
import os, pathlib, time
pathlib.Path('lost-' + os.path.basename(os.getcwd())).touch()
pathlib.Path('{go}.reached').touch()
while not os.path.exists('{go}'):
    time.sleep(0.02)
pathlib.Path('{go}').write_text(repr([os.getcwd(), *os.listdir('.')]))
pathlib.Path('last.txt').write_text('last\\n')
""",
    )
    flow = in_repository(here, script("change", CHANGE), wait, onCrash="resume")
    with here.begin("run", flow) as running:
        eventually(lambda: Path(f"{go}.reached").exists())
        running.kill()
        running.wait(60)
    git("commit", "-q", "--allow-empty", "-m", "second", cwd=tmp_path / "git/web")
    there = another_machine(here)
    go.touch()
    (run,) = there.run_ids()
    there.infloop("resume", run)
    messages = there.messages(run)
    first, second = [m["commit"] for m in messages if m["type"] == "workspace_fetched"]
    assert first == second  # not the newest commit of the branch
    found = go.read_text()
    assert "new.txt" in found
    assert found.count("lost-") == 1  # that of the first machine is not here
    assert str(there.data) in found
    said = [m["message"] for m in messages if m["type"] == "notice"]
    assert any("new checkout" in each and "another machine" in each for each in said)
    assert there.worktrees() == []
    local = there.infloop("diff", run, "--stat").stdout
    assert all(name in local for name in ("a.txt", "new.txt", "last.txt"))
    assert another_machine(there, "three").infloop("diff", run, "--stat").stdout == local
    # The first machine has what was left over, and removes it when it starts again.
    assert len(here.worktrees()) == 1
    copy_database(there, here)
    here.infloop("run", here.file("other", [], "start"))
    assert here.worktrees() == []


def test_a_rewind_on_another_machine_begins_with_the_files_of_that_moment(tmp_path: Path) -> None:
    here = first_machine(tmp_path)
    seen = tmp_path / "seen"
    look = script("look", f"import os\nopen('{seen}', 'a').write(f'{{os.listdir()}};')")
    spoil = script("spoil", "import os\nos.unlink('new.txt')\nopen('spoilt', 'w').close()")
    here.infloop("run", in_repository(here, script("change", CHANGE), look, spoil))
    there = another_machine(here)
    (run,) = there.run_ids()
    there.infloop("rewind", run, "--to", "look", "--yes")
    new = there.run_ids()[0]
    assert new != run
    first, second, _ = seen.read_text().split(";")
    assert sorted(second) == sorted(first)
    assert "new.txt" in second
    changed = there.infloop("diff", new, "change", "--stat").stdout
    assert (
        another_machine(there, "three").infloop("diff", new, "change", "--stat").stdout == changed
    )
    assert "new.txt" in changed


def test_machines_that_share_postgresql_see_the_same_changes(tmp_path: Path) -> None:
    here = first_machine(tmp_path)
    here.variables["INFLOOP_DATABASE"] = database_for(tmp_path)
    here.infloop("run", in_repository(here, script("change", CHANGE)))
    there = another_machine(here)
    assert [each.name for each in there.data.iterdir()] == []
    changed = there.infloop("diff", "last", "--stat").stdout
    assert "new.txt" in changed
    assert changed == here.infloop("diff", "last", "--stat").stdout


def flow(*nodes: Any, repository: Path | str, ref: str = "main", **more: Any) -> dict[str, Any]:
    chain = "start next " + " next ".join(each["id"] for each in nodes)
    source = {"repository": str(repository), "ref": ref}
    return workflow([node("start", "start"), *nodes], edges(chain), "w", workspace=source, **more)


@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_git_works_in_the_checkout_and_no_run_touches_the_mirror(level: str) -> None:
    cmd = (
        "git log --oneline | grep -q first && git status --porcelain | wc -l | grep -qx 0"
        " && echo more >> a.txt && git -c user.name=B -c user.email=b@x commit -qam second"
        " && git log --oneline | wc -l | grep -qx 2"
    )
    work = command("work", cmd)
    user = {"service_user": SERVICE_USER} if level == "guard" else {}
    with folder_for_children("work") as folder:
        origin = repository(folder / "git/web", FILES)
        async with world(folder, isolation=level, repositories=str(folder / "git"), **user) as here:
            done = await here.run(flow(work, repository=origin))
            (ended,) = [each for each in done.events if isinstance(each, StepFinished)]
            assert ended.handle == "met", (done.result, done.said(), done.said("stderr"))
            (mirror,) = (here.settings.data_dir / "repositories").iterdir()
            refs = git("for-each-ref", "--format=%(refname)", cwd=mirror)
            assert "refs/heads" not in refs
            # A commit is not in a snapshot, so it is kept in the mirror of the machine.
            assert ("refs/infloop/" in refs) == (level != "host")
            assert not list((here.settings.data_dir / "worktrees").glob("*-workspace-*/.git"))
        assert git("log", "--oneline", cwd=origin).count("\n") == 0


async def test_a_repository_that_cannot_be_fetched_fails_the_run_and_says_why(
    tmp_path: Path,
) -> None:
    origin = repository(tmp_path / "git/web", FILES)
    touch = script("touch", f"open('{tmp_path}/ran', 'w').close()")
    async with world(tmp_path, repositories=str(tmp_path / "git")) as here:
        done = await here.run(flow(touch, repository=origin, ref="nope"))
        assert done.status == "failed"
        assert "no branch and no tag 'nope'" in done.result.error
        for address, why in (
            ("https://example.com/x", "INFLOOP_REPOSITORIES"),
            ("https://me:hunter2@example.com/x", "must not hold a user or password"),
            (str(tmp_path / "git/../elsewhere"), r"must not have"),
        ):
            with pytest.raises(GuardError, match=why) as refused:
                await here.start(flow(touch, repository=address))
            assert "hunter2" not in str(refused.value)
        assert await here.service.store.run_log.count() == 1
    async with world(tmp_path, snapshots=False, repositories=str(tmp_path / "git")) as here:
        with pytest.raises(GuardError, match="INFLOOP_SNAPSHOTS"):
            await here.start(flow(touch, repository=origin))
    assert not (tmp_path / "ran").exists()


async def test_a_person_chooses_another_repository_and_ref_for_one_run(tmp_path: Path) -> None:
    here = first_machine(tmp_path)
    other = repository(tmp_path / "git/other", {"only.txt": "here\n"})
    git("branch", "side", cwd=other)
    file = in_repository(here, script("look", "import os\nassert os.path.exists('only.txt')"))
    here.infloop("run", file, code=1)
    here.infloop("run", file, "--repository", str(other), "--ref", "side")
    (fetched,) = [m for m in here.messages() if m["type"] == "workspace_fetched"]
    assert (fetched["repository"], fetched["ref"]) == (str(other), "side")
    assert "--cwd" in here.infloop("run", file, "--cwd", str(tmp_path), code=2).stderr


async def test_packs_from_the_store_are_untrusted(tmp_path: Path) -> None:
    origin = repository(tmp_path / "git/web", FILES)
    async with programs() as run:
        store = SnapshotStore(tmp_path / "one", run)
        made = Mirrors(tmp_path / "mirrors", store.git, allowed=(str(tmp_path / "git"),))
        mirror, commit = await made.fetch(str(origin), "main")
        write(origin / "a.txt", "changed\n")
        snapshot = (await store.take(origin, ask_git=False)).id
        pack = await make_pack(store, mirror, commit, [snapshot], [])
        assert len(pack) < 1000  # what did not change is not in it
        evil = repository(tmp_path / "evil", {"a": "x\n"})
        blob = git("rev-parse", "HEAD:a", cwd=evil)
        raw = b"100644 .git\0" + bytes.fromhex(blob)
        name = git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", cwd=evil, input=raw)
        hostile = subprocess.run(
            ["git", "pack-objects", "--revs", "--stdout", "-q"],
            cwd=evil, input=f"{name}\n".encode(), capture_output=True, check=True,
        ).stdout  # fmt: skip
        huge = bytearray(b"PACK\0\0\0\2\xff\xff\xff\xff")
        there = SnapshotStore(tmp_path / "two", run)
        for bad in (pack[:-30], b"", b"garbage", bytes(huge), hostile, pack[:40] + b"\0" * 40):
            with pytest.raises(StepError):
                await import_packs(there, mirror, commit, [bad], [snapshot, name], "r1")
            assert there.owners() == []
        assert await import_packs(there, mirror, commit, [pack], [snapshot, "0" * 40], "r1") == [
            snapshot
        ]
        assert there.owners() == ["r1"]
        assert not list((tmp_path / "two").glob("scratch-*"))
        await there.prune(())  # it is complete without the mirror
        assert [each.path for each in await there.diff(snapshot, snapshot)] == []
