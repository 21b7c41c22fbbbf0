"""Worktrees of repositories of 100 to 50,000 files: what making one and a round in it cost.

- create: the checkout, and the first snapshot; the store has none of the files before.
- again: the same for the next run, when the store has them.
- round: the snapshots before and after a step that changes nothing.

The folder is in memory where the machine has such a file system: the speed of a disk is not ours.
CPU counts git.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmark import Benchmark, Contender, Sample, children_cpu, stopwatch, wall
from growth import Growth
from infloop.app import run_async
from infloop.runtime.confinement.programs import programs_in
from infloop.sandbox.levels.host import HostSandbox
from infloop.workspace.worktrees.worktree import Worktrees

FILES_IN_A_FOLDER = 50
SIZES = (100, 1_000, 10_000, 50_000)
ROUNDS = 3
MEMORY = Path("/dev/shm")
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")


@asynccontextmanager
async def worktrees(files: int) -> AsyncIterator[tuple[Worktrees, Path]]:
    """Make a repository, and an empty store beside it."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="infloop-worktrees-", dir=where) as name:
        repository = Path(name) / "repository"
        for number in range(files):
            file = repository / f"{number // FILES_IN_A_FOLDER}" / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"file {number}\n" * 10)
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run([*GIT, *command], cwd=repository, check=True)
        sandbox = HostSandbox()
        trees = Worktrees(Path(name) / "data", programs_in(sandbox))
        try:
            yield trees, repository
        finally:
            trees.close()
            await sandbox.close()


def create(files: int, *, again: bool) -> Callable[[int, Path], Sample]:
    """Return how making a worktree is measured."""

    async def measure() -> Sample:
        children = children_cpu()
        async with worktrees(files) as (trees, repository):
            if again:
                await trees.remove(await trees.create(repository, "run-0", "node"))
            children = children_cpu()
            with stopwatch(1) as sample:
                await trees.create(repository, "run-1", "node")
        sample.cpu += children_cpu() - children  # the keeper of git is gone only now
        return sample

    return lambda _, __: run_async(measure())


def a_round(files: int) -> Callable[[int, Path], Sample]:
    """Return how the snapshots around a step are measured."""

    async def measure() -> Sample:
        async with worktrees(files) as (trees, repository):
            made = await trees.create(repository, "run-1", "node")
            for _ in range(2):  # what was written a moment ago is read once more
                await trees.store.take_for_owner(made.path, "run-1")
            with stopwatch(ROUNDS) as sample:
                for _ in range(2 * ROUNDS):
                    await trees.store.take_for_owner(made.path, "run-1")
        return sample

    return lambda _, __: run_async(measure())


def contender(what: str, files: int) -> str:
    """Return the name of a measurement at a size."""
    return f"{what}, {files:,} files"


GROWTH = tuple(
    Growth(title, "files", {files: contender(what, files) for files in SIZES}, wall, per_piece=True)
    for what, title in (
        ("create", "making a worktree, per file"),
        ("again", "making another one, per file"),
        ("round", "a round in it, per file"),
    )
)

BENCHMARK = Benchmark(
    title="Worktrees, by the number of files",
    unit="worktree or round",
    contenders=tuple(
        Contender(contender(what, files), measure)
        for files in SIZES
        for what, measure in (
            ("create", create(files, again=False)),
            ("again", create(files, again=True)),
            ("round", a_round(files)),
        )
    ),
    rounds=3,
    quick_rounds=1,
    alike=False,
)
