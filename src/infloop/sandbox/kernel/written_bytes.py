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


def written_bytes(pid: int) -> WrittenBytes | None:
    """Return what a process and its descendants wrote; None if that is not known.

    The kernel adds what a child has written to its parent when the parent reaps it.
    """
    own = _written(pid)
    if own is None:
        return None
    found, pending = [own], [pid]
    for each in pending:
        process = read_process(each)
        children = children_of(process) if process else []
        found += (written for child in children if (written := _written(child)))
        pending += children
    return WrittenBytes(sum(each.anywhere for each in found), sum(each.to_disk for each in found))


def _written(pid: int) -> WrittenBytes | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values = dict(line.split(": ") for line in lines)
    return WrittenBytes(int(values["wchar"]), int(values["write_bytes"]))
