"""Finds which of many literals are where in a text, with an Aho-Corasick automaton."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ahocorasick_rs import BytesAhoCorasick

# What is found in a block is a list. A child can print nothing but literals, so it is a short one.
_BLOCK = 16 << 10
# A table of states is a quarter faster than the compact form (20 and 27 µs for 4 KiB, 200 secrets)
# and needs nine times the memory (18 and 2 MB).
_MOST_IN_TABLE = 10_000


class Literals:
    """Literals that all have the same length."""

    def __init__(self, literals: Sequence[bytes], length: int) -> None:
        self._literals = literals
        self._overlap = length - 1
        self._automaton = _automaton(literals) if literals else None

    def find(self, data: bytes, start: int, end: int) -> Iterable[tuple[int, bytes]]:
        """Return each place from `start` to `end` where a literal starts, and the literal."""
        if end - start <= _BLOCK:
            return self._find_in_block(data, start, end)
        blocks = range(start, end, _BLOCK)
        return chain.from_iterable(
            self._find_in_block(data, at, min(at + _BLOCK, end)) for at in blocks
        )

    def _find_in_block(self, data: bytes, start: int, end: int) -> Sequence[tuple[int, bytes]]:
        if self._automaton is None:
            return ()
        block = data[start : end + self._overlap]
        found = self._automaton.find_matches_as_indexes(block, overlapping=True)
        return [(start + at, self._literals[index]) for index, at, _ in found] if found else ()


class Words:
    """Words of any length, in lower case."""

    def __init__(self, words: Iterable[bytes]) -> None:
        found = sorted({word.lower() for word in words})
        self._automaton = _automaton(found) if found else None

    def occur_in(self, data: bytes) -> bool:
        """Tell whether any of them is in a text, in whatever case."""
        return self._automaton is not None and bool(
            self._automaton.find_matches_as_indexes(data.lower())
        )


def _automaton(literals: Sequence[bytes]) -> BytesAhoCorasick:
    from ahocorasick_rs import BytesAhoCorasick, Implementation  # many commands need none

    small = len(literals) <= _MOST_IN_TABLE
    kind = Implementation.DFA if small else Implementation.ContiguousNFA
    return BytesAhoCorasick(literals, implementation=kind)
