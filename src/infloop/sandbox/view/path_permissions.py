"""Where another user can go and write, for root, who can everywhere."""

from __future__ import annotations

import os
from typing import TypeAlias

User: TypeAlias = tuple[int, int]
"""A user's and a group's number; other groups are given up."""

_WRITE, _ENTER = 0o2, 0o1


def can_reach(path: str, user: User) -> bool:
    """Say whether the user may enter every directory on the way, as far as modes tell."""
    above = os.path.dirname(os.path.realpath(path))  # noqa: PTH120  (on every child's way)
    while _may(above, _ENTER, user):
        if above == "/":
            return True
        above = os.path.dirname(above)  # noqa: PTH120
    return False


def can_write(path: str, user: User) -> bool:
    """Say whether the user may change what is at a path that is there."""
    return can_reach(path, user) and _may(path, _WRITE, user)


def _may(path: str, right: int, user: User) -> bool:
    facts = os.stat(path)  # noqa: PTH116
    shift = 6 if facts.st_uid == user[0] else 3 if facts.st_gid == user[1] else 0
    return bool((facts.st_mode >> shift) & right)
