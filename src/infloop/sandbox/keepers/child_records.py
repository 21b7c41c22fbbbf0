"""Records of running children, so that the next start can end what a crash left behind.

A keeper ends its tree when the server dies. A tree survives only when the server and the keeper are
killed together. For that case each running child has a file in the data directory:

    pids/<instance>.<number>    {"where", "run", "step", "level"}    before it is started
                                {"pid", "start", "autogroup"}        after some milliseconds

A blank file is no record. It is kept for the next child, because creating and extending files is
the slowest part.

The file's name is also in the child's environment, which all its descendants inherit, even detached
ones. A process belonged to the child if it has that name in its environment, if it is the recorded
process or in the session of that process, or if it descends from such a process.

What is found is stopped first, again and again until a scan finds nothing new. Only then it is
killed: with the death of one process the way to others could be lost, and a stopped process starts
no others.

Rules:

- The lock file of a record's owner tells whether the owner is dead. Records of living owners are
  not read.
- A process is identified by its id and start time together, or by the name in its environment. An
  id alone may have been reused.
- So may the id of a session whose leader is gone. The kernel gives each session an autogroup, whose
  number is not reused; it identifies such a session where the kernel has autogroups.
- Ids have no meaning after a reboot or in another PID namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.sandbox.base import ChildResult, SandboxWrapper
from infloop.sandbox.keepers.keeper import (
    Process,
    all_processes,
    descendants,
    read_process,
    send_signal,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted, Sandbox

RECORD_VARIABLE = "RUN_BY_INFLOOP"
"""The environment variable with the name of the child's record."""

_NAME = re.compile(r"(i-[0-9a-f]{16})\.[0-9]+", re.ASCII)
_FILE_MODE = 0o600
_MAX_BYTES = 1 << 16
_TIMEOUT_S = 10.0
_PAUSE_S = 0.01


class ChildRecords:
    """The records of this process's children."""

    def __init__(self, directory: Path, instance: str) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._instance = instance
        self._numbers = itertools.count(1)
        self._pid_scope = _pid_scope()
        self._unused: list[_RecordFile] = []

    def act_as(self, instance: str) -> None:
        """Record children under another id from now on; no child is running."""
        self.close()
        self._instance = instance

    def wrap(self, sandbox: Sandbox, run_id: str, step: str) -> Sandbox:
        """Return a sandbox that records its children as those of this step."""
        return RecordedSandbox(self, sandbox, run_id, step)

    def add(self, run_id: str, step: str, level: str) -> _RecordFile:
        """Record a child before it starts; raise OSError when that is not possible."""
        record_file = self._unused.pop() if self._unused else self._make()
        about = {"where": self._pid_scope, "run": run_id, "step": step, "level": level}
        try:
            record_file.write(about)
        except OSError:
            self._unused.append(record_file)
            raise
        return record_file

    def remove(self, record_file: _RecordFile) -> None:
        """Remove the record of a child of which no process is left."""
        record_file.clear()
        self._unused.append(record_file)

    def _make(self) -> _RecordFile:
        name = f"{self._instance}.{next(self._numbers)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        return _RecordFile(name, os.open(self.directory / name, flags, _FILE_MODE))

    def close(self) -> None:
        """Remove the files; no child is running."""
        for record_file in self._unused:
            os.close(record_file.fd)
            _remove(self.directory / record_file.name)
        self._unused.clear()


class _RecordFile:
    """A file that holds one record at a time; it stays open and is overwritten in place."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self._position = 0
        self._size = 0

    def write(self, line: Mapping[str, str | int]) -> None:
        """Add a line."""
        # Not synced: after a crash of the machine the record has no meaning.
        text = msgspec.json.encode(line) + b"\n"
        self._position += os.pwrite(self.fd, text, self._position)
        self._size = max(self._size, self._position)

    def clear(self) -> None:
        """Overwrite the record with spaces."""
        os.pwrite(self.fd, b" " * self._size, 0)
        self._position = 0


class RecordedSandbox(SandboxWrapper):
    """Runs the children of one step and records each of them."""

    def __init__(self, records: ChildRecords, inner: Sandbox, run_id: str, step: str) -> None:
        super().__init__(inner)
        self._records = records
        self._run_id = run_id
        self._step = step

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child until it ends; one that cannot be recorded is not started."""
        try:
            record_file = self._records.add(self._run_id, self._step, self.level)
        except OSError as error:
            return ChildResult(error=f"the child could not be recorded: {error}")

        def note(pid: int, start_time: int) -> None:
            with contextlib.suppress(OSError):  # without its id it is still found by the variable
                record_file.write({"pid": pid, "start": start_time, "autogroup": autogroup(pid)})
            if on_started:
                on_started(pid, start_time)

        marked = msgspec.structs.replace(
            request, env={**request.env, RECORD_VARIABLE: record_file.name}
        )
        try:
            return await self._inner.run(marked, on_output=on_output, on_started=note)
        finally:
            self._records.remove(record_file)


class EndedTree(NamedTuple):
    """A child tree that a dead process left: its processes, and how many of them survive."""

    run_id: str
    step: str
    processes: int
    alive: int


