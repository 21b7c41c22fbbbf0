"""Kills an operation on a workspace at many points, and checks that nothing is lost.

    python workspace_crash.py create|remove|restore|apply FOLDER POINTS

An effect is anything that a process does to the file system, or a program that it has run. The
operation is done in a forked process that dies at the n-th effect as if by kill -9; then another
process finds out whether anything was lost. Prints how many deaths there were; a finding is an
exception. Everything is imported before the first fork, so that each try is quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from infloop.workspace.applying.apply import Applied, apply
from infloop.workspace.applying.rollback import recover
from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.worktrees.worktree import Worktrees
from support.repositories import contents, git, programs, repository, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from infloop.workspace.git.program import ProgramResult, RunProgram

EFFECTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.utime"}
DIED = 77


class Effects:
    """Counts effects; at the last one allowed the process is gone."""

    def __init__(self, allowed: int | None) -> None:
        self.allowed = allowed
        self.count = 0
        self.counting = False
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[object, ...]) -> None:
        if not self.counting:
            return
        writes = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if event in EFFECTS or writes:
            self.step()

    def step(self) -> None:
        self.count += 1
        if self.count == self.allowed:
            os._exit(DIED)

    def counted(self, run: RunProgram) -> RunProgram:
        async def runner(
            argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
        ) -> ProgramResult:
            self.step()
            finished = await run(argv, cwd, env, stdin)
            self.step()
            return finished

        return runner


class World:
    """A repository, a worktree that an agent worked in, and a tree to restore."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "repo"
        self.data = folder / "data"
        self.work: dict[bytes, object] = {}
        self.before: dict[bytes, object] = {}
        self.taken = ""
        self.name = ""
        self.head = ""

    async def prepare(self, run: RunProgram, operation: str) -> None:
        repository(self.repo)
        write(self.repo / "user.txt", "the user's own\n")
        trees = Worktrees(self.data, run)
        if operation == "create":
            self.before = contents(self.repo, leave_out=())
            return
        if operation == "restore":
            self.taken = (await trees.store.take(self.repo)).id
            self.before = contents(self.repo)
            write(self.repo / "a.txt", "changed\n")
            (self.repo / "src" / "b.txt").unlink()
            (self.repo / "src").rmdir()
            write(self.repo / "src", "a file now\n")
            write(self.repo / "more" / "files" / "x", "x\n")
            self.work = contents(self.repo)
            return
        worktree = await trees.create(self.repo, "run", "node")
        self.name = worktree.name
        write(worktree.path / "committed", "c\n")
        git("add", "-A", cwd=worktree.path)
        git("commit", "-q", "-m", "agent", cwd=worktree.path)
        self.head = git("rev-parse", "HEAD", cwd=worktree.path)
        write(worktree.path / "a.txt", "one\ntwo\nthree\nagent\n")
        write(worktree.path / "new" / "file", "n\n")
        (worktree.path / "src" / "b.txt").unlink()
        self.work = contents(worktree.path)
        if operation == "apply":
            await trees.save(worktree)
            self.before = contents(self.repo)
        trees.close()

    async def create(self, run: RunProgram) -> None:
        await Worktrees(self.data, run).create(
            self.repo, "run", "node", include_uncommitted=True, include=["user.txt"]
        )

    async def remove(self, run: RunProgram) -> None:
        await Worktrees(self.data, run).remove(self.name)

    async def restore(self, run: RunProgram) -> None:
        await SnapshotStore(self.data / "snapshots", run).restore(self.repo, self.taken)

    async def apply(self, run: RunProgram) -> None:
        trees = Worktrees(self.data, run)
        (record,) = trees.list_all()
        assert record.saved
        await apply(trees.store, record.saved)

    async def check_create(self, run: RunProgram) -> None:
        """A worktree that was not finished is found and goes without a trace."""
        trees = Worktrees(self.data, run)
        assert all(each.status == "orphaned" and each.run_id == "run" for each in trees.list_all())
        await trees.prune()
        assert [each for each in trees.list_all() if each.status != "saved"] == []
        after = contents(self.repo, leave_out=())
        assert after == self.before, sorted(after.items() ^ self.before.items())[:5]
        assert not [
            path
            for path in (self.data / "worktrees").iterdir()
            if path.is_dir() and path.name != "owners"
        ]
        again = await trees.create(self.repo, "run", "node")
        assert (again.path / "a.txt").exists()
        trees.close()

    async def check_remove(self, run: RunProgram) -> None:
        """Whatever was there is either there or can be brought back."""
        trees = Worktrees(self.data, run)
        await trees.prune()
        (listed,) = trees.list_all()
        assert listed.status == "saved"
        assert listed.saved
        assert not Path(listed.path).exists()
        assert git("worktree", "list", "--porcelain", cwd=self.repo).count("worktree ") == 1
        assert listed.saved.ref
        assert git("rev-parse", listed.saved.ref, cwd=self.repo) == self.head
        again = await trees.restore(listed.saved, self.folder / "again")
        assert contents(again) == self.work
        assert git("rev-parse", "HEAD", cwd=again) == self.head

    async def check_restore(self, run: RunProgram) -> None:
        """Done again, it is finished."""
        store = SnapshotStore(self.data / "snapshots", run)
        await store.restore(self.repo, self.taken)
        assert contents(self.repo) == self.before

    async def check_apply(self, run: RunProgram) -> None:
        """The tree is as it was or as it was to be, and can still be changed."""
        trees = Worktrees(self.data, run)
        recovered = await recover(trees.store)
        wanted = {**self.work, b"user.txt": self.before[b"user.txt"]}
        now = contents(self.repo)
        del wanted[b"src"]
        assert now in (self.before, wanted), (now.items() ^ self.before.items(), recovered)
        assert not recovered or now == self.before
        (record,) = trees.list_all()
        assert record.saved
        assert isinstance(await apply(trees.store, record.saved), Applied)
        assert contents(self.repo) == wanted


