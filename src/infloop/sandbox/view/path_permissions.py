"""Checks path permissions as another uid. Root itself could enter and write everything."""

from __future__ import annotations

import os
from typing import TypeAlias

User: TypeAlias = tuple[int, int]
"""A uid and a gid; children have no other groups."""

_WRITE, _ENTER = 0o2, 0o1


def can_reach(path: str, user: User) -> bool:
    """Return whether the user may enter every directory above `path`, according to their modes."""
    above = os.path.dirname(os.path.realpath(path))  # noqa: PTH120  (called for every child)
    while _has_right(above, _ENTER, user):
        if above == "/":
            return True
        above = os.path.dirname(above)  # noqa: PTH120
    return False


def can_write(path: str, user: User) -> bool:
    """Return whether the user may write to an existing path."""
    return can_reach(path, user) and _has_right(path, _WRITE, user)


def _has_right(path: str, right: int, user: User) -> bool:
    status = os.stat(path)  # noqa: PTH116
    shift = 6 if status.st_uid == user[0] else 3 if status.st_gid == user[1] else 0
    return bool((status.st_mode >> shift) & right)
