"""How much a process tree has written, as far as the kernel says."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from infloop.sandbox.keepers.keeper import children_of, read_process


class WrittenBytes(NamedTuple):
    """Bytes that were written to anything, and bytes of files that are to go to a disk.

    The second number stays behind: a page that waits to be written is counted once, and file
    systems in memory are not counted. It includes what is written through a mapping of a file.
    """

    anywhere: int
    to_disk: int


class TreeWrites:
    """What a child and its descendants have written, also after they have ended.

    The kernel adds what a process wrote to its parent when the parent reaps it. The parent of a
    child, and of everything that leaves its tree, is the keeper, so the keeper is asked.
    """

    def __init__(self, pid: int) -> None:
        child = read_process(pid)
        self._keeper = child.parent if child else 0
        everything, own = written_bytes(self._keeper), written_bytes(pid)
        if everything is None or own is None:
            self._keeper = 0
            return
        self._before = WrittenBytes(
            everything.anywhere - own.anywhere, everything.to_disk - own.to_disk
        )

    def total(self) -> WrittenBytes | None:
        """Return what was written until now; None if that is not known."""
        found = written_bytes(self._keeper) if self._keeper else None
        if found is None:
            return None
        return WrittenBytes(
            found.anywhere - self._before.anywhere, found.to_disk - self._before.to_disk
        )


def written_bytes(pid: int) -> WrittenBytes | None:
    """Return what a process and its present descendants wrote; None if that is not known."""
    tree = [pid]
    for each in tree:
        process = read_process(each)
        tree += children_of(process) if process else []
    # Children first: one that ends meanwhile is counted twice, and never left out.
    *others, own = (_written(each) for each in reversed(tree))
    if own is None:
        return None
    found = [own, *(each for each in others if each)]
    return WrittenBytes(sum(each.anywhere for each in found), sum(each.to_disk for each in found))


def _written(pid: int) -> WrittenBytes | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values = dict(line.split(": ") for line in lines)
    return WrittenBytes(int(values["wchar"]), int(values["write_bytes"]))
