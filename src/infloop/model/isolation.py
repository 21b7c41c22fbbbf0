"""The isolation levels of children, and their order."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Level: TypeAlias = Literal["container", "sandbox", "guard", "host"]

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, the strongest first."""


def is_at_least(given: str, asked: str) -> bool:
    """Say whether one level is at least as strong as another; raise ValueError if not a level."""
    strongest_first: tuple[str, ...] = LEVELS
    return strongest_first.index(given) <= strongest_first.index(asked)
