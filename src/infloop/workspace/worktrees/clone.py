"""Worktrees of confined agents: private clones with a git directory of their own.

- The clone shares only objects with the user's repository, read-only. Refs are copied,
  configuration and hooks are not.
- The agent may have changed the clone's git directory. Only a confined git reads it, to bundle the
  new commits.
- The pack in the bundle is measured, then checked object by object in a temporary repository,
  before it is stored in the user's repository. Refs are set only under `refs/infloop`.
- Commits that fail the check are not imported. The clone's git directory is then kept as files.

`git fetch` is not used: before version 2.46 it imports a bundle without checking it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import InfloopError, StepError
from infloop.lowlevel.remove_tree import remove_tree
from infloop.workspace.git.commands import GitContext, is_id
from infloop.workspace.snapshots.objects import object_ids_in
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees import commits, repository
from infloop.workspace.worktrees.commits import SavedCommits
from infloop.workspace.worktrees.naming import ref_name
from infloop.workspace.worktrees.pack_size import check_pack_size
from infloop.workspace.worktrees.repository import Repository
from infloop.workspace.worktrees.tree_size import check_tree_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from infloop.workspace.git.commands import Git
    from infloop.workspace.git.program import Confine
    from infloop.workspace.worktrees.records import Record

_MAX_REFS = 2000
STRICT = "--strict=badFilemode=error"
"""All checks of git, and no file modes that git itself does not write."""
_COPIES = "-refs"
"""Appended to the clone's ref, this is the prefix of copies of the clone's own refs."""
_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tbare = false
\tlogAllRefUpdates = true
[user]
\tname = infloop agent
\temail = infloop@localhost
"""


class CloneKind:
    """Private clones; see `infloop.workspace.worktrees.kinds.WorktreeKind`."""

    def __init__(self, confine: Confine | None, user: tuple[int, int] | None = None) -> None:
        """Make clones for the user (uid, gid) as whom children run, if that is another user.

        Without `confine` no git reads a clone: its git directory is kept as files.
        """
        self._confine = confine
        self._user = user

    async def create_git(
        self, repo: Repository, path: Path, commit: str, refs: Sequence[str]
    ) -> Path:
        """Create a git directory at `path` with the repository's refs, overridden by `refs`."""
        known = await repo.tips()
        for ref in refs:
            own, commit_there = _original_name(ref), await repo.ref(ref)
            if own and commit_there:
                known[own] = commit_there
        self._allow_traversal(path.parent)
        return _write(path / ".git", repo, commit, known)

    async def remove_git(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Do nothing: everything is inside the clone."""

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the checked-out commit as read from files, without running git."""
        head = repository.read_head(admin)
        return head if not head or is_id(head) else repository.loose_ref(admin, head)

    async def save_commits(self, repo: Repository, record: Record) -> SavedCommits:
        """Import the commits; report a failure as `problem` instead of raising it."""
        earlier = record.saved.refs if record.saved else ()
        if record.saved and not _exists(record):  # the directory was removed
            return SavedCommits(record.saved.head, earlier, record.saved.problem)
        try:
            return await self._import_commits(repo, record)
        except InfloopError as error:
            problem = (
                f"its commits were not imported, and its git directory is kept as files: {error}"
            )
            return SavedCommits(record.commit, earlier, problem)

    def set_owner(self, path: Path) -> None:
        """Give all files to the children's user.

        A child may work there meanwhile, so every name is looked up in its opened directory, and no
        link is followed.
        """
        if self._user is None:
            return
        for _, _, files, folder in os.fwalk(path):
            for name in files:
                with suppress(FileNotFoundError):
                    os.chown(name, *self._user, dir_fd=folder, follow_symlinks=False)
            os.chown(folder, *self._user)

    def _allow_traversal(self, directory: Path) -> None:
        """Let the children's user pass through our directories, but not list them."""
        for each in (directory, directory.parent) if self._user else ():
            os.chown(each, -1, self._user[1] if self._user else -1)
            each.chmod(0o710)

    async def _import_commits(self, repo: Repository, record: Record) -> SavedCommits:
        if self._confine is None:
            raise StepError("this machine cannot confine the git that would have to read them")
        if not repo.common.is_dir():
            raise StepError(f"the repository {str(repo.common)!r} is gone")
        path = Path(record.path)
        run = self._confine(read=(str(repo.common / "objects"),), write=(str(path),))
        inside = Repository(repo.git.run_by(run), path, path / ".git")
        head, refs = await commits.find(inside, repo, record)
        await inside.set_refs(refs)  # so that they are in the bundle
        known = [record.commit, *(await repo.tips()).values()]
        bundle = await _bundle(inside, known)
        if bundle:
            scratch = path.with_name(f"{record.name}.quarantine")
            await _import_pack(repo, bundle.pack, scratch, record.commit)
            copies = f"{ref_name(record)}{_COPIES}/"
            own = {name: at for name, at in bundle.refs.items() if name not in refs}
            refs |= {copies + name.removeprefix("refs/"): at for name, at in own.items()}
        if len(refs) > _MAX_REFS:
            raise StepError(f"it has {len(refs)} refs, and at most {_MAX_REFS} are allowed")
        await repo.set_refs(refs)
        return SavedCommits(head, tuple(refs))


def _exists(record: Record) -> bool:
    return Path(record.path).is_dir()


def _original_name(ref: str) -> str:
    """Return the name of a copied ref in its clone, or an empty string if it is no copy."""
    names = ref.split("/", 4)
    copied = len(names) == 5 and names[3].endswith(_COPIES)
    return f"refs/{names[4]}" if copied else ""


def _write(git_dir: Path, repo: Repository, commit: str, refs: Mapping[str, str]) -> Path:
    """Write a git directory that borrows the objects of another repository and has these refs."""
    git_dir.parent.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (git_dir / folder).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"{commit}\n", encoding="ascii")
    (git_dir / "config").write_text(_CONFIG, encoding="ascii")
    (git_dir / "objects/info/alternates").write_bytes(os.fsencode(repo.common / "objects") + b"\n")
    lines = [f"{at} {name}\n" for name, at in sorted(refs.items())]
    (git_dir / "packed-refs").write_bytes(os.fsencode("".join(lines)))
    shallow = repo.common / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, git_dir / "shallow")
    return git_dir


