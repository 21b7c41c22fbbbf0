"""A repository that is fetched by ssh, with the keys and the known hosts of the machine's user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infloop.errors import GuardError
from infloop.workspace.git.commands import Git
from infloop.workspace.git.program import ProgramResult
from infloop.workspace.repositories.mirrors import Mirrors
from support import parts
from support.git_ssh import Home, git_ssh
from support.repositories import git, programs, repository


@asynccontextmanager
async def mirrors(tmp_path: Path, home: Home, port: int) -> AsyncIterator[Mirrors]:
    """Mirrors of a user with this home, who may fetch from one server."""
    async with programs() as run:

        async def run_here(
            argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
        ) -> ProgramResult:
            return await run(home.command(argv), cwd, env, stdin)

        allowed = (f"ssh://git@127.0.0.1:{port}",)
        yield Mirrors(tmp_path / "mirrors", Git(run_here), allowed=allowed)


async def test_a_repository_is_fetched_by_ssh_with_the_users_key_from_a_known_host(
    tmp_path: Path,
) -> None:
    for program in ("bwrap", "ssh"):
        parts.need_program(program)
    source = repository(tmp_path / "git" / "web")
    home, stranger = Home(tmp_path / "home"), Home(tmp_path / "stranger")
    async with git_ssh(home.public_key) as server:
        address = f"ssh://git@127.0.0.1:{server.port}{source}"
        async with mirrors(tmp_path, home, server.port) as found:
            with pytest.raises(GuardError, match="Host key verification failed"):
                await found.fetch(address, "main")
            home.trust(server)
            first = await found.fetch(address, "main")
            assert first.commit == git("rev-parse", "HEAD", cwd=source)
            git("commit", "-q", "--allow-empty", "-m", "second", cwd=source)
            second = await found.fetch(address, "main")
            assert second.commit == git("rev-parse", "HEAD", cwd=source) != first.commit
        stranger.trust(server)
        async with mirrors(tmp_path, stranger, server.port) as found:
            with pytest.raises(GuardError, match="Permission denied"):
                await found.fetch(address, "main")
