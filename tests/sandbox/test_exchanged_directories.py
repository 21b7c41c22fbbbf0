"""A child exchanges directories and links while another child starts: it gains nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from support.canaries import place
from support.confinement import give, new_directory, sandbox_at
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from infloop.sandbox.base import ChildResult, Sandbox

RACES = amount(4, thorough=100)
AT_ONCE = 4
EXCHANGE = Path(__file__).parent.parent / "support/children/exchange.py"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/me"}

levels = pytest.mark.parametrize("level", ["guard", "sandbox"])
pytestmark = pytest.mark.thorough


@contextmanager
def exchanging(first: Path, second: Path) -> Iterator[None]:
    """Exchange two paths in a tight loop."""
    with subprocess.Popen(
        [sys.executable, str(EXCHANGE), str(first), str(second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        yield
        assert process.poll() is None
        assert process.stdin
        process.stdin.close()


@asynccontextmanager
async def racing(level: str) -> AsyncIterator[tuple[Sandbox, Path]]:
    """Yield a sandbox and a place with a workspace `work/sub` and a secret in `home`."""
    with place() as top:
        new_directory(top / "work/sub")
        new_directory(top / "home")
        (top / "home/secret").write_text("the-canary")
        (top / "work/link").symlink_to(top / "home")
        give(top / "work")
        give(top / "home")
        async with sandbox_at(level, top) as sandbox:
            yield sandbox, top


async def attempts(sandbox: Sandbox, request: ChildRequest, until: str = "") -> list[ChildResult]:
    """Try until enough children have started, some at a time; return all results.

    And until one did not start because of an error with this text, if that comes before long.
    """
    results: list[ChildResult] = []

    def enough() -> bool:
        started = sum(each.exit_code is not None for each in results)
        failed = any(until in each.error for each in results) if until else True
        return started >= RACES and (failed or started >= 50 * RACES)

    async def some() -> None:
        while not enough():
            results.append(await sandbox.run(request))
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())
    return results


@pytest.mark.claim("I29")
@levels
@pytest.mark.parametrize("exchanged", ["cwd", "above cwd", "read", "write", "home"])
async def test_a_directory_exchanged_for_a_link_is_not_reached(level: str, exchanged: str) -> None:
    async with racing(level) as (sandbox, top):
        for directory in ("work/sub/deep", "work/own", "home/deep"):
            new_directory(top / directory)
        (top / "home/deep/secret").write_text("the-canary")
        sub, own = str(top / "work/sub"), str(top / "work/own")
        if exchanged == "above cwd":
            sub = f"{sub}/deep"
        access = {
            "cwd": Access(write=(sub,)),
            "above cwd": Access(write=(sub,)),
            "read": Access(read=(sub,), write=(own,)),
            "write": Access(write=(sub, own)),
            "home": Access(write=(own,), home=sub),
        }[exchanged]
        script = f"cat {sub}/secret secret ~/secret; touch {sub}/planted planted ~/planted"
        cwd = sub if "cwd" in exchanged else own
        request = ChildRequest(("sh", "-c", script), cwd, ENV, access=access)
        with exchanging(top / "work/sub", top / "work/link"):
            results = await attempts(sandbox, request, until="behind one")
        assert not [each for each in results if "the-canary" in each.stdout]
        assert not list((top / "home").rglob("planted"))
        assert [each for each in results if "behind one" in each.error]


async def test_a_read_only_mount_does_not_get_lost() -> None:
    async with racing("sandbox") as (sandbox, top):
        work = top / "work"
        for name in ("sub", "other"):
            (work / name / ".git").mkdir(parents=True)
            (work / name / ".git/HEAD").write_text(name)
        give(work)
        protected = work / "sub/.git"
        status = protected.stat()
        access = Access(
            read=(str(protected),),
            write=(str(work),),
            pinned=((str(protected), status.st_dev, status.st_ino),),
        )
        script = "for each in */.git; do grep -q sub $each/HEAD && touch $each/planted; done; true"
        request = ChildRequest(("sh", "-c", script), str(work), ENV, access=access)
        with exchanging(work / "sub", work / "other"):
            results = await attempts(sandbox, request)
        (theirs,) = [git for git in work.glob("*/.git") if (git / "HEAD").read_text() == "sub"]
        assert os.listdir(theirs) == ["HEAD"]  # noqa: PTH208
        assert [each for each in results if "was exchanged" in each.error]
