"""Worktrees that lose nothing, and work that is applied whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import InfloopError, StepError, UsageError
from infloop.workspace.applying.apply import Applied, apply
from infloop.workspace.applying.merge import MergeConflict
from infloop.workspace.applying.selection import Worked, select
from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.worktrees.worktree import Worktrees
from support.paths import CHILDREN
from support.repositories import at, contents, git, programs, repository, write
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from infloop.workspace.git.program import ProgramResult, RunProgram
    from infloop.workspace.worktrees.records import Saved


@contextlib.asynccontextmanager
async def worktrees_in(directory: Path, **limits: Any) -> AsyncIterator[Worktrees]:
    async with programs() as run:
        data = directory / "data"
        store = SnapshotStore(
            data / "snapshots",
            run,
            exclude=(data,),
            limits=TreeLimits(**limits) if limits else None,
        )
        trees = Worktrees(data, run, store=store)
        try:
            yield trees
        finally:
            trees.close()


def git_state(root: Path) -> dict[bytes, object]:
    return contents(root / ".git", leave_out=())


# --- making them ----------------------------------------------------------------------------


async def test_a_worktree_is_a_clean_checkout_elsewhere_with_the_same_subdirectory(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path / "repo")
    write(repo / "a.txt", "not committed\n")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo / "src", "run-0123456789", "loop[2]/agent")
        assert made.path.parent == tmp_path / "data" / "worktrees"
        assert made.cwd == made.path / "src"
        assert made.repository == repo
        assert made.commit == git("rev-parse", "HEAD", cwd=repo)
        assert made.path.name.startswith("run-0123-loop-2--agent-")
        assert (made.cwd / "b.txt").read_text() == "b\n"
        assert (made.path / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert git("status", "--porcelain", cwd=made.path) == ""
        assert git("rev-parse", "--abbrev-ref", "HEAD", cwd=made.path) == "HEAD"
        assert git("worktree", "list", cwd=repo).count("\n") == 1


async def test_made_and_removed_a_worktree_leaves_no_byte_in_the_repository(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    before = contents(repo, leave_out=())
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node", include_uncommitted=True)
        write(made.path / "work", "w\n")
        await trees.remove(made)
        assert contents(repo, leave_out=()) == before
        assert not made.path.exists()


@pytest.mark.parametrize("ref", ["v1", "main~1", "other", "refs/heads/other", "main^"])
async def test_it_begins_at_the_ref_that_was_asked_for(tmp_path: Path, ref: str) -> None:
    repo = repository(tmp_path / "repo")
    git("tag", "v1", cwd=repo)
    git("branch", "other", cwd=repo)
    write(repo / "later", "l\n")
    git("add", "-A", cwd=repo)
    git("commit", "-q", "-m", "second", cwd=repo)
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node", ref=ref)
        assert made.commit == git("rev-parse", "v1", cwd=repo)
        assert not (made.path / "later").exists()


@pytest.mark.parametrize(
    "ref", ["nowhere", "--detach", "-b", "HEAD:a.txt", "a b", "x\ny", "HEAD^{tree}", "0" * 40]
)
async def test_a_ref_that_is_none_is_named_and_nothing_is_left(tmp_path: Path, ref: str) -> None:
    repo = repository(tmp_path / "repo")
    before = git_state(repo)
    async with worktrees_in(tmp_path) as trees:
        with pytest.raises(InfloopError) as caught:
            await trees.create(repo, "run", "node", ref=ref)
        assert repr(ref) in str(caught.value)
        assert trees.list_all() == []
        assert git_state(repo) == before


def empty_repository(path: Path) -> Path:
    path.mkdir()
    git("init", "-q", cwd=path)
    return path


def bare_repository(path: Path) -> Path:
    path.mkdir()
    git("init", "-q", "--bare", cwd=path)
    return path


def plain_directory(path: Path) -> Path:
    path.mkdir()
    return path


def broken_repository(path: Path) -> Path:
    path.mkdir()
    write(path / ".git", "gitdir: /nonexistent\n")
    return path


def other_objects(path: Path) -> Path:
    path.mkdir()
    git("init", "-q", "--object-format=sha256", cwd=path)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=path)
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (empty_repository, "has no commit yet"),
        (bare_repository, "bare repository"),
        (plain_directory, "is not in a git repository"),
        (broken_repository, "is not in a git repository"),
        (other_objects, "sha256"),
    ],
)
async def test_what_cannot_have_a_worktree_is_told_so(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    place = make(tmp_path / "place")
    async with worktrees_in(tmp_path) as trees:
        with pytest.raises(StepError, match=words):
            await trees.create(place, "run", "node")


async def test_a_worktree_is_never_made_inside_the_repository(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(repo) as trees:
        with pytest.raises(StepError, match="inside the repository"):
            await trees.create(repo, "run", "node")


@pytest.mark.parametrize(
    "name",
    [b"with space", b"-dash", b"new\nline", b"\xff\xfe", b'quo"te:colon', b"back\\slash"],
    ids=ascii,
)
async def test_a_repository_may_be_anywhere(tmp_path: Path, name: bytes) -> None:
    repo = repository(at(tmp_path, name))
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo / "src", "run", "node", include_uncommitted=True)
        write(made.path / "work", "w\n")
        git("add", "-A", cwd=made.path)
        git("commit", "-q", "-m", "agent", cwd=made.path)
        saved = await trees.remove(made)
        assert isinstance(await apply(trees.store, saved), Applied)
        assert isinstance(await apply(trees.store, saved, to_branch="result"), Applied)
        assert (repo / "work").read_text() == "w\n"
        assert git("show", "result:work", cwd=repo) == "w"
        again = await trees.restore(saved, at(tmp_path, b"again " + name))
        assert git("rev-parse", "HEAD", cwd=again) == saved.head


async def test_a_worktree_of_a_worktree_and_of_a_submodule(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    inner = repository(tmp_path / "inner", {"inner.txt": "i\n"})
    git("-c", "protocol.file.allow=always", "submodule", "-q", "add", inner, "sub", cwd=repo)
    git("commit", "-q", "-m", "submodule", cwd=repo)
    linked = tmp_path / "linked"
    git("worktree", "add", "-q", "-b", "side", linked, cwd=repo)
    git("commit", "-q", "--allow-empty", "-m", "side", cwd=linked)
    async with worktrees_in(tmp_path) as trees:
        whole = await trees.create(repo, "run", "whole", include_uncommitted=True)
        assert list((whole.path / "sub").iterdir()) == []
        assert git("status", "--porcelain", cwd=whole.path) == ""
        of_linked = await trees.create(linked, "run", "linked")
        assert of_linked.commit == git("rev-parse", "side", cwd=repo)
        of_sub = await trees.create(repo / "sub", "run", "sub")
        assert (of_sub.path / "inner.txt").read_text() == "i\n"
        for made in (whole, of_linked, of_sub):
            await trees.remove(made)
    assert git("worktree", "list", cwd=repo).count("\n") == 1


async def test_commits_in_a_submodule_of_a_worktree_are_kept(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    inner = repository(tmp_path / "inner", {"inner.txt": "i\n"})
    files = ("-c", "protocol.file.allow=always")
    git(*files, "submodule", "-q", "add", inner, "sub", cwd=repo)
    git("commit", "-q", "-m", "submodule", cwd=repo)
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        git(*files, "submodule", "-q", "update", "--init", cwd=made.path)
        write(made.path / "sub" / "agent", "a\n")
        git("add", "-A", cwd=made.path / "sub")
        git("commit", "-q", "-m", "agent", cwd=made.path / "sub")
        commit = git("rev-parse", "HEAD", cwd=made.path / "sub")
        saved = await trees.remove(made)
        kept = tmp_path / "kept"
        kept.mkdir()
        await trees.store.restore(kept, saved.repositories[".git/modules"])
    found = ("--git-dir", kept / "sub", "--work-tree", tmp_path)
    assert git(*found, "cat-file", "-t", commit, cwd=tmp_path) == "commit"


async def test_what_is_not_committed_comes_along_when_asked_for(tmp_path: Path) -> None:
    repo = repository(
        tmp_path / "repo", {"a": "a\n", "b": "b\n", "c/d": "d\n", "e": "e\n", "f": "f\n"}
    )
    write(repo / ".gitignore", "*.log\nbuilt/\n")
    write(repo / "a", "changed\n")
    (repo / "b").unlink()
    shutil.rmtree(repo / "c")
    write(repo / "c", "a file now\n")
    (repo / "e").unlink()
    write(repo / "e" / "inside", "a directory now\n")
    (repo / "f").chmod(0o755)
    write(repo / "new" / "file", "n\n")
    write(repo / "staged", "s\n")
    git("add", "staged", cwd=repo)
    (repo / "link").symlink_to("a")
    write(repo / "x.log", "ignored")
    write(repo / "built" / "y", "ignored")
    write(repo / ".git" / "info" / "exclude", "private\n")
    write(repo / "private", "ignored by the user's own rules")
    repository(repo / "nested")
    before = git_state(repo)
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node", include_uncommitted=True)
        found, theirs = contents(made.path), contents(repo)
        assert git_state(repo).items() >= before.items()
    for name in ("x.log", "built", "built/y", "private"):
        del theirs[name.encode()]
    wanted = {path: what for path, what in theirs.items() if not path.startswith(b"nested")}
    assert found == wanted


async def test_uncommitted_changes_do_not_go_with_another_ref(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git("commit", "-q", "--allow-empty", "-m", "second", cwd=repo)
    async with worktrees_in(tmp_path) as trees:
        with pytest.raises(UsageError, match="HEAD~1"):
            await trees.create(repo, "run", "node", ref="HEAD~1", include_uncommitted=True)


@pytest.mark.parametrize(
    ("patterns", "brought"),
    [
        ([".env"], {".env"}),
        (["*.env"], {".env", "prod.env"}),
        (["config/*.local"], {"config/a.local", "config/b.local"}),
        (["**/.env"], {".env", "deep/er/.env"}),
        (["deep"], {"deep/er/.env", "deep/link"}),
        (["deep/**"], {"deep/er/.env", "deep/link"}),
        (["nothing", "[", ""], None),
        (["nothing", "["], set()),
        (["../outside"], None),
        (["/etc/passwd"], None),
        ([".git/config"], None),
        (["x/../../y"], None),
    ],
)
async def test_named_files_come_along_though_git_ignores_them(
    tmp_path: Path, patterns: list[str], brought: set[str] | None
) -> None:
    repo = repository(tmp_path / "repo", {".gitignore": "*.env\n*.local\ndeep\n"})
    for name in (".env", "prod.env", "config/a.local", "config/b.local", "deep/er/.env"):
        write(repo / name, name).chmod(0o600)
    (repo / "deep" / "link").symlink_to("/etc")
    write(tmp_path / "outside", "o")
    async with worktrees_in(tmp_path) as trees:
        if brought is None:
            with pytest.raises(UsageError, match="cannot be included"):
                await trees.create(repo, "run", "node", include=patterns)
            return
        made = await trees.create(repo, "run", "node", include=patterns)
        found = {
            os.fsdecode(path)
            for path, what in contents(made.path).items()
            if not isinstance(what, int)
        }
        assert found - {".gitignore"} == brought
        for name in brought - {"deep/link"}:
            assert (made.path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.thorough
async def test_many_worktrees_of_one_repository_at_once(tmp_path: Path) -> None:
    many = amount(6, thorough=12)
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path / "one") as one, worktrees_in(tmp_path / "two") as two:
        made = await asyncio.gather(
            *((one, two)[n % 2].create(repo, "run", f"node{n}") for n in range(many))
        )
        assert len({each.path for each in made}) == many
        for each in made:
            assert contents(each.path).keys() == contents(repo).keys()
            write(each.path / "work", each.node)
        saved = await asyncio.gather(*((one, two)[n % 2].remove(made[n]) for n in range(many)))
        assert len({each.final for each in saved}) == many
    assert git("worktree", "list", cwd=repo).count("\n") == 0


# --- saving and removing them -----------------------------------------------------------------


async def work_of_an_agent(trees: Worktrees, repo: Path) -> tuple[Saved, dict[bytes, object]]:
    """Let an agent do everything that it can, then remove its worktree."""
    made = await trees.create(repo, "run", "node")
    write(made.path / ".gitignore", "*.log\n")
    write(made.path / "committed", "c\n")
    git("add", "-A", cwd=made.path)
    git("commit", "-q", "-m", "kept", cwd=made.path)
    write(made.path / "dropped", "d\n")
    git("add", "-A", cwd=made.path)
    git("commit", "-q", "-m", "dropped", cwd=made.path)
    git("reset", "-q", "--hard", "HEAD~1", cwd=made.path)
    write(made.path / "staged", "s\n")
    git("add", "staged", cwd=made.path)
    write(made.path / "a.txt", "edited\n")
    write(made.path / "x.log", "ignored\n")
    write(made.path / "program", "p\n").chmod(0o755)
    (made.path / "src" / "b.txt").unlink()
    repository(made.path / "nested")
    write(made.path / "large", b"x" * 2000)
    everything = contents(made.path, leave_out=())
    return await trees.remove(made), everything


async def test_everything_an_agent_wrote_is_kept_when_its_worktree_goes(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path, file_bytes=1000) as trees:
        saved, everything = await work_of_an_agent(trees, repo)
        git("reflog", "expire", "--expire=now", "--all", cwd=repo)
        git("gc", "-q", "--prune=now", cwd=repo)
        subjects = [git("log", "-1", "--format=%s", ref, cwd=repo) for ref in saved.refs]
        assert subjects == ["kept", "dropped"]
        assert saved.ref
        assert saved.ref.startswith("refs/infloop/run/node-")
        assert git("branch", "-a", cwd=repo) == "* main"
        again = await trees.restore(saved, tmp_path / "again")
        del everything[b".git"]
        found = contents(again, leave_out=())
        del found[b".git"]
        assert found == everything
        assert git("log", "-1", "--format=%s", cwd=again) == "kept"
        assert git("log", "-1", "--format=%s", cwd=again / "nested") == "first"
        assert set(git("status", "--porcelain", cwd=again).splitlines()) >= {"M a.txt", "?? staged"}


def test_what_may_not_be_read_is_kept_too(tmp_path: Path) -> None:
    """In a process that may not read everything, which root may."""

    def be_nobody_special() -> None:
        for override in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, override, 0, 0, 0)  # PR_CAPBSET_DROP

    program = [sys.executable, str(CHILDREN / "unreadable_worktree.py"), str(tmp_path)]
    subprocess.run(program, check=True, preexec_fn=be_nobody_special)


async def test_saved_twice_nothing_of_the_first_time_is_lost(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        git("commit", "-q", "--allow-empty", "-m", "one", cwd=made.path)
        first = await trees.save(made)
        git("commit", "-q", "--amend", "--allow-empty", "-m", "two", cwd=made.path)
        admin = Path(git("rev-parse", "--absolute-git-dir", cwd=made.path))
        (admin / "logs" / "HEAD").unlink()
        second = await trees.remove(made)
        assert first.ref == second.ref
        assert [git("log", "-1", "--format=%s", ref, cwd=repo) for ref in second.refs] == [
            "two",
            "one",
        ]


async def test_a_branch_that_the_agent_made_is_what_is_saved(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        git("switch", "-q", "-c", "feature", cwd=made.path)
        git("commit", "-q", "--allow-empty", "-m", "on a branch", cwd=made.path)
        saved = await trees.remove(made)
    assert saved.head == git("rev-parse", "feature", cwd=repo)


async def test_a_worktree_that_cannot_be_saved_is_not_removed(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        git("commit", "-q", "--allow-empty", "-m", "agent", cwd=made.path)
        write(made.path / "work", "w\n")
        write(repo / ".git" / "refs" / "infloop", "in the way")
        with pytest.raises(StepError, match="update-ref"):
            await trees.remove(made)
        assert (made.path / "work").exists()
        (repo / ".git" / "refs" / "infloop").unlink()
        assert (await trees.remove(made)).ref


async def test_what_a_dead_process_left_is_found_and_saved(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as dead:
        left = await dead.create(repo, "run-1", "node")
        write(left.path / "work", "w\n")
    async with worktrees_in(tmp_path) as trees:
        used = await trees.create(repo, "run-2", "node")
        states = {each.run_id: each.status for each in trees.list_all()}
        assert states == {"run-1": "orphaned", "run-2": "in use"}
        assert await trees.prune(["run-3"]) == []
        (saved,) = await trees.prune()
        assert saved.run_id == "run-1"
        states = {each.run_id: each.status for each in trees.list_all()}
        assert states == {"run-1": "saved", "run-2": "in use"}
        assert used.path.exists()
        assert not left.path.exists()
        again = await trees.restore(saved, tmp_path / "again")
        assert (again / "work").read_text() == "w\n"


async def test_a_run_that_goes_on_in_another_process_goes_on_in_its_worktree(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as dead:
        left = await dead.create(repo, "run", "node")
        write(left.path / "work", "w\n")
    async with worktrees_in(tmp_path) as trees:
        assert await trees.reopen("run", "other") is None
        assert await trees.reopen("run", "node") == left
        assert [each.status for each in trees.list_all()] == ["in use"]
        assert await trees.prune() == []


async def test_a_worktree_that_was_removed_is_made_again_where_it_was(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path, file_bytes=1000) as trees:
        saved, everything = await work_of_an_agent(trees, repo)
        again = await trees.reopen("run", "node")
        assert again
        assert (again.name, again.base) == (saved.name, saved.base)
        found = contents(again.path, leave_out=())
        for each in (found, everything):
            del each[b".git"]
        assert found == everything
        assert await trees.head(again) == saved.head
        git("commit", "-q", "--allow-empty", "-m", "more", cwd=again.path)
        later = await trees.remove(again)
        subjects = [git("log", "-1", "--format=%s", ref, cwd=repo) for ref in later.refs]
        assert subjects == ["more", "dropped"]
        assert len(trees.list_all()) == 1


async def test_another_run_takes_up_a_worktree_from_an_earlier_moment(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo / "src", "run-1", "node")
        git("commit", "-q", "--allow-empty", "-m", "one", cwd=made.path)
        write(made.path / "early", "e\n")
        moment, head = await trees.store.take(made.path), await trees.head(made)
        git("commit", "-q", "--allow-empty", "-m", "two", cwd=made.path)
        repository(made.path / "nested")
        write(made.path / "late", "l\n")
        saved = await trees.remove(made)
        again = await trees.recreate_for_run(saved, "run-2", moment.id, head)
        assert (again.path, again.cwd, again.base) == (made.path, made.cwd, made.base)
        assert contents(again.path).keys() == {b"", b"a.txt", b"early", b"src", b"src/b.txt"}
        assert git("log", "-1", "--format=%s", cwd=again.path) == "one"
        for taken in (
            trees.recreate_for_run(saved, "run-3", moment.id),
            trees.reopen("run-1", "node"),
        ):
            with pytest.raises(UsageError, match="is in use by run 'run-2'"):
                await taken
        assert contents(again.path).keys() == {b"", b"a.txt", b"early", b"src", b"src/b.txt"}
        await trees.remove(again)
        assert await trees.reopen("run-1", "node") == made
        assert (made.path / "late").exists()


async def test_a_worktree_that_cannot_be_taken_up_leaves_nothing(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        saved, _ = await work_of_an_agent(trees, repo)
        before = git_state(repo)
        with pytest.raises(InfloopError, match="0" * 40):
            await trees.recreate_for_run(saved, "run-2", "0" * 40)
        assert [each.status for each in trees.list_all()] == ["saved"]
        assert git_state(repo) == before


async def test_a_worktree_that_somebody_deleted_is_no_trouble(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        git("commit", "-q", "--allow-empty", "-m", "agent", cwd=made.path)
        shutil.rmtree(made.path)
        saved = await trees.remove(made)
        assert saved.final == made.base
        assert saved.ref
        assert git("worktree", "list", cwd=repo).count("\n") == 0


async def test_a_repository_that_is_gone_does_not_keep_work_from_being_saved(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node")
        write(made.path / "work", "w\n")
        shutil.rmtree(repo)
        saved = await trees.remove(made)
        again = await trees.restore(saved, tmp_path / "again")
        assert (again / "work").read_text() == "w\n"
        await trees.forget(saved.name)


async def test_pruning_snapshots_keeps_what_was_saved_until_it_is_forgotten(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with worktrees_in(tmp_path) as trees:
        saved, _ = await work_of_an_agent(trees, repo)
        refs = trees.store.directory / "refs" / "snapshots"

        def age() -> None:
            for ref in refs.iterdir():
                os.utime(ref, (0, 0))

        age()
        await trees.store.prune([])
        again = await trees.restore(saved, tmp_path / "again")
        assert (again / "a.txt").read_text() == "edited\n"
        with pytest.raises(UsageError, match="exists"):
            await trees.restore(saved, again)
        await trees.forget(saved.name)
        age()
        await trees.store.prune([])
        assert list(refs.iterdir()) == []
        assert trees.list_all() == []
        assert git("for-each-ref", "refs/infloop", cwd=repo) == ""
        with pytest.raises(UsageError, match="no worktree"):
            await trees.forget(saved.name)


@pytest.mark.thorough
@pytest.mark.parametrize("operation", ["create", "remove", "restore", "apply"])
def test_killed_at_any_moment_nothing_is_lost(tmp_path: Path, operation: str) -> None:
    """See workspace_crash.py: it dies at effects spread over the whole operation."""
    script = [sys.executable, str(CHILDREN / "workspace_crash.py")]
    kills = amount(2, thorough=12)
    done = subprocess.run(
        [*script, operation, str(tmp_path), str(kills)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    effects, deaths = map(int, done.stdout.split())
    assert effects > 20
    assert deaths == kills


# --- applying work ----------------------------------------------------------------------------


async def saved_work(trees: Worktrees, repo: Path, work: Callable[[Path], object]) -> Saved:
    made = await trees.create(repo, "run", "node")
    work(made.path)
    return await trees.remove(made)


def agent_edits(path: Path) -> None:
    write(path / "a.txt", "one\ntwo\nthree\nagent\n")
    write(path / "new" / "program", "#!/bin/sh\n").chmod(0o755)
    (path / "link").symlink_to("a.txt")
    (path / "gone.txt").unlink()
    write(path / "x.log", "ignored")
    shutil.rmtree(path / "src")
    write(path / "src", "a file now\n")
    (path / "mode.sh").chmod(0o755)
    git("add", "-A", cwd=path)
    git("commit", "-q", "-m", "agent", cwd=path)
    write(path / "later.txt", "l\n")
    repository(path / "cloned")


FILES = {
    "a.txt": "one\ntwo\nthree\n",
    "gone.txt": "g\n",
    "src/b.txt": "b\n",
    "mode.sh": "m\n",
    ".gitignore": "*.log\nprivate\n",
    "other.txt": "o\n",
}


async def test_work_is_merged_into_the_users_tree_as_uncommitted_changes(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        write(repo / "a.txt", "user\none\ntwo\nthree\n").chmod(0o600)
        write(repo / "other.txt", "changed by the user\n")
        write(repo / "private", "ignored, the user's")
        write(repo / "x.log", "the user's own")
        (repo / "hollow").mkdir()
        git("add", "other.txt", cwd=repo)
        state, before = git_state(repo), contents(repo)
        done = await apply(trees.store, saved)
        assert isinstance(done, Applied)
        assert git_state(repo) == state
        known = Worked(saved.base, saved.final, ignored=saved.ignored)
        assert set((await select(trees.store, known)).left_out) == {"cloned/", "x.log"}
        assert {change.path: change.kind for change in done.changes} == {
            "a.txt": "modified",
            "gone.txt": "deleted",
            "later.txt": "added",
            "link": "added",
            "mode.sh": "mode",
            "new/program": "added",
            "src": "added",
            "src/b.txt": "deleted",
        }
        assert (repo / "a.txt").read_text() == "user\none\ntwo\nthree\nagent\n"
        assert (repo / "a.txt").stat().st_mode & 0o777 == 0o600
        assert (repo / "src").read_text() == "a file now\n"
        assert os.access(repo / "new" / "program", os.X_OK)
        assert os.access(repo / "mode.sh", os.X_OK)
        assert (repo / "x.log").read_text() == "the user's own"
        assert (repo / "other.txt").read_text() == "changed by the user\n"
        assert (repo / "hollow").is_dir()
        again = await apply(trees.store, saved)
        assert isinstance(again, Applied)
        assert again.changes == ()
        assert done.before
        await trees.store.restore(repo, done.before)
        assert contents(repo) == before


CLASHES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], dict[str, str]]] = {
    "same lines": (
        lambda user: write(user / "a.txt", "ONE\ntwo\nthree\n"),
        lambda agent: write(agent / "a.txt", "eins\ntwo\nthree\n"),
        {"a.txt": "content"},
    ),
    "both added": (
        lambda user: write(user / "new", "user\n"),
        lambda agent: write(agent / "new", "agent\n"),
        {"new": "add/add"},
    ),
    "agent deleted": (
        lambda user: write(user / "a.txt", "user\n"),
        lambda agent: (agent / "a.txt").unlink(),
        {"a.txt": "modify/delete"},
    ),
    "user deleted": (
        lambda user: (user / "a.txt").unlink(),
        lambda agent: write(agent / "a.txt", "agent\n"),
        {"a.txt": "modify/delete"},
    ),
    "file and directory": (
        lambda user: write(user / "new", "user\n"),
        lambda agent: write(agent / "new" / "file", "agent\n"),
        {"new": "file/directory"},
    ),
    "binary": (
        lambda user: write(user / "a.txt", b"\0user"),
        lambda agent: write(agent / "a.txt", b"\0agent"),
        {"a.txt": "binary"},
    ),
    "too large to keep": (
        lambda user: write(user / "new", b"x" * 2000),
        lambda agent: write(agent / "new", "agent\n"),
        {"new": "not kept"},
    ),
    "a pipe": (
        lambda user: os.mkfifo(user / "new"),
        lambda agent: write(agent / "new", "agent\n"),
        {"new": "not kept"},
    ),
}


@pytest.mark.parametrize("name", CLASHES)
async def test_a_conflict_is_reported_and_nothing_is_changed(tmp_path: Path, name: str) -> None:
    user, agent, clashes = CLASHES[name]
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path, file_bytes=1000) as trees:

        def both(path: Path) -> None:
            agent(path)
            write(path / "harmless", "h\n")

        saved = await saved_work(trees, repo, both)
        user(repo)
        before = contents(repo, leave_out=())
        done = await apply(trees.store, saved)
        assert isinstance(done, MergeConflict)
        assert contents(repo, leave_out=()) == before
    assert {clash.path: clash.kind for clash in done.paths} == clashes
    (path,) = clashes
    assert done.report.startswith(f"{path}: ")
    assert len(done.report.splitlines()) == 1


async def test_work_becomes_one_commit_on_a_new_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        write(repo / "other.txt", "the user goes on\n")
        git("commit", "-q", "-a", "-m", "user", cwd=repo)
        before, head = contents(repo), git("rev-parse", "HEAD", cwd=repo)
        done = await apply(
            trees.store,
            saved,
            to_branch="agents/result",
            message="What the agent did",
            author="Ann <ann@example.com>",
        )
        assert isinstance(done, Applied)
        assert done.branch == "agents/result"
        assert done.commit == git("rev-parse", "agents/result", cwd=repo)
        assert contents(repo) == before
        assert git("rev-parse", "HEAD", cwd=repo) == head
        assert git("status", "--porcelain", cwd=repo) == ""
    assert git("rev-parse", "agents/result~1", cwd=repo) == saved.commit
    shown = git("log", "-1", "--format=%s|%an <%ae>", "agents/result", cwd=repo)
    assert shown == "What the agent did|Ann <ann@example.com>"
    named = git("ls-tree", "-r", "--name-only", "agents/result", cwd=repo).splitlines()
    assert named == [
        ".gitignore",
        "a.txt",
        "later.txt",
        "link",
        "mode.sh",
        "new/program",
        "other.txt",
        "src",
    ]
    git("fsck", "--full", "--strict", cwd=repo)
    shutil.rmtree(tmp_path / "data")
    git("checkout", "-q", "agents/result", cwd=repo)
    assert (repo / "a.txt").read_text() == "one\ntwo\nthree\nagent\n"


async def test_work_is_merged_onto_an_existing_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        git("switch", "-q", "-c", "feature", cwd=repo)
        write(repo / "a.txt", "feature\none\ntwo\nthree\n")
        git("commit", "-q", "-a", "-m", "feature", cwd=repo)
        tip = git("rev-parse", "HEAD", cwd=repo)
        with pytest.raises(UsageError, match="'feature' is checked out in"):
            await apply(trees.store, saved, to_branch="feature")
        git("switch", "-q", "main", cwd=repo)
        done = await apply(trees.store, saved, to_branch="feature")
        assert isinstance(done, Applied)
        assert git("rev-parse", "feature~1", cwd=repo) == tip
        assert git("show", "feature:a.txt", cwd=repo) == "feature\none\ntwo\nthree\nagent"
        again = await apply(trees.store, saved, to_branch="feature")
        assert isinstance(again, Applied)
        assert again.commit == done.commit
        git("branch", "clashing", "main", cwd=repo)
        git("switch", "-q", "clashing", cwd=repo)
        write(repo / "a.txt", "one\ntwo\nthree\nclash\n")
        git("commit", "-q", "-a", "-m", "clash", cwd=repo)
        git("switch", "-q", "main", cwd=repo)
        state = git_state(repo)
        conflict = await apply(trees.store, saved, to_branch="clashing")
        assert isinstance(conflict, MergeConflict)
        assert git_state(repo) == state


@pytest.mark.parametrize("branch", ["-x", "a b", "a..b", "", "/", "x.lock", "x\ny", "@{-1}"])
async def test_a_name_that_no_branch_can_have_is_refused(tmp_path: Path, branch: str) -> None:
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        with pytest.raises(UsageError, match="is not a valid branch name"):
            await apply(trees.store, saved, to_branch=branch)


async def test_uncommitted_changes_that_came_along_are_not_applied_again(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", FILES)
    write(repo / "a.txt", "user\none\ntwo\nthree\n")
    write(repo / "untracked", "u\n")
    async with worktrees_in(tmp_path) as trees:
        made = await trees.create(repo, "run", "node", include_uncommitted=True)
        write(made.path / "a.txt", "user\none\ntwo\nthree\nagent\n")
        write(made.path / "untracked", "u\nagent\n")
        saved = await trees.remove(made)
        done = await apply(trees.store, saved)
        assert isinstance(done, Applied)
        assert (repo / "a.txt").read_text() == "user\none\ntwo\nthree\nagent\n"
        assert (repo / "untracked").read_text() == "u\nagent\n"
        onto = await apply(trees.store, saved, to_branch="result")
        # The agent changed a file that the branch has never seen.
        assert isinstance(onto, MergeConflict)
        assert [clash.path for clash in onto.paths] == ["untracked"]


async def test_a_tree_with_submodules_can_be_applied_to(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    inner = repository(tmp_path / "inner")
    git("-c", "protocol.file.allow=always", "submodule", "-q", "add", inner, "sub", cwd=repo)
    git("commit", "-q", "-m", "submodule", cwd=repo)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, lambda path: write(path / "work", "w\n"))
        for branch in (None, "result"):
            assert isinstance(await apply(trees.store, saved, to_branch=branch), Applied)
    assert (repo / "work").exists()
    assert (repo / "sub" / "a.txt").exists()
    assert git("ls-tree", "result", "sub", cwd=repo) == git("ls-tree", "main", "sub", cwd=repo)


async def test_an_error_in_the_middle_takes_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = repository(tmp_path / "repo", FILES)
    rename = os.rename

    def failing(source: Any, target: Any, **more: Any) -> None:
        if target == b"src":
            raise OSError(errno.ENOSPC, "No space left on device", b"src")
        rename(source, target, **more)

    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        before = contents(repo, leave_out=())
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", failing)
            with pytest.raises(StepError, match="No space left"):
                await apply(trees.store, saved)
        assert contents(repo, leave_out=()) == before
        assert isinstance(await apply(trees.store, saved), Applied)


async def test_an_edit_made_while_work_is_applied_is_kept(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", FILES)
    async with worktrees_in(tmp_path) as trees:
        saved = await saved_work(trees, repo, agent_edits)
        before = contents(repo)
        meddled = SnapshotStore(trees.store.directory, editing(trees.store.git._run, repo))
        with pytest.raises(StepError, match=r"'src/b\.txt' changed during"):
            await apply(meddled, saved)
        assert (repo / "src" / "b.txt").read_text() == "somebody's edit"
        write(repo / "src" / "b.txt", "b\n")
        assert contents(repo) == before


def editing(run: RunProgram, repo: Path) -> RunProgram:
    """Return a runner that edits a file as soon as contents are read of what was merged."""
    merged = False

    async def runner(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
    ) -> ProgramResult:
        nonlocal merged
        merged = merged or "merge-tree" in argv
        if merged and "--batch" in argv and stdin and b":" not in stdin:
            write(repo / "src" / "b.txt", "somebody's edit")
        return await run(argv, cwd, env, stdin)

    return runner
