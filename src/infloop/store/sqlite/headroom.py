"""Room ahead in the write-ahead log.

A commit that makes the log file longer waits for the file system to note the new length as well as
for the bytes: about twice as long as a commit that writes over bytes that are there. So the file is
kept longer than what is in it. To SQLite the zeros mean nothing: it reads the log up to the first
frame whose checksum is wrong, as it must, since an older log may lie behind the newer one.
"""

from __future__ import annotations

import os

AHEAD = 1 << 20
EVERY = 16
"""How many commits pass between two looks: one of them alone is short of room at most."""


class Headroom:
    """Lengthens a database's log before it is full, up to `most` bytes."""

    def __init__(self, database: str, most: int) -> None:
        self._log = f"{database}-wal"
        self._most = most
        self._length = 0
        self._commits = -1

    def keep(self) -> None:
        """Lengthen the log if SQLite had to; call it within a write transaction.

        Nobody else appends to the log meanwhile, and only what is behind its end is written.
        """
        self._commits += 1
        if self._commits % EVERY:
            return
        length = os.stat(self._log).st_size  # noqa: PTH116  (once a commit)
        if length != self._length:
            self._length = length + self._lengthen(length)

    def _lengthen(self, length: int) -> int:
        if length >= self._most:
            return 0
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return os.pwrite(descriptor, bytes(AHEAD), length)
        except OSError:  # a full disk is the commit's to report
            return 0
        finally:
            os.close(descriptor)