async def in_process(do: Callable[[RunProgram], Awaitable[None]], effects: Effects) -> None:
    async with programs() as run:
        # A keeper is started and git is looked at before counting, as in any long-lived process.
        await run(["git", "version"], "/", {"PATH": os.defpath}, None)
        effects.counting = True
        await do(effects.counted(run))
        effects.counting = False


def forked(do: Callable[[], object]) -> int:
    """Do something in a process of its own; return its exit code."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            try:
                do()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def attempt(folder: Path, operation: str, allowed: int | None) -> tuple[int, int]:
    """Die at that effect, then look; return the exit code, and the effects if it lived."""
    world = World(folder)
    folder.mkdir(parents=True)
    asyncio.run(in_process(lambda run: world.prepare(run, operation), Effects(None)))
    reading, writing = os.pipe()

    def operate() -> None:
        effects = Effects(allowed)
        asyncio.run(in_process(getattr(world, operation), effects))
        os.write(writing, str(effects.count).encode())

    code = forked(operate)
    os.close(writing)
    said = os.read(reading, 20)
    os.close(reading)
    if code not in (0, DIED):
        raise SystemExit(f"{operation} failed before effect {allowed}")
    if allowed is not None:
        check = getattr(world, f"check_{operation}")
        if forked(lambda: asyncio.run(in_process(check, Effects(None)))):
            raise SystemExit(f"{operation} killed at effect {allowed}: see above")
    return code, int(said or 0)


def main(operation: str, folder: Path, points: int) -> None:
    _, total = attempt(folder / "whole", operation, None)
    chosen = sorted({1 + number * (total - 1) // (points - 1) for number in range(points)})
    deaths = sum(attempt(folder / str(at), operation, at)[0] == DIED for at in chosen)
    print(total, deaths)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
