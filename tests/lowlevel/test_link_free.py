"""Paths are opened without following links, with one system call or part by part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.lowlevel.link_free import LinkInPathError, open_link_free, walk_link_free

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = pytest.mark.parametrize("way", [open_link_free, walk_link_free])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("text")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/end").symlink_to("b/file")
    (tmp_path / "a/gone").symlink_to("nowhere")
    return tmp_path.resolve()


@WAYS
@pytest.mark.parametrize("name", ["a", "a/b", "a/b/file", "a//b/./file", "a/b/../b/file", ""])
def test_what_is_opened_is_what_is_at_the_path(
    way: Callable[[str, int], int], tree: Path, name: str
) -> None:
    descriptor = way(f"{tree}/{name}", os.O_PATH)
    try:
        assert os.path.samestat(os.fstat(descriptor), (tree / name).stat())
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@WAYS
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("link", LinkInPathError),
        ("link/b/file", LinkInPathError),
        ("a/end", LinkInPathError),
        ("a/gone", LinkInPathError),
        ("link/nothing", LinkInPathError),
        ("a/nothing", FileNotFoundError),
        ("a/nothing/more", FileNotFoundError),
        ("a/b/file/more", NotADirectoryError),
        ("a\0/b", ValueError),
    ],
)
@pytest.mark.parametrize("flags", [os.O_PATH, os.O_RDONLY | os.O_NOFOLLOW])
def test_links_and_missing_paths_are_refused(
    way: Callable[[str, int], int], tree: Path, name: str, error: type[Exception], flags: int
) -> None:
    with pytest.raises(error) as raised:
        way(f"{tree}/{name}", flags)
    if isinstance(raised.value, OSError):
        assert raised.value.filename == f"{tree}/{name}"


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(OSError, match="not absolute"):
        open_link_free("a")
