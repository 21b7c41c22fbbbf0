"""Whether children have written files lately, as far as that can be known.

The kernel counts the bytes that a process tree writes. What it printed is subtracted: the rest went
to files, or to sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LATELY_S = 0.5
"""A file can be renamed some time after it was written, which writes nothing."""


class Child(Protocol):
    """A child; its process id is 0 until it is known."""

    @property
    def pid(self) -> int: ...
    @property
    def printed_bytes(self) -> int: ...


class _Unknown(NamedTuple):
    pid: int = 0
    printed_bytes: int = 0


UNKNOWN: Child = _Unknown()
"""Children whose processes are not known: they may have written at any time."""


class Written:
    """Compares what children have written with the last time that it was asked."""

    def __init__(self, written_bytes: Callable[[int], int | None]) -> None:
        self._written_bytes = written_bytes
        self._before: dict[str, int] = {}
        self._until = 0.0

    def lately(self, children: Iterable[tuple[str, Child]], now: float) -> bool:
        """Tell whether one of these, by name, may have written a file lately.

        One that has ended may have written at last. So may one that is not known well enough.
        """
        before, self._before = self._before, {}
        unknown = False
        for name, child in children:
            total = self._written_bytes(child.pid) if child.pid else None
            unknown |= total is None
            self._before[name] = max(0, (total or 0) - child.printed_bytes)
        grown = any(self._before[name] > before.get(name, 0) for name in self._before)
        if unknown or grown or before.keys() - self._before.keys():
            self._until = now + LATELY_S
        return now < self._until
