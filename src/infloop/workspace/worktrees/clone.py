"""The confined kind of worktree: a clone with a git of its own, which an agent may do anything to.

Only the objects of the user's repository are shared, and an agent can but read them. Its refs are
copied, its configuration and hooks are not.

What an agent leaves in its git is never asked by a git that could do harm. The git that looks into
it, to make a bundle of its new commits, is confined like the agent. The bundle is data: its pack is
measured, and checked, object by object, in a repository that is thrown away, before the user's gets
it, and refs are set in our own namespace alone. Commits that fail the check stay out; their clone's
git is then kept as files.

Not `git fetch`: before version 2.46 it takes a bundle without checking it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import InfloopError, StepError
from infloop.lowlevel.remove_tree import remove_tree
from infloop.workspace.git.commands import Git, Place, is_id
from infloop.workspace.snapshots.objects import names_in
from infloop.workspace.snapshots.walk import Limits
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees import commits, repository
from infloop.workspace.worktrees import pack_size as unpacked
from infloop.workspace.worktrees import tree_size as unfolded
from infloop.workspace.worktrees.commits import Kept
from infloop.workspace.worktrees.naming import ref_name
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from infloop.workspace.git.program import Confine
    from infloop.workspace.worktrees.records import Record

_MOST_REFS = 2000
_STRICT = "--strict=badFilemode=error"
"""Every check of git's, and no kinds of files that it does not write itself."""
_COPIES = "-refs"
"""How the folder is called that has copies of a clone's own refs, after the clone's ref."""
_CONFIG = """\
[core]
\trepositoryFormatVersion = 0
\tbare = false
\tlogAllRefUpdates = true
[user]
\tname = infloop agent
\temail = infloop@localhost
"""


