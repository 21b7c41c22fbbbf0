"""Landlock rulesets that serve one child after the other give a child nothing of another one."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.kernel.ruleset_pool import ReachablePaths, RulesetPool
from infloop.sandbox.levels.guard import GuardSandbox
from support.canaries import PATH, USER, directory_for_children, place
from support.confinement import need_guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.sandbox.base import ChildResult

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def _this_machine_can_guard() -> None:
    need_guard()


class Guarded:
    """A sandbox and a workspace for its children."""

    def __init__(self, sandbox: GuardSandbox, workspace: Path) -> None:
        self.sandbox = sandbox
        self.workspace = workspace

    async def shell(self, script: str, *read: Path) -> ChildResult:
        access = Access(write=(str(self.workspace),), read=tuple(map(str, read)))
        request = ChildRequest(
            ("sh", "-c", script), str(self.workspace), {"PATH": PATH}, access=access
        )
        async with asyncio.timeout(DEADLINE_S):
            return await self.sandbox.run(request)


@asynccontextmanager
async def guarded() -> AsyncIterator[Guarded]:
    with place() as parent:
        scratch = parent / "scratch"
        scratch.mkdir(0o711)
        sandbox = GuardSandbox(str(scratch), user=USER)
        try:
            yield Guarded(sandbox, directory_for_children(parent, "workspace"))
        finally:
            await sandbox.close()


async def test_children_at_the_same_time_do_not_reach_each_others_private_directories() -> None:
    async with guarded() as here:
        os.mkfifo(here.workspace / "homes", 0o666)
        os.mkfifo(here.workspace / "done", 0o666)
        if USER:
            os.chown(here.workspace / "homes", *USER)
            os.chown(here.workspace / "done", *USER)
        await here.shell("true")  # its ruleset is free now, for one of the two
        first = here.shell("echo secret >$HOME/note; echo $HOME $TMPDIR >homes; read x <done")
        other = here.shell(
            "read home temp <homes; cat $home/note; ls $home; echo x >$temp/planted; echo x >done"
        )
        waited, tried = await asyncio.gather(first, other)
    assert waited.exit_code == 0
    assert "secret" not in tried.stdout
    assert "note" not in tried.stdout
    assert tried.stderr.count("ermission denied") == 3


async def test_a_path_that_was_exchanged_is_read_as_it_is_now() -> None:
    async with guarded() as here:
        given = here.workspace.parent / "given"
        said = []
        for text in ("first", "second"):
            new = given.with_suffix(".new")
            new.write_text(text)
            new.chmod(0o644)
            new.rename(given)
            said.append((await here.shell(f"cat {given}", given)).stdout)
        given.unlink()
        missing = await here.shell(f"cat {given}", given)
    assert said == ["first", "second"]
    assert "No such file" in missing.stderr


async def test_a_ruleset_serves_no_other_paths() -> None:
    async with guarded() as here:
        given = here.workspace.parent / "given"
        given.write_text("secret")
        given.chmod(0o644)
        allowed = await here.shell(f"cat {given}", given)
        refused = await here.shell(f"cat {given}")
    assert allowed.stdout == "secret"
    assert "ermission denied" in refused.stderr


def test_a_ruleset_is_replaced_while_private_directories_of_its_child_exist() -> None:
    pool = RulesetPool()
    paths = ReachablePaths(("/usr",), (os.devnull,), network_open=True)
    with place() as parent:
        first = pool.take(paths)
        first.allow_private([str(directory_for_children(parent, "private"))])
        pool.give_back(first)
        second = pool.take(paths)
        pool.give_back(second)
        third = pool.take(paths)
    third.close()
    assert first is not second
    assert second is third


def test_a_ruleset_does_not_grow_without_end() -> None:
    pool = RulesetPool()
    paths = ReachablePaths(("/usr",), (os.devnull,), network_open=True)
    with place() as parent:
        used = set()
        for number in range(40):
            ruleset = pool.take(paths)
            used.add(ruleset)
            private = directory_for_children(parent, f"private-{number}")
            ruleset.allow_private([str(private)])
            private.rmdir()
            pool.give_back(ruleset)
    pool.close()
    assert 1 < len(used) < 5
