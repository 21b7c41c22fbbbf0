"""A non-blocking semaphore: a caller that finds no free slot is told at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Slots:
    """A fixed number of slots."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    @contextmanager
    def one(self) -> Iterator[bool]:
        """Hold a slot while this is open; yield whether there was one."""
        free = self.taken < self.limit
        self.taken += free
        try:
            yield free
        finally:
            self.taken -= free
