"""Whether the data directory is safe from other users.

It holds what infloop runs, believes and keeps secret. So nobody else may write to it, and nobody
else may put another directory in its place, as `ssh` demands of `~/.ssh`.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from infloop.errors import SettingsError

_ROOT = 0


def refuse_shared(data_dir: Path) -> None:
    """Raise SettingsError, with the command that helps, if another user could change it."""
    named = data_dir.absolute()
    resolved = data_dir.resolve()
    for directory in (resolved, named):
        _check(directory, is_parent=False)
    for parent in dict.fromkeys((*resolved.parents, *named.parents)):
        _check(parent, is_parent=True)


def _check(directory: Path, *, is_parent: bool) -> None:
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return  # it will be made, and private
    except OSError as error:
        raise SettingsError(
            f"the data directory cannot be used: {str(directory)!r}: {error.strerror or error}"
        ) from None
    what = "above the data directory" if is_parent else "the data directory"
    if found.st_uid not in (os.geteuid(), _ROOT) and _is_user_here(found.st_uid):
        raise SettingsError(
            f"{str(directory)!r}, {what}, belongs to user {found.st_uid}, who could change what "
            "infloop runs; set INFLOOP_DATA_DIR to a directory of yours"
        )
    if stat.S_ISLNK(found.st_mode):
        return  # its target is checked too
    if is_parent and found.st_mode & stat.S_ISVTX:
        return  # others cannot rename what is inside
    others = found.st_mode & stat.S_IWOTH
    group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    if others or group:
        raise SettingsError(
            f"other users can write to {str(directory)!r}, {what}, and could change what infloop "
            f"runs; run `chmod go-w {directory}`, or set INFLOOP_DATA_DIR to another directory"
        )


def _is_user_here(user: int) -> bool:
    """Tell whether processes of this user can exist here.

    In a container of an ordinary user, what belongs to the host's root seems to belong to `nobody`.
    """
    mapped = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(int(first) <= user < int(first) + int(count) for first, _, count in mapped)


def _is_own_group(group: int) -> bool:
    """Tell whether a group has no member but this user: many systems make one for each user."""
    try:
        user = pwd.getpwuid(os.geteuid())
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and {found.gr_name, *found.gr_mem} == {user.pw_name}