async def sweep(directory: Path, is_dead: Callable[[str], Awaitable[bool]]) -> list[EndedTree]:
    """End the child trees that dead processes left; return those that were found.

    This takes some seconds at most. A record is kept while any of its processes is alive.
    """
    dead: list[_Record] = []
    living: set[str] = set()
    for path in _files(directory):
        named = _NAME.fullmatch(path.name)
        if named and not await is_dead(named[1]):
            living.add(path.name)
        elif named and (record := _read(path)):
            dead.append(record)
        else:
            _remove(path)
    return await _end_trees(dead, living) if dead else []


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def _end_trees(records: list[_Record], living: set[str]) -> list[EndedTree]:
    found: dict[tuple[int, int], tuple[Process, _Record]] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_S
    while True:
        new = _find_more(records, living, found)
        left = [each for each in found.values() if _is_alive(each[0])]
        if not left or loop.time() > deadline:
            break
        for process, _ in left:
            send_signal(process, signal.SIGSTOP if new else signal.SIGKILL)
        await asyncio.sleep(0 if new else _PAUSE_S)
    met, alive = Counter(record for _, record in found.values()), Counter(each[1] for each in left)
    for record in records:
        if not alive[record]:
            _remove(record.path)
    return [
        EndedTree(each.run_id, each.step, met[each], alive[each]) for each in records if met[each]
    ]


def _find_more(
    records: list[_Record],
    living: set[str],
    found: dict[tuple[int, int], tuple[Process, _Record]],
) -> bool:
    """Add to `found`; return whether there was anything to add."""
    known = len(found)
    # Scan twice: one scan can miss a process that is forking or calling exec.
    for _ in range(2):
        for process, record in _scan(records, living):
            found.setdefault(_identity(process), (process, record))
        if len(found) > known:
            return True
    return False


def _is_alive(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.alive and now.start == process.start


class _Record(msgspec.Struct, frozen=True):
    """A child of a dead process; `pid` is 0 when it was not recorded."""

    path: Path
    run_id: str
    step: str
    pid: int
    start: int
    autogroup: str

    def members(self, table: Iterable[Process], names: dict[int, str]) -> set[int]:
        """Return the ids of processes that certainly belonged to this child."""
        leads = any(_identity(process) == (self.pid, self.start) for process in table)
        return {
            process.pid
            for process in table
            if names.get(process.pid) == self.path.name
            or (leads and process.pid == self.pid)
            or (process.session == self.pid and (leads or self._same_autogroup(process)))
        }

    def _same_autogroup(self, process: Process) -> bool:
        return self.autogroup != "" and self.autogroup == autogroup(process.pid)


def _scan(records: list[_Record], living: set[str]) -> list[tuple[Process, _Record]]:
    """Return the living processes of these children.

    Excludes this process's own family and the children of living owners.
    """
    table = all_processes()
    names = {process.pid: name for process in table if (name := _record_name(process.pid))}
    excluded = _own_family(table) | {pid for pid, name in names.items() if name in living}
    found: dict[int, tuple[Process, _Record]] = {}
    for record in records:
        members = record.members(table, names)
        tree = members | {process.pid for process in descendants(members, table)}
        for process in table:
            if process.alive and process.pid in tree and process.pid not in excluded:
                found.setdefault(process.pid, (process, record))
    return list(found.values())


def _own_family(table: list[Process]) -> set[int]:
    """Return this process, its ancestors and its descendants: such a child may have started us."""
    parents = {process.pid: process.parent for process in table}
    pid, lineage = os.getpid(), set[int]()
    while pid and pid not in lineage:
        lineage.add(pid)
        pid = parents.get(pid, 0)
    return lineage | {process.pid for process in descendants({os.getpid()}, table)}


def _identity(process: Process) -> tuple[int, int]:
    return process.pid, process.start


def _record_name(pid: int) -> str:
    """Return the name of the record in a process's environment, if any."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{RECORD_VARIABLE}=".encode()
    own = (each for each in variables if each.startswith(prefix))
    return next(own, prefix)[len(prefix) :].decode(errors="replace")


def autogroup(pid: int) -> str:
    """Return the autogroup of a process, such as `/autogroup-42`; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii").split()[0]
    except (OSError, LookupError):
        return ""


def _read(path: Path) -> _Record | None:
    """Return a record whose processes can still exist; None for others and for garbage."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            first, *more = os.read(fd, _MAX_BYTES).splitlines()
        finally:
            os.close(fd)
        about = json.loads(first)
        process: dict[str, str | int] = {"pid": 0, "start": 0}
        if about["where"] != _pid_scope():
            return None
        with contextlib.suppress(ValueError):  # incomplete because of the crash
            process = json.loads(more[0]) if more else process
        return _Record(
            path,
            run_id=str(about["run"]),
            step=str(about["step"]),
            pid=int(process["pid"]),
            start=int(process["start"]),
            autogroup=str(process.get("autogroup", "")),
        )
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _pid_scope() -> str:
    """Return where process ids have a meaning: this boot of this machine, and our namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
