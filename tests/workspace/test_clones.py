"""Private clones for confined agents: their own git, and commits that are checked before use."""

from __future__ import annotations

import contextlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from infloop.errors import StepError
from infloop.runtime.confinement.programs import confined_in
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.workspace.applying.apply import Applied, apply
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.worktrees.clone import read_bundle
from infloop.workspace.worktrees.pack_size import check_pack_size
from infloop.workspace.worktrees.worktree import Worktrees
from support.canaries import PATH, USER, place
from support.confinement import need_bubblewrap
from support.parts import ruled_out
from support.repositories import contents, git, programs, repository, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from infloop.sandbox.base import Sandbox
    from infloop.workspace.git.program import RunProgram
    from infloop.workspace.worktrees.worktree import Worktree

BAD_TREE = """
blob=$(git hash-object -w a.txt)
tree=$(python3 -c 'import sys; sys.stdout.buffer.write(
    b"100644 .git\\0" + bytes.fromhex(sys.argv[1]))' $blob |
    git hash-object -t tree -w --stdin --literally)
git update-ref refs/heads/bad $(git commit-tree $tree -p HEAD -m bad)
"""


@dataclass
class Stage:
    """A repository, a sandbox, and the clones that are made for it."""

    folder: Path
    repo: Path
    sandbox: Sandbox
    run: RunProgram
    trees: Worktrees

    async def agent(self, tree: Worktree, line: str) -> str:
        """Run a shell line as a confined child in a clone."""
        access = Access(read=(str(tree.objects),), write=(str(tree.path),))
        env = {"PATH": PATH}
        argv = ("/bin/sh", "-c", line)
        done = await self.sandbox.run(ChildRequest(argv, str(tree.cwd), env, access=access))
        assert done.exit_code == 0, (done.error, done.stderr)
        return done.stdout

    def another_process(self, *, confines: bool = True) -> Worktrees:
        """Return what a process has that is started after this one died."""
        self.trees.close()
        return self.worktrees(confines=confines)

    def worktrees(self, *, confines: bool = True) -> Worktrees:
        async def find() -> Sandbox:
            return self.sandbox

        confine = confined_in(find) if confines else None
        return Worktrees(self.folder / "data", self.run, confine=confine, user=USER)


@contextlib.asynccontextmanager
async def stage(level: str = "guard") -> AsyncIterator[Stage]:
    with place() as folder:
        (folder / "scratch").mkdir(mode=0o711)
        if level == "sandbox":
            need_bubblewrap()
            sandbox: Sandbox = BubblewrapSandbox(hidden=[str(folder / "data")], user=USER)
        else:
            sandbox = GuardSandbox(str(folder / "scratch"), user=USER)
        async with programs() as run:
            repo = repository(folder / "repo")
            made = Stage(folder, repo, sandbox, run, None)  # type: ignore[arg-type]
            made.trees = made.worktrees()
            try:
                yield made
            finally:
                made.trees.close()
                await sandbox.close()


each_level = pytest.mark.parametrize("level", ["guard", "sandbox"])


@each_level
async def test_a_clone_is_a_repository_of_its_own_and_leaves_no_byte_in_the_users(
    level: str,
) -> None:
    async with stage(level) as here:
        git("branch", "feature", cwd=here.repo)
        git("tag", "v1", cwd=here.repo)
        write(here.repo / "a.txt", "not committed\n")
        before = contents(here.repo, leave_out=())
        made = await here.trees.create(here.repo / "src", "run", "node")
        said = await here.agent(
            made,
            "cat b.txt ../a.txt; git status --porcelain; git rev-parse --abbrev-ref HEAD; "
            "git branch --format '%(refname:short)'; git tag; git config core.fsmonitor x; "
            "git rev-parse --git-common-dir; cd ..; pwd; echo w > work",
        )
        assert said.split("\n")[:-1] == [
            "b", "one", "two", "three", "HEAD", "(no branch)", "feature", "main", "v1",
            "../.git", str(made.path),
        ]  # fmt: skip
        assert made.path.parent == here.folder / "data" / "worktrees"
        assert made.cwd == made.path / "src"
        saved = await here.trees.remove(made)
        assert contents(here.repo, leave_out=()) == before
        assert not made.path.exists()
        assert (saved.refs, saved.problem) == ((), "")
        assert isinstance(await apply(here.trees.store, saved), Applied)
        assert (here.repo / "work").read_text() == "w\n"


