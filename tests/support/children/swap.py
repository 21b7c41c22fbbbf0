"""Exchanges two paths as fast as it can, and prints how often when its standard input ends.

python swap.py FIRST SECOND
"""

import ctypes
import os
import select
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2

libc = ctypes.CDLL(None, use_errno=True)
first, second = map(os.fsencode, sys.argv[1:])

print("begun", flush=True)
swaps = 0
while not select.select([0], [], [], 0)[0]:
    for _ in range(100):
        if libc.renameat2(AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE) == 0:
            swaps += 1
print(swaps, flush=True)
