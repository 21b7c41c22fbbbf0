"""Our own git calls execute nothing that a tree or a repository says.

Each trap is set twice: once to see that git as a user calls it walks into it, where there is a way
to see that, and once for every call of ours.
"""

from __future__ import annotations

import contextlib
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.errors import InfloopError
from infloop.workspace.applying.apply import ProtectedChanges, apply
from infloop.workspace.worktrees.worktree import Worktrees
from support.repositories import git, programs, repository, write

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Trap:
    """A repository, and a program that leaves a mark when it is run."""

    root: Path
    program: Path
    mark: Path

    def config(self, *settings: str, file: Path | None = None) -> None:
        for setting in settings:
            key, _, value = setting.partition("=")
            where = file or self.root / ".git" / "config"
            git(
                "config",
                "--file",
                where,
                "--add",
                key,
                value.replace("EVIL", str(self.program)),
                cwd=self.root,
            )

    def hooks(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        names = ("post-checkout", "reference-transaction", "post-index-change", "pre-commit")
        for name in (*names, "pre-auto-gc", "post-merge", "fsmonitor-watchman"):
            (directory / name).unlink(missing_ok=True)
            (directory / name).symlink_to(self.program)

    @property
    def sprung(self) -> bool:
        return self.mark.exists()


def trap_in(directory: Path) -> Trap:
    directory.mkdir()
    mark = directory / "mark"
    program = write(directory / "evil", f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    program.chmod(0o755)
    root = repository(directory / "repo", {"a.txt": "one\n", "src/b.bin": "two\n"})
    return Trap(root, program, mark)


def fsmonitor(trap: Trap) -> None:
    trap.config("core.fsmonitor=EVIL", "core.fsmonitorHookVersion=2")


def hooks(trap: Trap) -> None:
    trap.hooks(trap.root / ".git" / "hooks")


def hooks_path(trap: Trap) -> None:
    trap.hooks(trap.root / "tools")
    trap.config(f"core.hooksPath={trap.root / 'tools'}")


def filters(trap: Trap) -> None:
    write(trap.root / ".gitattributes", "* filter=evil diff=evil merge=evil\n")
    git("add", "-A", cwd=trap.root)
    git("commit", "-q", "-m", "attributes", cwd=trap.root)
    trap.config(
        "filter.evil.clean=EVIL",
        "filter.evil.smudge=EVIL",
        "filter.evil.required=true",
        "diff.evil.textconv=EVIL",
        "diff.evil.command=EVIL",
        "merge.evil.driver=EVIL %O %A %B",
    )
    write(trap.root / "a.txt", "changed\n")


def filter_process(trap: Trap) -> None:
    write(trap.root / ".git" / "info" / "attributes", "* filter=evil\n")
    trap.config("filter.evil.process=EVIL", "filter.evil.required=true")
    write(trap.root / "a.txt", "changed\n")


def attributes_file(trap: Trap) -> None:
    rules = write(trap.root.parent / "attributes", "* filter=evil\n")
    trap.config(f"core.attributesFile={rules}", "filter.evil.clean=EVIL", "filter.evil.smudge=EVIL")
    write(trap.root / "a.txt", "changed\n")


def external_diff(trap: Trap) -> None:
    trap.config("diff.external=EVIL")
    write(trap.root / "a.txt", "changed\n")


def included(trap: Trap) -> None:
    other = trap.root / "innocent.txt"
    trap.config("core.fsmonitor=EVIL", file=other)
    trap.config(f"include.path={other}", f"includeIf.gitdir:/**.path={other}")


def worktree_config(trap: Trap) -> None:
    trap.config("core.repositoryFormatVersion=1", "extensions.worktreeConfig=true")
    trap.config("core.fsmonitor=EVIL", file=trap.root / ".git" / "config.worktree")


def promisor(url: str) -> Callable[[Trap], None]:
    """Return a trap in which a missing object is fetched from somewhere."""

    def set_up(trap: Trap) -> None:
        blob = git("rev-parse", "HEAD:src/b.bin", cwd=trap.root)
        (trap.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        trap.config(
            "core.repositoryFormatVersion=1",
            "extensions.partialClone=origin",
            "remote.origin.promisor=true",
            f"remote.origin.url={url}",
            "remote.origin.uploadpack=EVIL",
            "protocol.allow=always",
            "protocol.ext.allow=always",
            "core.sshCommand=EVIL",
            "core.gitProxy=EVIL",
            "credential.helper=!EVIL",
            "core.askPass=EVIL",
        )

    return set_up


def common_directory(trap: Trap) -> None:
    evil = trap.root / "assets"
    git("init", "-q", "--bare", evil, cwd=trap.root)
    trap.config("core.fsmonitor=EVIL", "core.bare=false", file=evil / "config")
    trap.hooks(evil / "hooks")
    write(trap.root / ".git" / "commondir", f"{evil}\n")


def redirected(trap: Trap) -> None:
    fsmonitor(trap)
    hooks(trap)
    (trap.root / ".git").rename(trap.root / "store")
    write(trap.root / ".git", f"gitdir: {trap.root / 'store'}\n")


def inner_repository(trap: Trap) -> None:
    inner = repository(trap.root / "vendor")
    trap.hooks(inner / ".git" / "hooks")
    trap.config("core.fsmonitor=EVIL", "filter.x.clean=EVIL", file=inner / ".git" / "config")
    write(inner / ".gitattributes", "* filter=x\n")


def submodule(trap: Trap) -> None:
    repository(trap.root / "sub")
    write(trap.root / ".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
    git("add", "-A", cwd=trap.root)
    git("commit", "-q", "-m", "submodule", cwd=trap.root)
    trap.config(
        "submodule.sub.update=!EVIL", "submodule.sub.url=ext::EVIL", "submodule.recurse=true"
    )
    trap.config("core.fsmonitor=EVIL", file=trap.root / "sub" / ".git" / "config")


def everything_else(trap: Trap) -> None:
    trap.config(
        *(f"alias.{name}=!EVIL" for name in ("rev-parse", "worktree", "ls-files", "update-ref")),
        *(f"pager.{name}=EVIL" for name in ("rev-parse", "worktree", "ls-files", "update-ref")),
        "core.pager=EVIL",
        "core.editor=EVIL",
        "sequence.editor=EVIL",
        "core.alternateRefsCommand=EVIL",
        "uploadpack.packObjectsHook=EVIL",
        "gpg.program=EVIL",
        "commit.gpgSign=true",
        "tag.gpgSign=true",
        "log.showSignature=true",
        "interactive.diffFilter=EVIL",
        "trailer.x.command=EVIL",
        "gc.auto=1",
        "maintenance.auto=true",
        "init.templateDir=/nonexistent",
    )


def elsewhere(trap: Trap) -> None:
    fsmonitor(trap)
    trap.config(f"core.worktree={trap.root.parent}")


TRAPS: dict[str, tuple[Callable[[Trap], None], tuple[str, ...] | None]] = {
    "fsmonitor": (fsmonitor, ("status",)),
    "hooks": (hooks, ("worktree", "add", "../other")),
    "hooks path": (hooks_path, ("worktree", "add", "../other")),
    "filters": (filters, ("status",)),
    "filter process": (filter_process, ("add", "a.txt")),
    "attributes file": (attributes_file, ("add", "a.txt")),
    "external diff": (external_diff, ("diff",)),
    "included": (included, ("status",)),
    "worktree config": (worktree_config, ("status",)),
    "ssh": (promisor("ssh://nowhere.invalid/x"), ("cat-file", "-p", "HEAD:src/b.bin")),
    "ext": (promisor("ext::EVIL"), ("cat-file", "-p", "HEAD:src/b.bin")),
    "local": (promisor("/nonexistent"), ("cat-file", "-p", "HEAD:src/b.bin")),
    "git proxy": (promisor("git://nowhere.invalid/x"), ("cat-file", "-p", "HEAD:src/b.bin")),
    "commondir": (common_directory, ("status",)),
    "gitdir file": (redirected, ("status",)),
    "inner repository": (inner_repository, ("-C", "vendor", "status")),
    "submodule": (submodule, ("-C", "sub", "status")),
    "elsewhere": (elsewhere, ("status",)),
    "everything else": (everything_else, None),
}

each_trap = pytest.mark.parametrize("name", TRAPS)


@pytest.mark.parametrize("name", [name for name, (_, seen) in TRAPS.items() if seen])
def test_the_trap_is_one(tmp_path: Path, name: str) -> None:
    set_up, command = TRAPS[name]
    trap = trap_in(tmp_path / "trap")
    set_up(trap)
    trap.mark.unlink(missing_ok=True)
    with contextlib.suppress(subprocess.CalledProcessError):
        git(*(command or ()), cwd=trap.root)
    assert trap.sprung


@each_trap
async def test_no_call_of_ours_springs_it(tmp_path: Path, name: str) -> None:
    set_up, _ = TRAPS[name]
    trap = trap_in(tmp_path / "trap")
    set_up(trap)
    trap.mark.unlink(missing_ok=True)
    done = await use_everything(tmp_path, trap)
    assert not trap.sprung
    # Some repositories are broken by their trap; the others are used to the end.
    broken = {"ssh", "ext", "local", "git proxy", "commondir", "elsewhere"}
    assert ("applied" in done) == (name not in broken)


async def use_everything(
    tmp_path: Path, trap: Trap, sabotage: Callable[[Path], None] | None = None
) -> set[str]:
    """Call everything there is; return how far it went."""
    done: set[str] = set()
    async with programs() as run:
        trees = Worktrees(tmp_path / "data", run)
        try:
            store = trees.store
            with contextlib.suppress(InfloopError):
                worktree = await trees.create(
                    trap.root / "src", "run", "node", include_uncommitted=True, include=["*.txt"]
                )
                write(worktree.path / "src" / "made", "made\n")
                write(worktree.path / "src" / "b.bin", "edited\n")
                if sabotage:
                    sabotage(worktree.path)
                saved = await trees.remove(worktree)
                done.add("removed")
                held = await apply(store, saved, to_branch="result")
                allow = held.paths if isinstance(held, ProtectedChanges) else ()
                await apply(store, saved, to_branch="result", allow=allow)
                await apply(store, saved, allow=allow)
                done.add("applied")
                await trees.restore(saved, tmp_path / "again")
                await trees.forget(saved.name)
            taken = await store.take(trap.root)
            write(trap.root / "more.txt", "more\n")
            await store.diff(taken.id, (await store.take(trap.root)).id)
            await store.restore(trap.root, taken.id)
            await store.prune([])
        finally:
            trees.close()
    return done


def own_config(trap: Trap, path: Path) -> None:
    """What an agent can write in its worktree and in git's side of it."""
    admin = Path((path / ".git").read_text().strip().removeprefix("gitdir: "))
    trap.config("core.fsmonitor=EVIL", file=admin / "config.worktree")
    write(admin / "commondir", f"{path / 'evil'}\n")
    trap.hooks(admin / "hooks")


def replaced_file(trap: Trap, path: Path) -> None:
    git("init", "-q", "--bare", path / "evil", cwd=path)
    trap.config("core.fsmonitor=EVIL", "core.bare=false", file=path / "evil" / "config")
    trap.hooks(path / "evil" / "hooks")
    (path / ".git").unlink()
    write(path / ".git", "gitdir: evil\n")


def replaced_by_directory(trap: Trap, path: Path) -> None:
    (path / ".git").unlink()
    git("init", "-q", cwd=path)
    trap.config("core.fsmonitor=EVIL", file=path / ".git" / "config")
    trap.hooks(path / ".git" / "hooks")


def replaced_by_link(trap: Trap, path: Path) -> None:
    replaced_file(trap, path)
    (path / ".git").unlink()
    (path / ".git").symlink_to("evil")


def attributes_and_ignores(trap: Trap, path: Path) -> None:
    write(path / ".gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf ident\n")
    write(path / "keep.txt", "$Id$ one\ntwo\n")
    trap.config("filter.evil.clean=EVIL", "filter.evil.process=EVIL", "merge.evil.driver=EVIL")
    (path / "src" / ".gitignore").symlink_to("/etc/passwd")
    write(path / ".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = ext::x\n')


def programs_named_git(trap: Trap, path: Path) -> None:
    for name in ("git", "sh", "git-rev-parse", "git-worktree"):
        (path / name).symlink_to(trap.program)


@pytest.mark.parametrize(
    "sabotage",
    [
        own_config,
        replaced_file,
        replaced_by_directory,
        replaced_by_link,
        attributes_and_ignores,
        programs_named_git,
    ],
)
async def test_nothing_that_an_agent_leaves_in_its_worktree_is_run(
    tmp_path: Path, sabotage: Callable[[Trap, Path], None]
) -> None:
    trap = trap_in(tmp_path / "trap")
    done = await use_everything(tmp_path, trap, lambda path: sabotage(trap, path))
    assert not trap.sprung
    assert "removed" in done
    assert git("show", "result:src/made", cwd=trap.root) == "made"
    assert git("worktree", "list", "--porcelain", cwd=trap.root).count("worktree ") == 2


async def test_bytes_stay_as_they_are_whatever_attributes_say(tmp_path: Path) -> None:
    trap = trap_in(tmp_path / "trap")
    content = b"$Id$\r\none\ntwo\r\n\xff\xfe"
    write(trap.root / ".gitattributes", "*.dat text eol=crlf ident working-tree-encoding=UTF-16\n")
    write(trap.root / "x.dat", content)
    async with programs() as run:
        trees = Worktrees(tmp_path / "data", run)
        taken = await trees.store.take(trap.root)
        (trap.root / "x.dat").unlink()
        await trees.store.restore(trap.root, taken.id)
        trees.close()
    assert (trap.root / "x.dat").read_bytes() == content


async def test_what_is_stored_is_for_our_eyes_only(tmp_path: Path) -> None:
    trap = trap_in(tmp_path / "trap")
    async with programs() as run:
        trees = Worktrees(tmp_path / "data", run)
        worktree = await trees.create(trap.root, "run", "node")
        await trees.save(worktree)
        trees.close()
    closed = [tmp_path / "data" / "snapshots", tmp_path / "data" / "worktrees"]
    records = list((tmp_path / "data" / "worktrees").glob("*.json"))
    packs = list((tmp_path / "data").rglob("*.pack"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in closed} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in records} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in packs} == {0o400}
    assert list((tmp_path / "data" / "worktrees" / "owners").iterdir()) == []
