"""The ids of rows of table `stretch`: the run's key and a sequence number."""

from __future__ import annotations


def row_id(key: int, first_seq: int) -> int:
    """Return the id of the row that begins with `first_seq`; the ids of a run are adjacent."""
    return key << 32 | first_seq