class _Bundle(NamedTuple):
    refs: dict[str, str]
    pack: bytes


async def _bundle(inside: Repository, known: Sequence[str]) -> _Bundle | None:
    """Bundle the commits that are not reachable from `known`; None if there are none."""
    stdin = "".join(f"^{each}\n" for each in known).encode()
    args = ("bundle", "create", "--quiet", "-", "--all", "--stdin")
    answer = await inside.git.call(inside.shared, *args, stdin=stdin, accept=(0, 128))
    if answer.exit_code == 0:
        return read_bundle(answer.stdout)
    if "empty bundle" in answer.stderr:
        return None
    raise StepError(f"git could not bundle the commits: {answer.stderr.strip()[-300:]}")


def read_bundle(data: bytes) -> _Bundle:
    """Parse a bundle; raise StepError if it is malformed. HEAD is left out."""
    head, _, pack = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    if first not in (b"# v2 git bundle", b"# v3 git bundle") or not pack.startswith(b"PACK"):
        raise StepError("the output of git is not a bundle")
    refs: dict[str, str] = {}
    for line in lines:
        if line[:1] not in (b"-", b"@"):
            at, _, name = line.decode("utf-8", "surrogateescape").partition(" ")
            if not is_id(at) or not name.startswith(("refs/", "HEAD")) or "\0" in name:
                raise StepError(f"the bundle names {name!r}, which is not a ref")
            refs[name] = at
    refs.pop("HEAD", None)
    return _Bundle(refs, pack)


async def _import_pack(repo: Repository, pack: bytes, scratch: Path, base: str) -> None:
    """Store a pack in the user's repository if it is valid, complete and within the limits.

    The limits of a snapshot apply to each object and to each commit when it is checked out.
    """
    limits = TreeLimits()
    await in_thread(lambda _: check_pack_size(pack, limits))
    store = ("index-pack", "--stdin", "--fix-thin", "--threads=1")
    with _scratch_repository(scratch, repo) as context:
        await repo.git.call(context, *store, STRICT, stdin=pack)
        made = await _commits_in(repo.git, context)
        await check_tree_size(repo.git, context, made, base, limits)
    await repo.git.call(repo.shared, *store, stdin=pack)


async def _commits_in(git: Git, context: GitContext) -> list[str]:
    """Return the commits in a repository's own packs."""
    assert context.git_dir
    listings = (context.git_dir / "objects" / "pack").glob("*.idx")
    names = [name.hex() for path in listings for name in object_ids_in(path.read_bytes())]
    asked = "".join(f"{name}\n" for name in names).encode()
    answer = await git.call(context, "cat-file", "--batch-check", stdin=asked)
    lines = (line.split(" ") for line in answer.stdout.decode().splitlines())
    return [name for name, kind, *_ in lines if kind == "commit"]


@contextmanager
def _scratch_repository(path: Path, repo: Repository) -> Iterator[GitContext]:
    remove_tree(path)
    try:
        yield GitContext(path.parent, git_dir=_write(path, repo, "ref: refs/heads/none", {}))
    finally:
        remove_tree(path)
