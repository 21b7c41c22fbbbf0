"""Records of children in a data directory, and processes that stand for the children."""

from __future__ import annotations

import json
import secrets
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop.sandbox.keepers.keeper import Process, read_process

if TYPE_CHECKING:
    from collections.abc import Iterator


# Another one in every process: a server ends what has the mark of a record, wherever it is.
DEAD = f"i-{secrets.token_hex(8)}"


def identified(pid: int) -> Process:
    found = read_process(pid)
    assert found is not None
    return found


def lives(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.start == process.start and now.alive


@contextmanager
def bystander(**variables: str) -> Iterator[Process]:
    """A process that sleeps, in a session of its own."""
    sleeper = subprocess.Popen(
        ["/bin/sleep", "600"], env=variables, start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
        yield identified(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait(30)


def where() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def forge(folder: Path, name: str, *lines: Any) -> Path:
    path = folder / "data/pids" / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def about(**other: str) -> dict[str, str]:
    return {"where": where(), "run": "r", "step": "s", "level": "host", **other}
