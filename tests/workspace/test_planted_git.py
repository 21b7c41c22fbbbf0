"""What an agent plants for git is never run: not by infloop, and not by the user's git later."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import tomllib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.app.runs import open_workspaces
from infloop.errors import InfloopError
from infloop.model.events import Notice
from infloop.runtime.confinement.git_protection import GitProtection
from infloop.settings import Settings
from infloop.workspace.applying.apply import Applied, ProtectedChanges, apply
from support.confinement import need_bubblewrap
from support.eventually import eventually_async
from support.paths import ATTACK_TABLES
from support.repositories import contents, repository
from support.runs import Finished, scripted, world
from support.thorough import some
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = tomllib.loads((ATTACK_TABLES / "workspace.toml").read_text())["attack"]
NOBODY = (65534, 65534) if os.geteuid() == 0 else None
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def acted_upon(repo: Path) -> dict[bytes, object]:
    """What git acts upon in a repository, as it is there."""
    names = (b"config", b"hooks", b"info/attributes", b"config.worktree", b"commondir", b"modules/")
    return {
        path: what
        for path, what in contents(repo / ".git", leave_out=()).items()
        if path.startswith(names) and b".planted-" not in path and b"/objects" not in path
    }


class Scene:
    """A repository for each attack, and the marks that tell which program has run."""

    def __init__(self, place: Path, owner: tuple[int, int] | None = None) -> None:
        self.place = place
        self.owner = owner
        self.model = place / "model"
        self.marks = place / "marks"
        self.marks.mkdir()
        self.marks.chmod(0o777)
        self.repositories: dict[str, Path] = {}
        self.before: dict[str, dict[bytes, object]] = {}

    def add(self, attack: dict[str, str]) -> Path:
        folder = self.place / "work" / f"case-{len(self.repositories)}"
        folder.mkdir(parents=True)
        repo, evil = folder / "repo", folder / "evil"
        evil.write_text(f"#!/bin/sh\ntouch '{self.marks}/{attack['name']}'\n")
        evil.chmod(0o755)
        if self.owner:
            os.chown(folder, *self.owner)
        if not self.model.exists():
            repository(self.model)
        # The copies belong to the owner, and git has to look at them once.
        self.shell(f"cp -R --preserve=mode '{self.model}' repo; git -C repo status", folder)
        setup = attack.get("setup", "")
        if "asks" in attack:
            setup += "\ngit add -A; git commit -q --no-verify -m setup"
        if setup:
            self.shell(setup, repo)
        self.repositories[attack["name"]] = repo
        self.before[attack["name"]] = acted_upon(repo)
        return repo

    def shell(self, line: str, cwd: Path) -> str:
        """Run a line as the owner of the repositories; it may fail."""
        uid, gid = self.owner or (None, None)
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=cwd,
            env={**ENVIRONMENT, "EVIL": str(cwd.parent / "evil")},
            user=uid,
            group=gid,
            extra_groups=[] if self.owner else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def use_git(self, attack: dict[str, str], cwd: Path) -> str:
        """Do what people do, and what the attack waits for; return the commits."""
        commands = ("git status", "git diff", attack.get("command", "git status"))
        used = "; ".join(f"({command})" for command in commands)
        return self.shell(f"{{ {used}; }} >/dev/null 2>&1; git log --oneline", cwd)

    @property
    def run(self) -> set[str]:
        """The attacks whose program has run."""
        return {mark.name for mark in self.marks.iterdir()}


@contextmanager
def scene(owner: tuple[int, int] | None = None) -> Iterator[Scene]:
    """Give a scene in a place that every user can enter."""
    place = Path(tempfile.mkdtemp(prefix="infloop-test-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        yield Scene(place, owner)
    finally:
        shutil.rmtree(place)


# This tests the table. A row that is no attack is found by `make test-thorough` at the latest.
@pytest.mark.thorough
@pytest.mark.parametrize("attack", some(TABLE, one_in=4), ids=lambda attack: attack["name"])
def test_the_attack_is_one(attack: dict[str, str]) -> None:
    with scene() as here:
        repo = here.add(attack)
        here.shell(attack["plant"], repo)
        assert here.run == set()
        here.use_git(attack, repo)
        assert here.run == {attack["name"]}


async def played(
    here: Scene, level: str, attacks: Sequence[dict[str, str]] = TABLE, **config: Any
) -> Finished:
    """Let an agent plant everything, each in its repository, in one run."""
    if level == "sandbox":
        need_bubblewrap()
    nodes = [node("s", "start")]
    for number, attack in enumerate(attacks):
        repo = here.add(attack)
        mark = f"{here.marks}/{attack['name']}"
        line = f"printf '#!/bin/sh\\ntouch \"%s\"\\n' '{mark}' > .evil; chmod 755 .evil"
        plant = f"{line}; export EVIL=$PWD/.evil; {attack['plant']}"
        scripted(here.place / "data/providers", f"bot{number}", {"do": [{"shell": plant}]})
        nodes.append(
            node(f"n{number}", "agent", providerId=f"bot{number}", prompt="x", cwd=str(repo))
        )
        nodes[-1]["config"] |= config
    chain = " next ".join(each["id"] for each in nodes)
    user = "nobody" if NOBODY and level != "host" else ""
    async with world(here.place, isolation=level, service_user=user) as app:
        ended = await app.run(workflow(nodes, edges(chain)))
    assert ended.result.status == "succeeded", ended.result
    return ended


def notices(ended: Finished, attacks: Sequence[dict[str, str]] = TABLE) -> dict[str, list[str]]:
    """What the run says about git, by the attack."""
    said: dict[str, list[str]] = {}
    for each in ended.recorded:
        if isinstance(each.event, Notice) and each.event.message.startswith("[git] "):
            name = attacks[int(each.event.node.removeprefix("n"))]["name"]
            said.setdefault(name, []).append(each.event.message)
    return said


# Each attack is tried at one of the levels, and in `make test-thorough` at both.
at_a_level = pytest.mark.parametrize(
    ("level", "attacks"),
    [("guard", some(TABLE, one_in=2)), ("sandbox", some(TABLE, one_in=2, first=1))],
    ids=["guard", "sandbox"],
)
# In a clone it is every second attack.
in_a_clone = pytest.mark.parametrize(
    ("level", "attacks"),
    [("guard", some(TABLE, one_in=4)), ("sandbox", some(TABLE, one_in=4, first=2))],
    ids=["guard", "sandbox"],
)


@pytest.mark.thorough
@at_a_level
async def test_what_is_planted_in_the_users_repository_is_not_run_by_the_users_git(
    level: str, attacks: list[dict[str, str]]
) -> None:
    with scene(NOBODY) as here:
        ended = await played(here, level, attacks)
        for attack in attacks:
            repo = here.repositories[attack["name"]]
            assert acted_upon(repo) == here.before[attack["name"]], attack["name"]
            assert "first" in here.use_git(attack, repo), attack["name"]
        assert here.run == set()
        said, tried = notices(ended, attacks), {attack["name"] for attack in attacks}
        if level == "guard":
            assert set(said) == tried
        else:
            assert set(said) == tried & {
                "a repository in a new directory",
                "a repository that is part of the tree",
                "a file that makes a directory a repository",
                "a directory of hooks that the settings name and that does not exist",
                "another directory in place of the one above the hooks",
                "a link in place of the directory above the hooks",
                "attributes for a filter that the user has",
                "hooks at the top of the tree",
                "an editor that the settings name and that does not exist",
            }


async def in_place(here: Scene, level: str, line: str, *, setup: str = "", **more: Any) -> Finished:
    """Let an agent do something in a repository; return how the run ended."""
    if level == "sandbox":
        need_bubblewrap()
    repo = here.add({"name": "none", "setup": setup})
    scripted(here.place / "data/providers", "bot", {"do": [{"shell": line}]})
    work = node("n0", "agent", providerId="bot", prompt="x", cwd=str(repo))
    settings: dict[str, Any] = {"isolation": level, "service_user": "nobody" if NOBODY else ""}
    async with world(here.place, **settings) as app:
        flow = workflow([node("s", "start"), work], edges("s next n0"), **more)
        return await app.run(flow)


WORK = "-c user.name=a -c user.email=a"


async def test_an_agent_in_place_can_commit_where_git_is_only_looked_after() -> None:
    line = (
        f"echo 1 > one; git add -A; git {WORK} commit -q -m one; git checkout -q -b side; "
        f"echo 2 > two; git add -A; git {WORK} stash -q; git tag v1; git gc -q; mv src lib"
    )
    with scene(NOBODY) as here:
        ended = await in_place(here, "guard", line)
        repo = here.repositories["none"]
        assert notices(ended) == {}
        said = here.shell("git log --format=%s; git branch --show-current; git stash list", repo)
        assert said.splitlines()[:3] == ["one", "first", "side"]
        assert "stash@{0}" in said


def names(repo: Path) -> list[bytes]:
    """What there is in a repository's git; that of an object tells when it was made."""
    parts = (path.split(b"/") for path in contents(repo / ".git", leave_out=()))
    own = ([b"object"] if each[0] == b"objects" and len(each) > 2 else each for each in parts)
    return sorted(b"/".join(each) for each in own if each[0] != b"objects")


