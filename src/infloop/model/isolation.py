"""Isolation levels: their names and their order. Their traits are attributes of their classes."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Level: TypeAlias = Literal["container", "sandbox", "guard", "host"]

RequestedLevel: TypeAlias = Literal[Level, "auto"]
"""What a setting or a workflow asks for: a level, or the strongest that holds."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, strongest first."""

UNCONFINED: Level = LEVELS[-1]
"""The level that confines nothing."""


def is_at_least(given: str, requested: str) -> bool:
    """Return whether one level is as strong as another; both must be levels."""
    strongest_first: tuple[str, ...] = LEVELS
    return strongest_first.index(given) <= strongest_first.index(requested)
