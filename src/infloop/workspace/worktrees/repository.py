"""The user's repository: where it is, what is checked out, and our refs in it.

Our refs are under `refs/infloop`, which `git branch` and `git tag` do not list. Nothing else is
changed, except by `advance_branch`, which only a person requests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StepError, UsageError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace.git.commands import GitContext, is_id, reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from infloop.workspace.git.commands import Git

_NONE = "0" * 40
_MOST_CANDIDATES = 2000
_LOG_BYTES = 1 << 20
_SHOWN_REFS = ("refs/heads", "refs/tags", "refs/remotes")


class Repository(msgspec.Struct, frozen=True):
    """A repository: the root of the work tree it was found from, and its common git directory."""

    git: Git
    root: Path
    common: Path

    @property
    def objects(self) -> tuple[Path, ...]:
        """Its object directories, for calls that borrow them."""
        return (self.common / "objects",)

    @property
    def shared(self) -> GitContext:
        """The context of calls that need no work tree."""
        return GitContext(self.common, git_dir=self.common)

    @property
    def ignore_rules(self) -> tuple[str, ...]:
        """The `git ls-files` options that apply the user's ignore rules too."""
        rules = self.common / "info" / "exclude"
        return ("--exclude-standard", *((f"--exclude-from={rules}",) if rules.is_file() else ()))

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Lock the repository against other infloop processes that create worktrees of it."""
        return hold_directory(self.common)

    async def commit(self, ref: str) -> str | None:
        """Resolve `ref` to a commit in the user's work tree; None if there is none."""
        if not ref or ref.startswith("-") or any(not c.isprintable() for c in ref):
            raise UsageError(f"{ref!r} is not a branch, tag or commit")
        asked = ("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        found = await self.git.text(GitContext(self.root), *asked, accept=(0, 1, 128))
        return found if is_id(found) else None

    async def ref(self, name: str) -> str | None:
        """Return the commit of a full ref name, or None."""
        asked = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        found = await self.git.text(self.shared, *asked, accept=(0, 1, 128))
        return found if is_id(found) else None

    async def tips(self) -> dict[str, str]:
        """Return the branches and tags, including remote ones, with the objects they point at."""
        asked = ("for-each-ref", "--format=%(objectname) %(refname)", *_SHOWN_REFS)
        answer = await self.git.call(self.shared, *asked)
        lines = answer.stdout.decode("utf-8", "surrogateescape").splitlines()
        return {name: at for at, _, name in (line.partition(" ") for line in lines)}

    async def set_refs(self, refs: Mapping[str, str]) -> None:
        """Set refs, all of them or none."""
        asked = [f"update {name}\0{at}\0\0" for name, at in refs.items()]
        if asked:
            args = ("update-ref", "--no-deref", "-z", "--stdin")
            await self.git.call(self.shared, *args, stdin=os.fsencode("".join(asked)))

    async def delete_ref(self, name: str) -> None:
        await self.git.call(self.shared, "update-ref", "--no-deref", "-d", name)

    async def advance_branch(self, ref: str, commit: str, old: str | None, why: str) -> None:
        """Move a branch from `old` to `commit`; without `old`, create it. Fail if it moved."""
        args = ("update-ref", "--no-deref", "--create-reflog", "-m", why, ref, commit, old or _NONE)
        await self.git.call(self.shared, *args)

    async def checked_out(self) -> dict[str, str]:
        """Return the work tree of each branch that is checked out."""
        answer = await self.git.call(self.shared, "worktree", "list", "--porcelain", "-z")
        found: dict[str, str] = {}
        work_tree = ""
        for line in answer.stdout.split(b"\0"):
            key, _, value = line.partition(b" ")
            if key == b"worktree":
                work_tree = os.fsdecode(value)
            elif key == b"branch":
                found[os.fsdecode(value)] = work_tree
        return found

    async def only_reachable_from(
        self, candidates: Iterable[str], known: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the newest of the candidates that are not reachable from `known`."""
        chosen = list(dict.fromkeys(candidates))[-_MOST_CANDIDATES:]
        wanted = await self._existing(chosen)
        if not wanted:
            return ()
        asked = [*wanted, *(f"^{each}" for each in await self._existing(known))]
        answer = await self.git.call(
            self.shared, "rev-list", "--parents", "--stdin", stdin="\n".join(asked).encode()
        )
        lines = [line.split() for line in answer.stdout.decode().splitlines()]
        parents = {parent for line in lines for parent in line[1:]}
        return tuple(line[0] for line in lines if line[0] not in parents)

    async def _existing(self, ids: Iterable[str]) -> list[str]:
        asked = "".join(f"{each}\n" for each in ids).encode()
        how = "--batch-check=%(objecttype) %(objectname)"
        answer = await self.git.call(self.shared, "cat-file", how, stdin=asked)
        lines = (line.partition(" ") for line in answer.stdout.decode().splitlines())
        return [name for kind, _, name in lines if kind == "commit"]


# The first one is about how the others are answered, and has no answer of its own.
_ABOUT = (
    "--path-format=absolute",
    "--is-inside-work-tree",
    "--show-toplevel",
    "--git-common-dir",
    "--show-object-format",
)


async def find(git: Git, cwd: Path) -> Repository:
    """Return the repository that contains `cwd`; raise StepError with advice if there is none."""
    inside = await git.call(GitContext(cwd), "rev-parse", *_ABOUT, accept=(0, 128))
    if inside.exit_code != 0 and "not a git repository" in inside.stderr:
        raise StepError(
            f"{str(cwd)!r} is not in a git repository: run `git init` there and commit, "
            "or turn the worktree off (`useWorktree: false`, or `infloop loop --in-place`)"
        )
    answers = os.fsdecode(inside.stdout.removesuffix(b"\n")).split("\n")
    bare = "bare repository" in inside.stderr or answers[:1] == ["false"]
    if bare:
        raise StepError(f"{str(cwd)!r} is in a bare repository, which has no files to work on")
    if inside.exit_code != 0:
        raise StepError(f"git cannot use the repository of {str(cwd)!r}: {reason(inside)}")
    if len(answers) != len(_ABOUT) - 1:  # a path has a line break
        answers = [await git.text(GitContext(cwd), "rev-parse", _ABOUT[0], one) for one in _ABOUT]
        del answers[0]
    root, common, kind = Path(answers[1]), Path(answers[2]), answers[3]
    if kind != "sha1":
        raise StepError(f"the repository {str(root)!r} has {kind} objects; only sha1 is supported")
    if not _is_beneath(cwd, root):
        raise StepError(f"the work tree of {str(cwd)!r} is elsewhere: {str(root)!r}")
    return Repository(git, root, common)


def read_head(admin: Path) -> str:
    """Return the content of a worktree's HEAD: a commit, or the full name of a ref."""
    text = _read_start(admin / "HEAD", 4096).strip()
    name = text.removeprefix("ref: ")
    fits = is_id(text) or (name != text and name.startswith("refs/") and name.isprintable())
    return name if fits else ""


def loose_ref(admin: Path, name: str) -> str:
    """Return the commit in a ref's own file, or an empty string."""
    text = _read_start(admin / name, 4096).strip() if ".." not in name.split("/") else ""
    return text if is_id(text) else ""


def reflog_commits(admin: Path) -> list[str]:
    """Return the commits in a worktree's HEAD reflog, the oldest first."""
    found: list[str] = []
    for line in _read_start(admin / "logs" / "HEAD", _LOG_BYTES).splitlines():
        found += [word for word in line.split(" ")[:2] if is_id(word) and word != _NONE]
    return found


def _is_beneath(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _read_start(path: Path, size: int) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(size).decode("utf-8", "replace")
