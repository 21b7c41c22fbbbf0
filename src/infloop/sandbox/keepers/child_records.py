"""Children on record, so that a start after a crash can end what a dead process left behind.

A keeper ends its tree when the server dies. Only when both are killed at once can a tree live on;
this is for that case. While a child lives there is a file for it in the data directory:

    pids/<instance>.<number>    {"where", "run", "step", "level"}    before it is started
                                {"pid", "start"}                     once it has lived a moment

A blank file is no record: it waits for the next child, because making files takes longest, and
making them longer not much less.

The file's name is in the child's environment too, and so in that of whatever it starts, however
that detaches. What bears the name, is the recorded process, is in the session it leads or descends
from any of these belonged to the child.

Rules
  * Whether a record's owner is dead is said by its lock file; records of the living are not read.
  * A process is known by its id and its start time together, or by the name it bears: never by an
    id alone, which may have been given out again. Nor is a session whose leader is gone.
  * An id means nothing after a restart of the machine or in another process namespace.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.sandbox.base import ChildResult, SandboxAround
from infloop.sandbox.keepers.keeper import Process, all_processes, ask_to_end, below, send_signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted, Sandbox

MARK = "RUN_BY_INFLOOP"
"""The variable by which a child and what it starts bear the name of its record."""

_NAME = re.compile(r"(i-[0-9a-f]{16})\.[0-9]+", re.ASCII)
_FILE_MODE = 0o600
_MOST_BYTES = 1 << 16
_GRACE_S = 1.0
_PATIENCE_S = 3.0
_FIRST_TICK_S = 0.005
_LAST_TICK_S = 0.05


class ChildRecords:
    """Keeps the records of one living process's children."""

    def __init__(self, directory: Path, instance: str) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._instance = instance
        self._numbers = itertools.count(1)
        self._where = _where()
        self._free: list[_Slot] = []

    def around(self, sandbox: Sandbox, run_id: str, step: str) -> Sandbox:
        """Return a sandbox whose children are on record as those of this step."""
        return OnRecord(self, sandbox, run_id, step)

    def begin(self, run_id: str, step: str, level: str) -> _Slot:
        """Put a child on record; raise OSError when that is not possible."""
        slot = self._free.pop() if self._free else self._make()
        about = {"where": self._where, "run": run_id, "step": step, "level": level}
        try:
            slot.write(about)
        except OSError:
            self._free.append(slot)
            raise
        return slot

    def end(self, slot: _Slot) -> None:
        """Take a child off the record: nothing of it is left."""
        slot.clear()
        self._free.append(slot)

    def _make(self) -> _Slot:
        name = f"{self._instance}.{next(self._numbers)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        return _Slot(name, os.open(self.directory / name, flags, _FILE_MODE))

    def close(self) -> None:
        """Remove the files; no child is left."""
        for slot in self._free:
            os.close(slot.fd)
            _remove(self.directory / slot.name)
        self._free.clear()


class _Slot:
    """The file of one record after the other, held open, written in place."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self._end = 0
        self._size = 0

    def write(self, line: dict[str, str] | dict[str, int]) -> None:
        """Add a line."""
        # Not synced: nothing of it is worth anything once the machine has stopped.
        text = msgspec.json.encode(line) + b"\n"
        self._end += os.pwrite(self.fd, text, self._end)
        self._size = max(self._size, self._end)

    def clear(self) -> None:
        """Leave nothing but spaces."""
        os.pwrite(self.fd, b" " * self._size, 0)
        self._end = 0


class OnRecord(SandboxAround):
    """Runs the children of one step, each on record while it lives."""

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
        """Run a child to its end; one that cannot be put on record is not started."""
        try:
            slot = self._records.begin(self._run_id, self._step, self.level)
        except OSError as error:
            return ChildResult(error=f"the child could not be put on record: {error}")

        def note(pid: int, start_time: int) -> None:
            with contextlib.suppress(OSError):  # without its id it is still found by its mark
                slot.write({"pid": pid, "start": start_time})
            if on_started:
                on_started(pid, start_time)

        marked = msgspec.structs.replace(request, env={**request.env, MARK: slot.name})
        try:
            return await self._inner.run(marked, on_output=on_output, on_started=note)
        finally:
            self._records.end(slot)


class Ended(NamedTuple):
    """What a dead process's child had left behind: so many processes, and how many would not go."""

    run_id: str
    step: str
    processes: int
    alive: int


