"""Removing trees that somebody else wrote."""

import os
import resource
import stat
from pathlib import Path

from infloop.lowlevel import remove_tree as module
from infloop.lowlevel.remove_tree import remove_tree, remove_tree_at


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_deep(root: Path, levels: int, mode: int = 0o700) -> None:
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.fchmod(descriptor, mode)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "closed/deep").mkdir(parents=True)
    (tree / "closed/deep/link").symlink_to(outside)
    (tree / "closed/dangling").symlink_to("nowhere")
    (tree / "closed").chmod(0)
    remove_tree(tree)
    (tmp_path / "link").symlink_to(outside)
    remove_tree(tmp_path / "link")
    assert names(tmp_path) == ["outside"]
    assert names(outside) == ["kept"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


def test_a_tree_deeper_than_paths_and_descriptors_can_be(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree", 3000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 2 * module._MAX_OPEN, hard))
    try:
        remove_tree(tmp_path / "tree")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert names(tmp_path) == []


def test_a_deep_tree_without_any_permission(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree", 2 * module._MAX_OPEN + 5, mode=0)
    remove_tree(tmp_path / "tree")
    assert names(tmp_path) == []


def test_more_entries_than_are_read_at_once(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(2 * module._MAX_ENTRIES + 1):
        (tree / str(number)).touch()
    remove_tree(tree)
    assert names(tmp_path) == []


def test_a_file_a_missing_name_and_a_name_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        for name in (b"file", b"\xff", b"missing"):
            remove_tree_at(descriptor, name)
    finally:
        os.close(descriptor)
    remove_tree(tmp_path / "no" / "such")
    assert names(tmp_path) == []
