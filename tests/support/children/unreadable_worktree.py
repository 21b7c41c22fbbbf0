"""Removes and restores a worktree with files that this process may not read.

It is called with a folder to work in; an error is an exception.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.worktrees.worktree import Worktrees
from support.repositories import programs, repository, write


async def main(folder: Path) -> None:
    repo, data = repository(folder / "repo"), folder / "data"
    async with programs() as run:
        trees = Worktrees(data, run, store=SnapshotStore(data / "snapshots", run, exclude=(data,)))
        made = await trees.create(repo, "run", "node")
        write(made.path / "file", "f\n").chmod(0)
        write(made.path / "closed" / "file", "c\n")
        (made.path / "closed").chmod(0)
        write(made.path / "read-only" / "file", "r\n")
        (made.path / "read-only").chmod(0o555)
        saved = await trees.remove(made)
        state = await trees.store.stored_tree(saved.final)
        reasons = {each.path: each.reason for each in state.metadata.skipped}
        assert reasons == {"file": "unreadable", "closed": "unreadable"}
        assert not made.path.exists()
        again = await trees.restore(saved, folder / "again")
        for name in ("file", "closed/file", "read-only/file"):
            assert (again / name).read_text() == f"{name[0]}\n"
        (again / "read-only").chmod(0o755)
        trees.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
