"""The time limit of a command: the author's choice, capped by the operator."""

from __future__ import annotations

from typing import NamedTuple


class TimeLimit(NamedTuple):
    """The time limit of a command, and whether the operator's setting decided it."""

    ms: int
    from_operator: bool

    @property
    def note(self) -> str:
        """Text to append to a timeout message; empty if the author chose the limit."""
        return (
            ", the operator's limit for every command (INFLOOP_MAX_COMMAND_MS)"
            if self.from_operator
            else ""
        )


def time_limit(asked_ms: int, most_ms: int) -> TimeLimit:
    """Return the time limit for a requested one; 0 requests the maximum."""
    if 0 < asked_ms <= most_ms:
        return TimeLimit(asked_ms, from_operator=False)
    return TimeLimit(most_ms, from_operator=True)
