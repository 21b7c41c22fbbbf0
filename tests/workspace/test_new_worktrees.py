"""A new worktree's first snapshot: what git has just written is not read, everything else is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.workspace.git.index_file import IndexedFile, indexed_files
from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.worktrees.worktree import Worktrees
from support.repositories import git, programs, repository, write

if TYPE_CHECKING:
    from collections.abc import Callable


def made_repository(folder: Path) -> Path:
    """Make a repository with a long path, a link, an executable and an empty file in it."""
    root = repository(folder / "repo", {"a.txt": "a\n", f"deep/{'x' * 200}/b.txt": "b\n"})
    write(root / "empty", "")
    write(root / "run.sh", "#!/bin/sh\n").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    git("add", ".", cwd=root)
    git("commit", "-qm", "more", cwd=root)
    return root


@pytest.mark.parametrize("packed", [True, False])
async def test_the_first_snapshot_is_the_one_that_reading_every_file_gives(
    tmp_path: Path, packed: bool
) -> None:
    root = made_repository(tmp_path)
    if packed:
        git("repack", "-adq", cwd=root)
    async with programs() as run:
        trees = Worktrees(tmp_path / "data", run)
        made = await trees.create(root, "run-1", "node")
        again = SnapshotStore(tmp_path / "again", run)
        assert made.base == (await again.take(made.path)).id
        (root / ".git/objects").rename(tmp_path / "gone")  # the store has all of it
        copy = tmp_path / "copy"
        copy.mkdir()
        await trees.store.restore(copy, made.base)
        assert (copy / "link").readlink() == Path("a.txt")
        assert (copy / "run.sh").read_text() == "#!/bin/sh\n"
        trees.close()


async def test_git_s_index_says_what_was_written(tmp_path: Path) -> None:
    root = made_repository(tmp_path)
    files = indexed_files((root / ".git/index").read_bytes())
    assert set(files) == {
        path.encode() for path in git("ls-files", "-z", cwd=root).split("\0") if path
    }
    for path, seen in files.items():
        status = (root / os.fsdecode(path)).lstat()
        assert seen.is_unchanged(status)
        assert seen.id.hex() == git("rev-parse", b":" + path, cwd=root).strip()


@pytest.mark.parametrize("index", [b"", b"DIRC", b"DIRC\0\0\0\4\0\0\0\1", b"DIRC\0\0\0\2\0\0\0\1x"])
def test_an_index_that_cannot_be_read_says_nothing(index: bytes) -> None:
    assert indexed_files(index) == {}


def edit_keeping_times(path: Path) -> None:
    before = path.stat()
    path.write_text("b\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    path.with_name("other").write_text("b\n")
    path.with_name("other").replace(path)


@pytest.mark.parametrize("change", [edit_keeping_times, replace])
async def test_a_file_that_is_not_as_git_wrote_it_is_read(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    root = repository(tmp_path / "repo", {"a.txt": "a\n"})
    written = indexed_files((root / ".git/index").read_bytes())
    async with programs() as run:
        store = SnapshotStore(tmp_path / "store", run)
        first = await store.take(root, written=written)
        store.drop_cache(root)
        change(root / "a.txt")
        second = await store.take(root, written=written)
        assert [each.path for each in await store.diff(first.id, second.id)] == ["a.txt"]


async def test_a_file_whose_content_the_store_does_not_have_is_read(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", {"a.txt": "a\n"})
    status = (root / "a.txt").stat()
    seen = IndexedFile(
        status.st_ctime_ns,
        status.st_mtime_ns,
        status.st_ino & 0xFFFFFFFF,
        status.st_mode,
        status.st_size,
        bytes(20),
    )
    async with programs() as run:
        store = SnapshotStore(tmp_path / "store", run)
        taken = await store.take(root, written={b"a.txt": seen})
        assert taken.tree == (await store.take(root)).tree
