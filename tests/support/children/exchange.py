"""Exchanges two paths without end, as a hostile child would beside a step that starts.

    python exchange.py FIRST SECOND

Each state lasts a random time, from as short as possible to longer than a child takes to start. It
prints a line when it has begun, and ends with its standard input.
"""

import ctypes
import os
import random
import select
import sys
import time

AT_FDCWD, RENAME_EXCHANGE = -100, 2
LONGEST_S = 0.02

libc = ctypes.CDLL(None, use_errno=True)
first, second = map(os.fsencode, sys.argv[1:])


def exchange() -> None:
    if libc.renameat2(AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


print("begun", flush=True)
while not select.select([0], [], [], 0)[0]:
    for _ in range(20):
        exchange()
        until = time.monotonic() + random.random() ** 6 * LONGEST_S
        while time.monotonic() < until:
            pass
