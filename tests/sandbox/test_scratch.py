"""Directories of children: removed without following links, and after a crash too."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infloop.lowlevel.remove_tree import remove_tree
from infloop.sandbox.view.scratch import scratch_directory
from support.parts import ruled_out

HOLD = """
import sys, tempfile
from infloop.sandbox.view.scratch import scratch_directory
tempfile.tempdir = sys.argv[1]
with scratch_directory() as made:
    print(made, flush=True)
    sys.stdin.read()
"""


def held(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has such a directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, left = held(tmp_path)
    living, kept = held(tmp_path)
    (left / "temp-x/deep").mkdir(parents=True)
    (left / "temp-x/deep/file").write_text("x")
    (left / "link").symlink_to(kept)
    killed.kill()
    killed.communicate()
    others = ("infloop-children-foreign", "infloop-children-file", "infloop-children-link")
    (tmp_path / others[0]).mkdir()
    (tmp_path / others[1]).write_text("x")
    (tmp_path / others[2]).symlink_to(kept)
    with scratch_directory() as made:
        assert stat.S_IMODE(Path(made).stat().st_mode) == 0o711
        assert names(tmp_path) == sorted([*others, kept.name, Path(made).name])
        assert names(kept) == ["lock"]
    living.communicate()
    assert names(tmp_path) == sorted(others)


def test_a_directory_of_somebody_else_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        ruled_out("only root can give a directory away")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / "infloop-children-planted"
    planted.mkdir()
    (planted / "lock").write_text("")
    os.chown(planted, 65534, 65534)
    with scratch_directory():
        assert planted.exists()
    assert names(planted) == ["lock"]


def test_removing_follows_no_link_and_changes_nothing_behind_one(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept")
    inside = tmp_path / "inside"
    (inside / "closed/deep").mkdir(parents=True)
    (inside / "closed/deep/link").symlink_to(outside)
    (inside / "closed").chmod(0)
    remove_tree(str(inside))
    (tmp_path / "swapped").symlink_to(outside)
    remove_tree(str(tmp_path / "swapped"))
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert names(outside) == ["kept"]
    assert names(tmp_path) == ["outside"]
