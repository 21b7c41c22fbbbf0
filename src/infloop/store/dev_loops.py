"""Files by which other processes see a loop and ask something of it.

They are in the data directory, which only its user can enter:

    dev/<instance>/status.json     the state of the loop, replaced with every change
    dev/<instance>/state.json      the session state: children cannot write here, unlike its file
    dev/<instance>/logs/<NAME>     the last output of a process or hook
    dev/<instance>/requests/       a file that appears here asks to restart a process

This is the side of the other processes. There is no socket. The kernel tells the loop of a request,
so nothing polls.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from infloop.lowlevel.lock_file import is_held
from infloop.model.dev.status import DevStatus
from infloop.model.values import JsonObject
from infloop.store.files import write_private


class RestartRequest(msgspec.Struct, frozen=True):
    """Asks to restart a process."""

    restart: str


def log_name(name: str) -> str:
    """Return the file name for a log: a name may hold anything, slashes included."""
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class RunningLoop(NamedTuple):
    """A loop whose process is alive: its folder and its status."""

    folder: Path
    status: DevStatus


def running_loops(directory: Path) -> list[RunningLoop]:
    """Return the loops whose process is alive."""
    found = []
    for lock in sorted(directory.glob("i-*.lock")):
        folder = directory / lock.stem
        try:
            if is_held(lock):
                content = (folder / "status.json").read_bytes()
                found.append(RunningLoop(folder, msgspec.json.decode(content, type=DevStatus)))
        except (OSError, ValueError):
            continue
    return found


def read_state(folder: Path) -> JsonObject:
    """Return the session state as the loop has it, whatever is in its state file."""
    try:
        found = msgspec.json.decode((folder / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_log(folder: Path, name: str) -> str:
    """Return the last output of a process or hook."""
    path = folder / "logs" / log_name(name)
    text = ""
    for each in (path.with_name(f"{path.name}.old"), path):
        with suppress(FileNotFoundError):
            text += each.read_text(encoding="utf-8", errors="replace")
    return text


def log_stamp(folder: Path, name: str) -> tuple[int, int]:
    """Return something that changes whenever the output of a process or hook does."""
    try:
        found = (folder / "logs" / log_name(name)).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def ask_restart(folder: Path, name: str) -> None:
    """Ask a loop to restart one of its processes."""
    data = msgspec.json.encode(RestartRequest(name))
    write_private(folder / "requests" / f"{log_name(name)}.json", data, durable=False)
