"""Lock files: a held one has a living process, a free one has none."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free, taken_over

HOLD = """
import sys
from pathlib import Path
from infloop.lowlevel.lock_file import LockFile

held = LockFile(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_until_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    try:
        assert is_held(path)
        assert not remove_if_free(path)
        with taken_over(path) as free:
            assert not free
    finally:
        process.kill()
        process.communicate()
    assert not is_held(path)
    assert remove_if_free(path)
    assert list(tmp_path.iterdir()) == []


def test_a_released_lock_leaves_no_file(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    lock.release()
    assert list(tmp_path.iterdir()) == []
    assert not is_held(tmp_path / "lock")


def test_the_file_has_its_name_only_when_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename, held = tmp_path / "lock", Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        held.append((is_held(self), target.exists()))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    LockFile(path).release()
    assert held == [(True, False)]


def test_a_lock_that_cannot_get_its_name_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IsADirectoryError):
        LockFile(tmp_path / "lock")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        lock = LockFile(tmp_path / "lock")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    lock.release()


def test_a_name_that_a_living_process_took_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.write_text("")
    same, locks = os.path.samestat, []

    def compare(one: os.stat_result, other: os.stat_result) -> bool:
        assert same(one, other)
        locks.append(LockFile(path))  # it replaces the file between the check and the removal
        return same(one, path.stat())

    monkeypatch.setattr(os.path, "samestat", compare)
    assert not remove_if_free(path)
    assert is_held(path)
    locks[0].release()


def test_a_free_lock_is_taken_over_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("")
    with taken_over(path) as first, taken_over(path) as second:
        assert (first, second) == (True, False)
    with pytest.raises(FileNotFoundError), taken_over(tmp_path / "none"):
        pass


def test_two_checks_of_a_dead_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("")
    checking = subprocess.Popen(
        ["flock", "--shared", str(path), "sh", "-c", "echo checking; read _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert checking.stdout is not None
    assert checking.stdout.readline() == b"checking\n"
    try:
        assert not is_held(path)
    finally:
        checking.communicate(b"\n")