async def test_an_agent_in_place_reads_git_where_it_is_read_only() -> None:
    line = (
        "echo changed > a.txt; git status --porcelain; git log --format=%s; git diff --stat; "
        "git add -A; git branch side; rm -rf .git; mv .git x; true"
    )
    with scene(NOBODY) as here:
        before = names(here.add({"name": "before"}))
        ended = await in_place(here, "sandbox", line)
        said, repo = ended.said("tool"), here.repositories["none"]
        assert " M a.txt\nfirst\n a.txt |" in said
        assert said.count("Read-only file system") >= 2
        assert names(repo) == before
        assert notices(ended) == {}


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_other_directories_that_an_agent_may_write_to_are_looked_after_too(
    level: str,
) -> None:
    with scene(NOBODY) as here:
        other = here.add({"name": "other"})
        line = (
            f"cd {other}; printf '#!/bin/sh\\ntouch {here.marks}/x' > e; chmod 755 e; echo > made; "
            "git config core.fsmonitor $PWD/e; git init -q sub; "
            "git -C sub config core.fsmonitor $PWD/e"
        )
        ended = await in_place(here, level, line, writePaths=[str(other)])
        assert (other / "made").exists(), ended.said("tool")
        here.shell("git status; cd sub; git status", other)
        assert here.run == set()


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_directory_with_too_many_files_to_look_after_is_not_worked_in(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr("infloop.runtime.confinement.git_protection.MAX_ENTRIES", 3)
    with scene(NOBODY) as here:
        ended = await in_place(here, level, "echo > made")
        assert not (here.repositories["none"] / "made").exists()
        assert ended.status == "failed"
        assert "cannot be protected" in ended.result.error


@pytest.mark.thorough
async def test_at_level_host_infloop_itself_runs_nothing_that_was_planted() -> None:
    with scene() as here:
        ended = await played(here, "host", some(TABLE, one_in=6), useWorktree=True)
        async with open_workspaces(Settings(data_dir=here.place / "data")) as spaces:
            for each in spaces.listed(ended.run_id):
                saved = each.saved or await spaces.trees.save(each.name)
                await spaces.store.diff(saved.base, saved.final)
                with suppress(InfloopError):  # some have broken the repository
                    done = await apply(spaces.store, saved)
                    if isinstance(done, ProtectedChanges):
                        await apply(spaces.store, saved, allow=done.paths)
                    await spaces.trees.restore(saved, here.place / "restored" / each.name)
        assert here.run == set()


@pytest.mark.thorough
@in_a_clone
async def test_what_is_planted_in_a_clone_is_run_by_nobody(
    level: str, attacks: list[dict[str, str]]
) -> None:
    with scene() as here:
        ended = await played(here, level, attacks, useWorktree=True)
        assert notices(ended) == {}
        assert here.run == set()
        settings = {"isolation": level, "service_user": "nobody" if NOBODY else ""}
        async with world(here.place, **settings) as app, open_workspaces(app.settings) as spaces:
            listed = spaces.listed(ended.run_id)
            assert len(listed) == len(attacks)
            for attack, each in zip(attacks, listed, strict=True):
                saved, repo = each.saved, here.repositories[attack["name"]]
                assert saved is not None
                await spaces.store.diff(saved.base, saved.final)
                named = await spaces.named_files(saved.repository)
                done = await apply(spaces.store, saved, named=named)
                if isinstance(done, ProtectedChanges) and "asks" not in attack:
                    done = await apply(spaces.store, saved, named=named, allow=done.paths)
                expected = ProtectedChanges if "asks" in attack else Applied
                assert isinstance(done, expected), attack["name"]
                restored = here.place / "restored" / each.name
                renamed = await spaces.restore_worktree(saved, restored)
                assert not renamed or "asks" in attack, attack["name"]
                for place in (repo, restored):
                    assert "first" in here.use_git(attack, place), attack["name"]
        assert here.run == set()


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_run_in_a_clone_can_be_rewound_and_goes_on_there(level: str) -> None:
    if level == "sandbox":
        need_bubblewrap()
    with scene() as here:
        repo = here.add({"name": "none"})
        lines = ["echo 1 > one; git add -A; git commit -qm one", "cat one; ls; echo 2 >> one"]
        for number, line in enumerate(lines):
            turn = {"do": [{"shell": line}]}
            scripted(here.place / "data/providers", f"bot{number}", turn)
        work = node("w", "agent", providerId="bot0", prompt="x", cwd=str(repo), useWorktree=True)
        more = node("m", "agent", providerId="bot1", prompt="x", cwd="{{w.worktreePath}}")
        user = "nobody" if NOBODY else ""
        async with world(here.place, isolation=level, service_user=user) as app:
            flow = workflow([node("s", "start"), work, more], edges("s next w next m"))
            first = await app.run(flow)
            again = await app.finish(await app.service.rewind(first.run_id, "m"))
        assert again.status == "succeeded", again.result
        assert "1\na.txt\none\nsrc\n" in again.said("tool")
        assert notices(again) == {}
        async with open_workspaces(app.settings) as spaces:
            (each,) = spaces.listed(again.run_id)
            assert each.saved is not None
            assert isinstance(await apply(spaces.store, each.saved), Applied)
        assert (repo / "one").read_text() == "1\n2\n"
        assert "one" in here.shell(f"git log -1 --format=%s {each.saved.refs[0]}", repo)


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_settings_of_the_user_that_are_kept_in_the_tree_stay_as_they_are(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = (
        "mkdir git hooks; echo > hooks/readme; git config --file git/config core.hooksPath hooks"
    )
    line = (
        "printf '#!/bin/sh\\ntrue\\n' > evil; chmod 755 evil; cp evil hooks/post-commit; "
        'git config --file git/config core.fsmonitor "$PWD/evil"; echo work > done'
    )
    with scene(NOBODY) as here:
        repo = here.place / "work/case-0/repo"
        home = here.place / "home"
        home.mkdir(mode=0o755)
        (home / ".gitconfig").symlink_to(repo / "git/config")
        monkeypatch.setenv("HOME", str(home))
        ended = await in_place(here, level, line, setup=setup)
        assert ended.status == "succeeded", ended.result
        assert (repo / "done").read_text() == "work\n"
        assert "hookspath = hooks" in (home / ".gitconfig").read_text().lower()
        assert "fsmonitor" not in (home / ".gitconfig").read_text()
        assert not (repo / "hooks/post-commit").exists()


async def test_an_agent_in_place_may_finish_a_rebase() -> None:
    setup = """
git commit -q --allow-empty -m second
GIT_SEQUENCE_EDITOR='sed -i -e "1iexec touch done" -e 1ibreak' git rebase -q -i --root
"""
    with scene(NOBODY) as here:
        ended = await in_place(here, "guard", f"git {WORK} rebase --continue", setup=setup)
        repo = here.repositories["none"]
        assert notices(ended) == {}
        assert (repo / "done").exists()
        assert "rebase" not in here.shell("git status", repo)
        assert here.shell("git log --format=%s", repo).split() == ["second", "first"]


async def test_git_settings_that_cannot_be_read_fail_the_run() -> None:
    with scene(NOBODY) as here:
        ended = await in_place(here, "guard", "echo > made", setup="echo '[' >> .git/config")
        assert not (here.repositories["none"] / "made").exists()
        assert ended.status == "failed"
        assert "git settings name cannot be protected" in ended.result.error


HOOK = "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit"


async def test_a_cancelled_agent_leaves_nothing_that_git_runs() -> None:
    with scene(NOBODY) as here:
        repo = here.add({"name": "none"})
        line = f"{HOOK}; touch begun; sleep 600"
        scripted(here.place / "data/providers", "bot", {"do": [{"shell": line}]})
        work = node("n0", "agent", providerId="bot", prompt="x", cwd=str(repo))
        user = "nobody" if NOBODY else ""
        async with world(here.place, isolation="guard", service_user=user) as app:
            run_id = await app.start(workflow([node("s", "start"), work], edges("s next n0")))
            await eventually_async((repo / "begun").exists)
            assert (repo / ".git/hooks/pre-commit").exists()
            await app.service.stop(run_id, "enough")
            ended = await app.finish(run_id)
        assert ended.status == "cancelled"
        assert not (repo / ".git/hooks/pre-commit").exists()
        assert "'.git/hooks/pre-commit' was written" in notices(ended)[TABLE[0]["name"]][0]


async def test_a_cancel_does_not_cut_the_repair_of_git_short(tmp_path: Path) -> None:
    repositories = [repository(tmp_path / name) for name in "abc"]
    first, *others = map(str, repositories)
    protection = GitProtection(own_mounts=False)
    told: list[str] = []

    async def work() -> None:
        def warn(message: str) -> None:
            told.append(message)
            task.cancel()  # again in the middle of the repair

        async with protection.protect(first, others, warn):
            for repo in repositories:
                subprocess.run(["/bin/sh", "-c", HOOK], cwd=repo, check=True)
            task.cancel()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(told) == len(repositories)
    for repo in repositories:
        assert not (repo / ".git/hooks/pre-commit").exists()