@each_level
async def test_commits_of_a_clone_come_home_under_our_refs_alone(level: str) -> None:
    async with stage(level) as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(
            made,
            "echo 1 > one; git add -A; git commit -q -m one; git checkout -q -b side;"
            "echo 2 > two; git add -A; git commit -q -m two; git checkout -q main;"
            "echo 3 > three; git add -A; git commit -q -m three;"
            "git checkout -q --detach; git commit -q --allow-empty -m lost;"
            "git reset -q --hard main",
        )
        branch = git("rev-parse", "main", cwd=here.repo)
        saved = await here.trees.remove(made)
        assert saved.problem == ""
        shown = {
            ref.removeprefix(saved.refs[0]): git("log", "-1", "--format=%s", ref, cwd=here.repo)
            for ref in saved.refs
        }
        assert shown[""] == "three"
        assert (shown["-refs/heads/side"], shown["-refs/heads/main"]) == ("two", "three")
        dropped = {text for name, text in shown.items() if name.startswith("-dropped-")}
        assert dropped == {"two", "lost"}
        assert git("rev-parse", "main", cwd=here.repo) == branch
        assert git("branch", "--format=%(refname:short)", cwd=here.repo) == "main"
        git("fsck", "--strict", cwd=here.repo)
        assert list((here.folder / "data/worktrees").glob("*quarantine*")) == []
        await here.trees.forget(saved.name)
        assert git("for-each-ref", cwd=here.repo).count("\n") == 0


async def test_objects_that_fail_the_check_stay_out_and_the_clone_is_kept_as_files() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(made, BAD_TREE + "echo n > new")
        before = contents(here.repo, leave_out=())
        saved = await here.trees.remove(made)
        assert "hasDotgit" in saved.problem
        assert "kept as files" in saved.problem
        assert contents(here.repo, leave_out=()) == before
        await here.trees.store.restore(
            write(here.folder / "git/x", "").parent, saved.repositories[".git"]
        )
        assert (here.folder / "git/refs/heads/bad").exists()
        again = await here.trees.restore(saved, here.folder / "again")
        assert (again / "new").read_text() == "n\n"
        assert isinstance(await apply(here.trees.store, saved), Applied)


@each_level
async def test_a_clone_that_is_made_again_has_its_branches_and_can_be_worked_in(
    level: str,
) -> None:
    async with stage(level) as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(
            made, "git checkout -q -b side; echo 1 > one; git add -A; git commit -qm one"
        )
        await here.agent(made, "echo 2 > two")
        await here.trees.remove(made)
        again = await here.trees.reopen("run", "node")
        assert again is not None
        assert again.path == made.path
        said = await here.agent(again, "git log --format=%s side; git status --porcelain; cat two")
        assert said.splitlines() == ["one", "first", "?? two", "2"]
        await here.agent(again, "git add -A; git commit -qm two")
        saved = await here.trees.remove(again)
        assert git("log", "--format=%s", saved.refs[0], cwd=here.repo) == "two\none\nfirst"


async def test_a_clone_that_is_rewound_or_taken_up_belongs_to_the_children_again() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(made, "echo 1 > one; git add -A; git commit -q -m one")
        early, head = await here.trees.store.take(made.path), await here.trees.head(made)
        await here.agent(made, "git checkout -q -b side; rm one; git commit -qam two; echo 3 > x")
        assert await here.trees.head(made) != head
        await here.trees.rewind(made, early.id)
        assert await here.agent(made, "cat one; ls; echo more >> one") == "1\na.txt\none\nsrc\n"
        saved = await here.trees.remove(made)
        other = await here.trees.recreate_for_run(saved, "other", early.id, head)
        said = await here.agent(other, "cat one; git log --format=%s; echo more >> one; ls")
        assert said == "1\none\nfirst\na.txt\none\nsrc\n"


async def test_a_clone_whose_process_died_is_saved_and_removed() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(made, "echo 1 > one; git add -A; git commit -q -m one; echo 2 > two")
        trees = here.another_process()
        assert [each.status for each in trees.list_all()] == ["orphaned"]
        (saved,) = await trees.prune()
        trees.close()
        assert not made.path.exists()
        assert git("show", f"{saved.refs[0]}:one", cwd=here.repo) == "1"
        assert isinstance(await apply(trees.store, saved), Applied)
        assert (here.repo / "two").read_text() == "2\n"


async def test_where_nothing_confines_nobody_looks_into_the_git_of_a_clone() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(made, "echo 1 > one; git add -A; git commit -q -m one")
        trees = here.another_process(confines=False)
        (saved,) = await trees.prune()
        trees.close()
        assert "cannot confine the git" in saved.problem
        assert saved.refs == ()
        assert ".git" in saved.repositories
        assert isinstance(await apply(trees.store, saved), Applied)
        assert (here.repo / "one").read_text() == "1\n"


