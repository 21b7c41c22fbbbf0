"""How many bytes a process tree has written, as far as the kernel says."""

from __future__ import annotations

from pathlib import Path

from infloop.sandbox.keepers.keeper import children_of, read_process


def written_bytes(pid: int) -> int | None:
    """Return the bytes that a process and its descendants wrote; None if that is not known.

    The kernel adds what a child has written to its parent when the parent reaps it.
    """
    own = _written(pid)
    if own is None:
        return None
    total, pending = own, [pid]
    for each in pending:
        process = read_process(each)
        children = children_of(process) if process else []
        total += sum(_written(child) or 0 for child in children)
        pending += children
    return total


def _written(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line[7:]) for line in lines if line.startswith("wchar: ")), None)
