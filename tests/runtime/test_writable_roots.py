"""What a confined child may write to and read around its directory: never more than was named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.policy.writable_roots import why_too_wide
from infloop.workspace.git.repository_paths import Discovery, git_paths
from support.canaries import place
from support.confinement import need_bubblewrap, need_guard
from support.parts import ruled_out_if
from support.repositories import git, repository
from support.runs import Finished, world
from support.server import workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "nobody" if os.geteuid() == 0 else ""
STRANGER = 61_234

levels = pytest.mark.parametrize("level", ["guard", "sandbox"])


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that is a repository, with a project and a secret in it."""
    need_bubblewrap()
    need_guard()
    with place() as top:
        home = repository(top / "me", {"dotfile": "mine"})
        for name in ("work/sub", ".ssh"):
            (home / name).mkdir(parents=True)
        (home / ".ssh/id").write_text("the-canary")
        give(top)
        monkeypatch.setenv("HOME", str(home))
        yield home


def give(top: Path) -> None:
    if USER:
        for path in top.rglob("*"):
            shutil.chown(path, USER)


async def run(top: Path, level: str, cwd: Path, line: str, **lists: Any) -> Finished:
    settings = {"isolation": level, "service_user": USER, "snapshots": False}
    async with world(top, **settings) as here:
        here.folder = cwd
        return await here.run(workflow("w", line, **lists))


@pytest.mark.claim("I29")
@levels
async def test_a_home_that_is_a_repository_is_neither_written_nor_read(
    home: Path, level: str
) -> None:
    line = f"touch made; touch {home}/planted; cat {home}/.ssh/id {home}/dotfile; git log; true"
    ended = await run(home.parent, level, home / "work", line)
    assert ended.status == "succeeded", ended.result
    assert (home / "work/made").exists()
    assert not (home / "planted").exists()
    assert "the-canary" not in ended.said()
    assert "mine" not in ended.said()


@levels
async def test_a_run_in_a_home_is_refused_unless_the_home_is_listed(home: Path, level: str) -> None:
    (home / "data").mkdir()
    refused = await run(home.parent, level, home, "touch planted")
    assert "is a home directory" in refused.result.error
    assert "writePaths" in refused.result.error
    assert not (home / "planted").exists()
    allowed = await run(home.parent, level, home, "touch planted", writePaths=[str(home)])
    assert allowed.status == "succeeded", allowed.result
    assert (home / "planted").exists()


@levels
async def test_a_step_below_a_repository_writes_to_its_own_directory(
    home: Path, level: str
) -> None:
    repo = repository(home / "project", {"sub/file": "text", "top": "of-the-tree"})
    subject = git("log", "--format=%s", cwd=repo).strip()
    give(home.parent)
    line = "touch made; touch ../planted ../.git/planted; cat ../top; git log --format=%s"
    ended = await run(home.parent, level, repo / "sub", line)
    assert ended.status == "succeeded", ended.result
    assert (repo / "sub/made").exists()
    assert not (repo / "planted").exists()
    assert not (repo / ".git/planted").exists()
    assert "of-the-tree" in ended.said()
    assert subject in ended.said()


@ruled_out_if(os.geteuid() != 0, "only root makes files of other users")
@levels
async def test_a_repository_of_another_user_opens_nothing(home: Path, level: str) -> None:
    shared = home.parent / "shared"
    (shared / "project").mkdir(parents=True)
    (shared / ".git").mkdir()
    (shared / "others").write_text("the-canary")
    give(home.parent)
    os.chown(shared / ".git", STRANGER, STRANGER)
    line = "touch made; touch ../planted; cat ../others; true"
    ended = await run(home.parent, level, shared / "project", line)
    assert ended.status == "succeeded", ended.result
    assert "the-canary" not in ended.said()
    assert not (shared / "planted").exists()


@pytest.mark.parametrize("theirs", ["tree", "tree/.git", "main/.git/worktrees/tree", "main/.git"])
@ruled_out_if(os.geteuid() != 0, "only root makes files of other users")
def test_every_part_of_a_repository_belongs_to_the_user(theirs: str) -> None:
    with place() as top:
        main = repository(top / "main", {"file": "text"})
        git("worktree", "add", "-q", str(top / "tree"), cwd=main)
        discovery = Discovery(frozenset((0,)))
        assert str(main / ".git") in git_paths(str(top / "tree"), discovery).read
        os.chown(top / theirs, STRANGER, STRANGER)
        assert str(main / ".git") not in git_paths(str(top / "tree"), discovery).read


HOME = "/home/me"


@pytest.mark.parametrize(
    ("path", "wide"),
    [
        ("/", True),
        ("/home", True),
        ("/home/me", True),
        ("/home/somebody", True),
        ("/var/home/me", True),
        ("/root", True),
        ("/tmp", True),
        ("/var/tmp", True),
        ("/usr", True),
        ("/etc", True),
        ("/srv", True),
        ("/data", True),  # above a home
        ("/data/homes/me", True),
        ("/home/me/work", False),
        ("/data/homes/me/work", False),
        ("/home/me2/work", False),
        ("/work", False),
        ("/app", False),
        ("/srv/project", False),
        ("/tmp/project", False),
    ],
)
def test_homes_and_directories_of_the_system_are_too_wide(path: str, wide: bool) -> None:
    assert bool(why_too_wide(path, {HOME, "/data/homes/me"})) == wide
