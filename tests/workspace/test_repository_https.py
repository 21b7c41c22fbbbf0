"""A repository that is fetched by https, from git's own server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infloop.errors import GuardError
from infloop.workspace.git.commands import Git
from infloop.workspace.git.program import ProgramResult
from infloop.workspace.git.remote import Credentials
from infloop.workspace.repositories.mirrors import Mirrors
from support.git_https import PASSWORD, USER, git_https
from support.http_thread import AUTHORITY, HOST
from support.repositories import git, programs, repository

HELPER = f"!f() {{ echo username={USER}; echo password={PASSWORD}; }}; f"


@asynccontextmanager
async def mirrors(
    tmp_path: Path, port: int, *, helper: str = HELPER, trusts: bool = True
) -> AsyncIterator[Mirrors]:
    """Mirrors on a machine that knows the name of the test's server, and trusts its authority."""
    machine = {
        **({"GIT_SSL_CAINFO": str(AUTHORITY)} if trusts else {}),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.curloptResolve",
        "GIT_CONFIG_VALUE_0": f"{HOST}:{port}:127.0.0.1",
    }
    async with programs() as run:

        async def run_here(
            argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
        ) -> ProgramResult:
            return await run(argv, cwd, {**env, **machine}, stdin)

        credentials = Credentials("", helper, str(tmp_path))
        allowed = (f"https://{HOST}:{port}",)
        yield Mirrors(tmp_path / "mirrors", Git(run_here), allowed=allowed, credentials=credentials)


async def test_a_repository_is_fetched_by_https_with_the_operators_credentials(
    tmp_path: Path,
) -> None:
    source = repository(tmp_path / "git" / "web")
    with git_https(tmp_path / "git") as port:
        address = f"https://{HOST}:{port}/web/.git"
        async with mirrors(tmp_path, port) as found:
            first = await found.fetch(address, "main")
            assert first.commit == git("rev-parse", "HEAD", cwd=source)
            git("commit", "-q", "--allow-empty", "-m", "second", cwd=source)
            second = await found.fetch(address, "main")
            assert second.commit == git("rev-parse", "HEAD", cwd=source) != first.commit
            with pytest.raises(GuardError, match="no branch and no tag"):
                await found.fetch(address, "nowhere")


async def test_nobody_is_asked_for_a_password_and_no_unknown_authority_is_trusted(
    tmp_path: Path,
) -> None:
    repository(tmp_path / "git" / "web")
    with git_https(tmp_path / "git") as port:
        address = f"https://{HOST}:{port}/web/.git"
        async with mirrors(tmp_path, port, helper="") as found:
            with pytest.raises(GuardError, match="could not read Username"):
                await found.fetch(address, "main")
        async with mirrors(tmp_path, port, trusts=False) as found:
            with pytest.raises(GuardError, match="certificate"):
                await found.fetch(address, "main")
