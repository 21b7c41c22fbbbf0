"""Refused firings: triggers that fired and whose run was refused.

Promises of every implementation:

- Equal refusals (the same trigger, the same reason) are one record that counts them.
- There are never more than `MAX_REFUSALS` records; the oldest are deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

MAX_REFUSALS = 500

LONGEST_MESSAGE = 2_000
"""How many characters of a message are kept."""


class RefusedFiring(msgspec.Struct, frozen=True):
    """A trigger that fired and started nothing.

    `trigger` is the fingerprint of its id. `reason` is a word for programs, `message` is for a
    person. `at` is the time of the last of `count` equal refusals.
    """

    trigger: str
    name: str
    kind: str
    workflow_id: str
    reason: str
    message: str
    correlation_id: str
    at: int
    first_at: int = 0
    count: int = 1


class RefusedFirings(ABC):
    """The newest refused firings."""

    @abstractmethod
    async def note(self, firing: RefusedFiring) -> None:
        """Record a refusal; `first_at` and `count` are those of its record."""

    @abstractmethod
    async def newest(
        self, *, workflow_id: str | None = None, limit: int = 100
    ) -> list[RefusedFiring]:
        """Return the records, newest first, of one workflow or of all."""
