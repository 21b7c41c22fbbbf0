"""Checks a repository on this machine before it is fetched from.

git serves such a repository with a program that reads the repository's own settings, and with all
objects that it borrows. So these are refused:

- a path that leads out of the directories that the operator allows;
- a repository that borrows objects of another one (`objects/info/alternates`);
- settings that include other files, or that let git fetch missing objects by a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import GuardError
from infloop.workspace.git.commands import GitContext
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.git.commands import Git

_MAX_CONFIG_BYTES = 1 << 20


async def check_local(git: Git, url: str, roots: Sequence[str]) -> str:
    """Return the git directory of a repository at a path; raise GuardError if it is refused."""
    found = await in_thread(lambda _: _git_directory(Path(url), roots))
    for name in ("objects/info/alternates", "objects/info/http-alternates"):
        if _has_content(found / name):
            raise GuardError(f"the repository {url!r} borrows objects of others ({name})")
    for name in ("commondir", "config.worktree"):
        if (found / name).exists():
            raise GuardError(f"the repository {url!r} is a part of another one ({name})")
    config = found / "config"
    if config.is_symlink() or not config.is_file() or config.stat().st_size > _MAX_CONFIG_BYTES:
        raise GuardError(f"the repository {url!r} has no plain file of settings")
    args = ("config", "--list", "--null", "--name-only", "--no-includes", "--file", str(config))
    answer = await git.call(GitContext(Path("/")), *args, deadline_s=30)
    for name in answer.stdout.decode("utf-8", "replace").split("\0"):
        if _is_refused(name.lower()):
            raise GuardError(f"the repository {url!r} has the setting {name!r}: remove it first")
    return str(found)


def _git_directory(path: Path, roots: Sequence[str]) -> Path:
    try:
        real = path.resolve(strict=True)
        found = real / ".git" if (real / ".git").exists() else real
        is_one = found.resolve() == found and (found / "objects").resolve() == found / "objects"
    except OSError as error:
        raise GuardError(f"there is no repository {str(path)!r}: {error.strerror}") from None
    if not any(real.is_relative_to(Path(root).resolve()) for root in roots):
        raise GuardError(f"{str(path)!r} leads out of what INFLOOP_REPOSITORIES allows")
    if not is_one or not (found / "objects").is_dir() or not (found / "HEAD").is_file():
        raise GuardError(f"{str(path)!r} is not a git repository with a directory of its own")
    return found


def _is_refused(name: str) -> bool:
    return (
        name.startswith(("include.", "includeif.", "uploadpack.packobjectshook"))
        or name.endswith((".promisor", ".partialclonefilter", ".uploadpack", ".vcs"))
        or name in ("extensions.partialclone", "extensions.worktreeconfig")
    )


def _has_content(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and path.stat().st_size > 0)