async def test_what_a_clone_begins_with_can_be_chosen() -> None:
    async with stage() as here:
        git("tag", "v1", cwd=here.repo)
        write(here.repo / ".gitignore", ".env\n")
        git("add", "-A", cwd=here.repo)
        git("commit", "-q", "-m", "second", cwd=here.repo)
        write(here.repo / ".env", "KEY=1\n")
        write(here.repo / "a.txt", "uncommitted\n")
        old = await here.trees.create(here.repo, "run", "old", ref="v1")
        new = await here.trees.create(
            here.repo, "run", "new", include_uncommitted=True, include=[".env"]
        )
        assert await here.agent(old, "cat a.txt; ls -A") == "one\ntwo\nthree\n.git\na.txt\nsrc\n"
        assert await here.agent(new, "cat a.txt .env") == "uncommitted\nKEY=1\n"
        assert await here.agent(new, "git status --porcelain; echo x >> .env") == " M a.txt\n"


async def test_what_was_being_made_when_a_process_died_is_thrown_away() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        record = here.folder / "data/worktrees" / f"{made.name}.json"
        record.write_text(record.read_text().replace('"stage": "ready"', '"stage": "creating"'))
        trees = here.another_process()
        assert await trees.prune() == []
        trees.close()
        assert not made.path.exists()
        assert trees.list_all() == []


async def test_repositories_that_an_agent_left_inside_are_restored_under_another_name() -> None:
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        await here.agent(made, "git init -q lib; echo x > lib/x")
        saved = await here.trees.remove(made)
        restored = await here.trees.restore(saved, here.folder / "again")
        assert sorted(path.name for path in (restored / "lib").iterdir()) == [".git.untrusted", "x"]
        again = await here.trees.reopen("run", "node")
        assert again is not None
        assert await here.agent(again, "git -C lib rev-parse --git-dir") == ".git\n"


async def test_a_clone_belongs_to_the_children_and_what_is_beside_it_does_not() -> None:
    if USER is None:
        ruled_out("children run as the same user")
    async with stage() as here:
        made = await here.trees.create(here.repo, "run", "node")
        owners = {path.lstat().st_uid for path in (made.path, *made.path.rglob("*"))}
        assert owners == {USER[0]}
        data = here.folder / "data"
        assert {each.stat().st_mode & 0o777 for each in (data, data / "worktrees")} == {0o710}
        assert (data / "snapshots").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a bundle"),
        (b"PACK", "not a bundle"),
        (b"# v2 git bundle\n\nnothing", "not a bundle"),
        (b"# v1 git bundle\n\nPACK", "not a bundle"),
        (b"# v2 git bundle\nnot-an-id refs/heads/x\n\nPACK", "not a ref"),
        (b"# v2 git bundle\n" + b"1" * 40 + b" config\n\nPACK", "not a ref"),
        (
            b"# v2 git bundle\n" + b"1" * 40 + b" refs/x\0delete refs/heads/main\n\nPACK",
            "not a ref",
        ),
    ],
)
def test_a_bundle_that_is_none_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(StepError, match=said):
        read_bundle(data)


@pytest.mark.parametrize(
    ("count", "entry", "said"),
    [
        (1, b"", "damaged"),
        (1, b"\x90" + b"\x80" * 1000, "damaged"),
        (1, b"\x35" + zlib.compress(b"short")[:-5], "damaged"),
        (1, b"\x35" + zlib.compress(bytes(1 << 20)), "damaged"),
        (1, b"\x65\x05" + zlib.compress(b"\xff\xff\xff"), "damaged"),
        (
            1,
            b"\x7a" + bytes(20) + zlib.compress(b"\x01" + b"\xff" * 8 + b"\x7f"),
            "one of the objects has",
        ),
        (2_000_000, b"", "2000000 objects"),
    ],
)
def test_a_pack_that_lies_is_refused(count: int, entry: bytes, said: str) -> None:
    with pytest.raises(StepError, match=said):
        check_pack_size(b"PACK" + struct.pack(">LL", 2, count) + entry, TreeLimits())


def test_a_bundle_says_which_refs_it_has() -> None:
    head = b"# v3 git bundle\n@object-format=sha1\n-" + b"2" * 40 + b" HEAD refs\n"
    bundle = read_bundle(head + b"1" * 40 + b" refs/heads/x\n" + b"1" * 40 + b" HEAD\n\nPACK\n\n")
    assert bundle.refs == {"refs/heads/x": "1" * 40}
    assert bundle.pack == b"PACK\n\n"
