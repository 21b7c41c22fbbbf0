"""How long a command may run: as its author says, and never longer than the operator allows."""

from __future__ import annotations

from typing import NamedTuple


class TimeLimit(NamedTuple):
    """When a command is ended, and whether that is the operator's doing."""

    ms: int
    is_operators: bool

    @property
    def whose(self) -> str:
        """What a message about it ends with: nothing where its author said so."""
        return (
            ", the operator's limit for every command (INFLOOP_MAX_COMMAND_MS)"
            if self.is_operators
            else ""
        )


def time_limit(asked_ms: int, most_ms: int) -> TimeLimit:
    """Return the limit of a command whose author asks for so long; 0 asks for as long as can be."""
    if 0 < asked_ms <= most_ms:
        return TimeLimit(asked_ms, is_operators=False)
    return TimeLimit(most_ms, is_operators=True)
