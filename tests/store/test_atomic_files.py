"""Private files, written whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infloop.store.files import private_directory, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_a_file_is_0600_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "secret.json"
    before = os.umask(mask)
    try:
        write_private(path, b"{}")
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert path.read_bytes() == b"{}"


def test_a_looser_file_is_tightened_at_its_next_write(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text("old")
    path.chmod(0o666)
    write_private(path, b"new")
    assert mode(path) == 0o600
    assert path.read_bytes() == b"new"


def test_nothing_else_is_left_in_the_directory(tmp_path: Path) -> None:
    write_private(tmp_path / "a", b"1")
    write_private(tmp_path / "a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    (path / "inside").write_text("kept")
    with pytest.raises(OSError, match="directory"):
        write_private(path, b"new")
    assert [child.name for child in tmp_path.iterdir()] == ["a"]
    assert (path / "inside").read_text() == "kept"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_private(link, b"new")
    assert target.read_text() == "mine"
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"


def test_content_and_name_are_on_the_disk_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "file", list[tuple[str, object]]()
    sync, rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        sync(descriptor)
        done.append(("synced", place if place.is_dir() else place.read_bytes()))

    def renamed(before: Any, after: Any, **more: Any) -> None:
        rename(before, after, **more)
        done.append(("named", Path(after)))

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renamed)
    write_private(path, b"new" * 10_000)
    assert done == [("synced", b"new" * 10_000), ("named", path), ("synced", tmp_path)]


WRITING_CHILD = """
import sys
from pathlib import Path
from infloop.store.files import write_private
path = Path(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    write_private(path, str(number).encode() * 50_000)
    number = (number + 1) % 10
"""


def test_a_reader_and_a_crash_see_only_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"0" * 50_000)
    child = subprocess.Popen(
        [sys.executable, "-c", WRITING_CHILD, str(path)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    seen: set[bytes] = set()
    for _ in range(300):
        content = path.read_bytes()
        assert len(content) == 50_000
        assert len(set(content)) == 1
        seen.add(content[:1])
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    child.stdout.close()
    assert len(seen) > 1
    assert len(set(path.read_bytes())) == 1


def test_made_directories_are_0700_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        private_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    private_directory(tmp_path)
    assert mode(tmp_path) == 0o755
