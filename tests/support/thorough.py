"""How often a test repeats itself, or how much it sends.

`make test` runs each test with a small amount. `make test-thorough` runs the tests that are marked
`thorough` with a large one, and `THOROUGH=10 make test-thorough` with ten times as much. Property
tests have the mark without being given it (see conftest).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

FACTOR = int(os.environ.get("THOROUGH") or 0)


def amount(usual: int, *, thorough: int) -> int:
    """Return how many, or how much, in this run. A test that asks is marked `thorough`."""
    return thorough * FACTOR if FACTOR else usual


def some(rows: Sequence[T], *, one_in: int, first: int = 0) -> Sequence[T]:
    """Return a part of a table, and in `make test-thorough` all of it."""
    return rows if FACTOR else rows[first::one_in]
