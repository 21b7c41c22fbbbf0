"""A number of places, and no more: who finds none is told at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Places:
    """So many at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @contextmanager
    def one(self) -> Iterator[bool]:
        """Hold a place as long as this is open; yield whether there was one."""
        free = self.taken < self.most
        self.taken += free
        try:
            yield free
        finally:
            self.taken -= free
