"""Finds which of many literals are where in a text, with an Aho-Corasick automaton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahocorasick_rs import BytesAhoCorasick, Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What is found in a block is a list. A child can print nothing but literals, so it is a short one.
_BLOCK = 16 << 10
# A table of states is nearly twice as fast as the compact form, and needs ten times the memory:
# 3 KB for a literal of 8 bytes.
_MOST_IN_TABLE = 10_000


class Literals:
    """Literals that all have the same length."""

    def __init__(self, literals: Sequence[bytes], length: int) -> None:
        self._literals = literals
        self._overlap = length - 1
        small = len(literals) <= _MOST_IN_TABLE
        kind = Implementation.DFA if small else Implementation.ContiguousNFA
        self._automaton = BytesAhoCorasick(literals, implementation=kind) if literals else None

    def find(self, data: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield each place from `start` to `end` where a literal starts, and the literal."""
        if self._automaton is None:
            return
        view = memoryview(data)
        for at in range(start, end, _BLOCK):
            block = view[at : min(at + _BLOCK, end) + self._overlap]
            for index, here, _ in self._automaton.find_matches_as_indexes(block, overlapping=True):
                yield at + here, self._literals[index]
