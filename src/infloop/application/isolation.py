"""How children run, in the words that every surface uses."""

from __future__ import annotations

import os

from infloop.model.isolation import UNCONFINED

_LEVEL, _USER = "INFLOOP_ISOLATION", "INFLOOP_SERVICE_USER"
_ROOT = 0


def describe_isolation(level: str, user: int | None) -> str:
    """Return the level of children, what it means for root, and the settings that change it.

    `user` is the uid of children where it is not ours.
    """
    if user is not None:
        return f"isolation: {level}, and children run as user {user} ({_LEVEL}, {_USER})"
    if level == UNCONFINED:
        return f"isolation: {level}, so children run as you ({_LEVEL})"
    if os.geteuid() == _ROOT:
        return (
            f"isolation: {level}, and children have the files of root that they see, and none of "
            f"its powers ({_LEVEL}, {_USER})"
        )
    return f"isolation: {level} ({_LEVEL})"