class Clones:
    """Private clones; see `infloop.workspace.worktrees.kinds.Kind`."""

    def __init__(self, confine: Confine | None, user: tuple[int, int] | None = None) -> None:
        """Make clones for `user`, as whom children run when that is another one.

        Without `confine` nobody looks into a clone: its commits are kept as files.
        """
        self._confine = confine
        self._user = user

    async def make(self, repo: Repository, path: Path, commit: str, refs: Sequence[str]) -> Path:
        """Make a git of its own at `path`, with the repository's refs and these laid over."""
        known = await repo.tips()
        for ref in refs:
            own, commit_there = _original(ref), await repo.ref(ref)
            if own and commit_there:
                known[own] = commit_there
        self._let_in(path.parent)
        return _write(path / ".git", repo, commit, known)

    async def unmake(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Nothing: it is all in the clone."""

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the commit that is checked out, as far as its files say so themselves."""
        said = repository.head_of(admin)
        return said if not said or is_id(said) else repository.loose_ref(admin, said)

    async def keep_commits(self, repo: Repository, record: Record) -> Kept:
        """Bring its commits home; what is refused, or cannot be done, is said and left out."""
        earlier = record.saved.refs if record.saved else ()
        if record.saved and not _is_there(record):  # somebody removed it
            return Kept(record.saved.head, earlier, record.saved.problem)
        try:
            return await self._bring_home(repo, record)
        except InfloopError as error:
            problem = f"its commits did not come home, and its git is kept as files: {error}"
            return Kept(record.commit, earlier, problem)

    def hand_over(self, path: Path) -> None:
        """Give all files to the children's user."""
        if self._user is None:
            return
        for folder, _, files in os.walk(path):
            for each in (folder, *(f"{folder}/{name}" for name in files)):
                os.chown(each, *self._user, follow_symlinks=False)

    def _let_in(self, directory: Path) -> None:
        """Let the children's user pass through our directories, and not look around in them."""
        for each in (directory, directory.parent) if self._user else ():
            os.chown(each, -1, self._user[1] if self._user else -1)
            each.chmod(0o710)

    async def _bring_home(self, repo: Repository, record: Record) -> Kept:
        if self._confine is None:
            raise StepError("nothing here confines the git that would have to read them")
        if not repo.common.is_dir():
            raise StepError(f"the repository {str(repo.common)!r} is gone")
        path = Path(record.path)
        run = self._confine(read=(str(repo.common / "objects"),), write=(str(path),))
        inside = Repository(Git(run), path, path / ".git")
        head, refs = await commits.find(inside, repo, record)
        await inside.set_refs(refs)  # so that they are in the bundle
        known = [record.commit, *(await repo.tips()).values()]
        bundle = await _bundle(inside, known)
        if bundle:
            scratch = path.with_name(f"{record.name}.quarantine")
            await _take_in(repo, bundle.pack, scratch, record.commit)
            copies = f"{ref_name(record)}{_COPIES}/"
            own = {name: at for name, at in bundle.refs.items() if name not in refs}
            refs |= {copies + name.removeprefix("refs/"): at for name, at in own.items()}
        if len(refs) > _MOST_REFS:
            raise StepError(f"it has {len(refs)} refs, which is more than {_MOST_REFS}")
        await repo.set_refs(refs)
        return Kept(head, tuple(refs))


def _is_there(record: Record) -> bool:
    return Path(record.path).is_dir()


def _original(ref: str) -> str:
    """Return what a ref of ours was called in its clone, or nothing if it is no copy."""
    names = ref.split("/", 4)
    copied = len(names) == 5 and names[3].endswith(_COPIES)
    return f"refs/{names[4]}" if copied else ""


def _write(place: Path, repo: Repository, commit: str, refs: Mapping[str, str]) -> Path:
    """Write a repository that borrows the objects of another, and has some of its refs."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (place / folder).mkdir(parents=True)
    (place / "HEAD").write_text(f"{commit}\n", encoding="ascii")
    (place / "config").write_text(_CONFIG, encoding="ascii")
    (place / "objects/info/alternates").write_bytes(os.fsencode(repo.common / "objects") + b"\n")
    lines = [f"{at} {name}\n" for name, at in sorted(refs.items())]
    (place / "packed-refs").write_bytes(os.fsencode("".join(lines)))
    shallow = repo.common / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, place / "shallow")
    return place


class _Bundle(NamedTuple):
    refs: dict[str, str]
    pack: bytes


async def _bundle(inside: Repository, known: Sequence[str]) -> _Bundle | None:
    """Have everything put together that is not known; None when there is nothing."""
    stdin = "".join(f"^{each}\n" for each in known).encode()
    args = ("bundle", "create", "--quiet", "-", "--all", "--stdin")
    answer = await inside.git.call(inside.shared, *args, stdin=stdin, accept=(0, 128))
    if answer.exit_code == 0:
        return read_bundle(answer.stdout)
    if "empty bundle" in answer.stderr:
        return None
    raise StepError(f"git could not bundle them: {answer.stderr.strip()[-300:]}")


def read_bundle(data: bytes) -> _Bundle:
    """Take a bundle apart; raise StepError if it is none. What its HEAD is, others know."""
    head, _, pack = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    if first not in (b"# v2 git bundle", b"# v3 git bundle") or not pack.startswith(b"PACK"):
        raise StepError("what git made of them is not a bundle")
    refs: dict[str, str] = {}
    for line in lines:
        if line[:1] not in (b"-", b"@"):
            at, _, name = line.decode("utf-8", "surrogateescape").partition(" ")
            if not is_id(at) or not name.startswith(("refs/", "HEAD")) or "\0" in name:
                raise StepError(f"the bundle names {name!r}, which is not a ref")
            refs[name] = at
    refs.pop("HEAD", None)
    return _Bundle(refs, pack)


async def _take_in(repo: Repository, pack: bytes, scratch: Path, base: str) -> None:
    """Store a pack in the user's repository if it is sound, complete and not too much.

    It is too much if an object, or a commit when it is checked out, has more than a snapshot may.
    """
    limits = Limits()
    await in_thread(lambda _: unpacked.measure(pack, limits))
    store = ("index-pack", "--stdin", "--fix-thin", "--threads=1")
    with _scratch_repository(scratch, repo) as place:
        await repo.git.call(place, *store, _STRICT, stdin=pack)
        made = await _commits_in(repo.git, place)
        await unfolded.refuse_endless(repo.git, place, made, base, limits)
    await repo.git.call(repo.shared, *store, stdin=pack)


async def _commits_in(git: Git, place: Place) -> list[str]:
    """Return the commits of a repository's own packs."""
    assert place.git_dir
    listings = (place.git_dir / "objects" / "pack").glob("*.idx")
    names = [name.hex() for path in listings for name in names_in(path.read_bytes())]
    asked = "".join(f"{name}\n" for name in names).encode()
    answer = await git.call(place, "cat-file", "--batch-check", stdin=asked)
    lines = (line.split(" ") for line in answer.stdout.decode().splitlines())
    return [name for name, kind, *_ in lines if kind == "commit"]


@contextmanager
def _scratch_repository(path: Path, repo: Repository) -> Iterator[Place]:
    remove_tree(path)
    try:
        yield Place(path.parent, git_dir=_write(path, repo, "ref: refs/heads/none", {}))
    finally:
        remove_tree(path)