async def sweep(directory: Path, is_dead: Callable[[str], Awaitable[bool]]) -> list[Ended]:
    """End what the children of dead processes left behind; return what there was.

    TERM, then KILL; all of it within seconds. A record is kept only while somebody of it lives.
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
    return await _end(dead, living) if dead else []


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def _end(records: list[_Record], living: set[str]) -> list[Ended]:
    told: dict[tuple[int, int], _Record] = {}
    loop = asyncio.get_running_loop()
    began, tick_s = loop.time(), _FIRST_TICK_S
    while (left := _still_left(records, living)) and loop.time() < began + _PATIENCE_S:
        if loop.time() < began + _GRACE_S:
            ask_to_end([process for process, _ in left if _identity(process) not in told])
        else:
            for process, _ in left:
                send_signal(process, signal.SIGKILL)
        told.update((_identity(process), record) for process, record in left)
        await asyncio.sleep(tick_s)
        tick_s = min(tick_s * 2, _LAST_TICK_S)
    met, alive = Counter(told.values()), Counter(record for _, record in left)
    for record in records:
        if not alive[record]:
            _remove(record.path)
    return [Ended(each.run_id, each.step, met[each], alive[each]) for each in records if met[each]]


@dataclass(frozen=True)
class _Record:
    """A child of a dead process; `pid` is 0 when its start was not noted."""

    path: Path
    run_id: str
    step: str
    pid: int
    start: int

    def members(self, table: Iterable[Process], marks: dict[int, str]) -> set[int]:
        """Return the ids of those who are proved to have belonged to this child."""
        leads = any(_identity(process) == (self.pid, self.start) for process in table)
        return {
            process.pid
            for process in table
            if marks.get(process.pid) == self.path.name
            or (leads and self.pid in (process.pid, process.session))
        }


def _still_left(records: list[_Record], living: set[str]) -> list[tuple[Process, _Record]]:
    """Return who is left, by two looks: one may miss who just then begins or becomes a program."""
    return _left(records, living) or _left(records, living)


def _left(records: list[_Record], living: set[str]) -> list[tuple[Process, _Record]]:
    """Return who is left of these children; never ourselves, nor a child of somebody living."""
    table = all_processes()
    marks = {process.pid: mark for process in table if (mark := _mark(process.pid))}
    spared = _around_us(table) | {pid for pid, mark in marks.items() if mark in living}
    found: dict[int, tuple[Process, _Record]] = {}
    for record in records:
        members = record.members(table, marks)
        tree = members | {process.pid for process in below(members, table)}
        for process in table:
            if process.alive and process.pid in tree and process.pid not in spared:
                found.setdefault(process.pid, (process, record))
    return list(found.values())


def _around_us(table: list[Process]) -> set[int]:
    """Return us, those above us and those below: we may have been started by such a child."""
    parents = {process.pid: process.parent for process in table}
    pid, lineage = os.getpid(), set[int]()
    while pid and pid not in lineage:
        lineage.add(pid)
        pid = parents.get(pid, 0)
    return lineage | {process.pid for process in below({os.getpid()}, table)}


def _identity(process: Process) -> tuple[int, int]:
    return process.pid, process.start


def _mark(pid: int) -> str:
    """Return the name of a record that a process bears, or nothing."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{MARK}=".encode()
    own = (each for each in variables if each.startswith(prefix))
    return next(own, prefix)[len(prefix) :].decode(errors="replace")


def _read(path: Path) -> _Record | None:
    """Return a record whose processes can still be there; None for others and for garbage."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            first, *more = os.read(fd, _MOST_BYTES).splitlines()
        finally:
            os.close(fd)
        about, process = json.loads(first), {"pid": 0, "start": 0}
        if about["where"] != _where():
            return None
        with contextlib.suppress(ValueError):  # torn by the crash
            process = json.loads(more[0]) if more else process
        return _Record(
            path, str(about["run"]), str(about["step"]), int(process["pid"]), int(process["start"])
        )
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _where() -> str:
    """Return what process ids are good for: this boot of this machine, and our namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
