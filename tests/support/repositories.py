"""Directories, repositories and a way to run git, for tests of the workspace."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox
from infloop.workspace.git.program import ProgramResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from infloop.workspace.git.program import RunProgram

LARGEST_ANSWER = 512 << 20
# What a program prints is text to the sandbox; its result descriptor carries bytes.
QUIET = ("-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
TO_RESULT = ("/bin/sh", "-c", 'exec "$@" >&3', "sh")


@contextlib.asynccontextmanager
async def programs() -> AsyncIterator[RunProgram]:
    """Open a host sandbox; give a runner on it."""
    sandbox = HostSandbox()

    async def run(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
    ) -> ProgramResult:
        request = ChildRequest(
            (*TO_RESULT, *argv), cwd, env, stdin, want_result=True, max_result_bytes=LARGEST_ANSWER
        )
        result = await sandbox.run(request)
        if result.result is None:
            return ProgramResult(None, b"", result.stderr, result.error or "it printed too much")
        return ProgramResult(result.exit_code, result.result, result.stderr, result.error)

    try:
        yield run
    finally:
        await sandbox.close()


def git(*args: str | bytes | Path, cwd: Path, **more: Any) -> str:
    """Run git as a user would, with a configuration of its own; return what it prints."""
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "Someone" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "someone@example.com" for who in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["git", *QUIET, *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        check=True,
        **more,
    )
    return str(done.stdout, "utf-8", "surrogateescape").strip()


def repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """Make a repository with one commit."""
    path.mkdir(parents=True)
    git("init", "-q", "--template=", cwd=path)  # which has fourteen examples of hooks
    for name in ("hooks/pre-commit.sample", "info/exclude"):
        write(path / ".git" / name, "")
    for name, content in (files or {"a.txt": "one\ntwo\nthree\n", "src/b.txt": "b\n"}).items():
        write(path / name, content)
    git("add", "-A", cwd=path)
    git("commit", "-q", "-m", "first", cwd=path)
    return path


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, making the directories that lead to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def contents(root: Path, *, leave_out: Sequence[bytes] = (b".git",)) -> dict[bytes, object]:
    """Return everything beneath a directory: types, permissions, content, links."""
    found: dict[bytes, object] = {b"": stat.S_IMODE(root.stat().st_mode)}
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        for entry in os.scandir(at(root, above)):
            name = os.fsencode(entry.name)
            if name in leave_out:
                continue
            path = above + b"/" + name if above else name
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                found[path] = os.fsencode(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                found[path] = stat.S_IMODE(status.st_mode)
                waiting.append(path)
            elif entry.is_file(follow_symlinks=False):
                found[path] = (stat.S_IMODE(status.st_mode), Path(entry.path).read_bytes())
            else:
                found[path] = stat.S_IFMT(status.st_mode)
    return found


def at(root: Path, name: bytes) -> Path:
    """Return a path that may hold bytes that are no text."""
    return root / os.fsdecode(name)
