"""Writes to an audit log until it is done or killed; see test_audit.py.

    audit_writer.py DIRECTORY NAME COUNT MAX_BYTES

Waits for a line on stdin, then records COUNT entries, several at a time, each with a number of its
own, and writes the number when the entry is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from infloop.model.audit import Actor, EventName
from infloop.store.audit.log import AuditLog


async def main(directory: Path, name: str, count: int, max_bytes: int) -> None:
    numbers = iter(range(count))

    async def writer(log: AuditLog) -> None:
        for number in numbers:
            event: EventName = "login.failed" if number % 3 else "run.started"
            await log.record(event, Actor("cli", name), details={"number": number})
            os.write(1, f"{number}\n".encode())

    clock = lambda: time.time_ns() // 1_000_000  # noqa: E731
    async with (
        AuditLog(directory, clock, max_bytes=max_bytes, max_files=1000) as log,
        asyncio.TaskGroup() as writers,
    ):
        for _ in range(3):
            writers.create_task(writer(log))


if __name__ == "__main__":
    sys.stdin.readline()
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
