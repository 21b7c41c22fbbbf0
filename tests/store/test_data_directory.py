"""A data directory that somebody else could change is not used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infloop.errors import SettingsError
from infloop.store.data_directory import refuse_shared
from support.parts import ruled_out_if
from support.server import infloop, refused

NOBODY = 65534
as_root = ruled_out_if(os.geteuid() != 0, "only root can give a directory away")

MODES = (0o702, 0o703, 0o722, 0o777, 0o757, 0o1777)


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_a_data_directory_that_others_can_write_is_refused_with_the_command_that_helps(
    tmp_path: Path, mode: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(SettingsError, match=f"chmod go-w {data}"):
        refuse_shared(data)
    data.chmod(mode & ~0o022)
    refuse_shared(data)


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o750, 0o755])
def test_a_data_directory_that_others_can_only_read_is_used(tmp_path: Path, mode: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    refuse_shared(data)


def test_a_data_directory_that_does_not_exist_yet_is_used(tmp_path: Path) -> None:
    refuse_shared(tmp_path / "a/b/c")


@pytest.mark.parametrize(("mode", "used"), [(0o777, False), (0o757, False), (0o1777, True)])
def test_nobody_else_can_put_another_directory_in_its_place(
    tmp_path: Path, mode: int, used: bool
) -> None:
    above = tmp_path / "above"
    data = above / "data"
    data.mkdir(parents=True)
    data.chmod(0o700)
    above.chmod(mode)
    for named in (data, above / "new", above / "new/er"):
        if used:
            refuse_shared(named)
        else:
            with pytest.raises(SettingsError, match=f"chmod go-w {above}"):
                refuse_shared(named)


def test_a_link_is_followed_to_what_it_means(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared)
    for named in (tmp_path / "link", tmp_path / "link/data"):
        with pytest.raises(SettingsError, match="chmod go-w"):
            refuse_shared(named)


@as_root
@pytest.mark.parametrize(
    "give",
    [
        lambda above: above / "data",
        lambda above: above,
        lambda above: above / "link",
    ],
    ids=["the directory", "the one above", "a link to it"],
)
def test_what_belongs_to_another_user_is_refused(
    tmp_path: Path, give: Callable[[Path], Path]
) -> None:
    above = tmp_path / "above"
    (above / "data").mkdir(parents=True)
    (above / "link").symlink_to(above / "data")
    refuse_shared(above / "link")
    os.chown(give(above), NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(SettingsError, match=f"belongs to user {NOBODY}"):
        refuse_shared(above / "link")


@as_root
def test_a_group_of_others_must_not_write_there_or_above(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o770)
    for data in (above, above / "data"):
        os.chown(above, 0, 0)
        refuse_shared(data)  # the group of this user alone
        os.chown(above, 0, NOBODY)
        with pytest.raises(SettingsError, match="other users can write"):
            refuse_shared(data)


def test_no_command_works_in_a_shared_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    for said in (
        refused(tmp_path),
        refused(tmp_path, "--token", "auto"),
        infloop(tmp_path, "runs", code=2).stderr,
        infloop(tmp_path, "doctor", code=1).stdout,
    ):
        assert f"chmod go-w {data}" in said
        assert "Traceback" not in said
    assert not (data / "api-token").exists()
