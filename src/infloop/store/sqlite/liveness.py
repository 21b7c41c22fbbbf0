"""Processes that own runs: a lock file proves that one exists, a heartbeat that it is not frozen.

The heartbeats, descriptions and stop requests are in the database; the lock files are in a
directory beside it (see `lowlevel/lock_file`).
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infloop.errors import Fenced, NotFound
from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free
from infloop.store.encoding.values import replace_surrogates
from infloop.store.files import private_directory
from infloop.store.interfaces.liveness import (
    FROZEN_AFTER_MS,
    Instance,
    InstanceRow,
    Liveness,
    OwnerState,
    ProcessKind,
    StopRequest,
)
from infloop.store.this_process import describe_process, new_instance_id

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection
    from pathlib import Path

    from infloop.store.sqlite.access import Readers, Writer


class SqliteInstance(Instance):
    """This process: its row and its lock file."""

    def __init__(
        self, writer: Writer, row: InstanceRow, locks: Path, clock: Callable[[], int]
    ) -> None:
        self.row = row
        self.heartbeat_at = row.heartbeat_at
        self.is_closed = False
        self._writer = writer
        self._locks = locks
        self._lock = LockFile(lock_path(locks, row.id))
        self._clock = clock

    async def store(self) -> None:
        await self._writer.submit(partial(_insert_instance, instance=self.row))

    def is_late(self) -> bool:
        return self.heartbeat_at < self._clock() - FROZEN_AFTER_MS

    async def heartbeat(self) -> None:
        now = self._clock()
        await self._writer.submit(partial(_heartbeat, instance_id=self.id, time=now))
        self.heartbeat_at = now

    async def renew(self) -> None:
        old_id, old, now = self.id, self._lock, self._clock()
        self.row = replace(self.row, id=new_instance_id(), started_at=now, heartbeat_at=now)
        self.heartbeat_at = now
        self._lock = LockFile(lock_path(self._locks, self.id))
        await self.store()
        old.release()
        await self._writer.submit(partial(_delete_instance, instance_id=old_id))

    async def close(self) -> None:
        self.is_closed = True
        self._lock.release()
        await self._writer.submit(partial(_delete_instance, instance_id=self.id))


class SqliteLiveness(Liveness):
    """The processes of this machine that open the same database; `locks` has their lock files."""

    def __init__(
        self, writer: Writer, readers: Readers, locks: Path, clock: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._locks = locks
        self._clock = clock
        self._own: list[SqliteInstance] = []

    async def register(
        self, kind: ProcessKind = "run", *, labels: Collection[str] = (), capacity: int = 0
    ) -> Instance:
        private_directory(self._locks)
        row = describe_process(self._clock(), kind, labels, capacity)
        instance = SqliteInstance(self._writer, row, self._locks, self._clock)
        await instance.store()
        self._own.append(instance)
        return instance

    async def states(self, instance_ids: Collection[str]) -> dict[str, OwnerState]:
        # A server is mostly asked about its own runs, and needs no query for them.
        heartbeats = {each.id: each.heartbeat_at for each in self._own if not each.is_closed}
        others = set(instance_ids) - {*heartbeats}
        held = {each for each in others if is_held(self._path(each))}
        if held:
            stored = {row.id: row.heartbeat_at for row in await self.instances()}
            # One that is just being registered has a lock and no row yet.
            heartbeats |= {each: stored.get(each, self._clock()) for each in held}
        oldest = self._clock() - FROZEN_AFTER_MS
        return {each: _state(heartbeats.get(each), oldest) for each in instance_ids}

    async def instance(self, instance_id: str) -> InstanceRow | None:
        rows = await self._readers.run(_read_instances, instance_id)
        return rows[0] if rows else None

    async def instances(self) -> list[InstanceRow]:
        return await self._readers.run(_read_instances, None)

    async def sweep(self) -> None:
        for path in sorted(self._locks.glob("*.lock")):
            remove_if_free(path)
        for row in await self.instances():
            if not is_held(self._path(row.id)):
                await self._writer.submit(partial(_delete_instance, instance_id=row.id))

    async def request_stop(self, run_id: str, reason: str, time: int) -> None:
        work = partial(_request_stop, run_id=run_id, reason=reason, time=time)
        await self._writer.submit(work)

    async def stop_requests(self, instance_id: str) -> list[StopRequest]:
        return await self._readers.run(_read_stop_requests, instance_id)

    def _path(self, instance_id: str) -> Path:
        return lock_path(self._locks, instance_id)


def lock_path(locks: Path, instance_id: str) -> Path:
    return locks / f"{instance_id}.lock"


def _state(heartbeat_at: int | None, oldest: int) -> OwnerState:
    if heartbeat_at is None:
        return "dead"
    return "frozen" if heartbeat_at < oldest else "alive"


def _insert_instance(connection: sqlite3.Connection, instance: InstanceRow) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO instance (id, pid, process_started, boot_id, host, started_at,"
        " beat_at, kind, labels, capacity) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            instance.id,
            instance.pid,
            instance.process_started,
            instance.boot_id,
            instance.host,
            instance.started_at,
            instance.heartbeat_at,
            instance.kind,
            json.dumps(instance.labels),
            instance.capacity,
        ),
    )


def _heartbeat(connection: sqlite3.Connection, instance_id: str, time: int) -> None:
    known = connection.execute(
        "UPDATE instance SET beat_at = ? WHERE id = ?", (time, instance_id)
    ).rowcount
    if not known:
        raise Fenced(f"{instance_id!r} was taken for dead; its runs belong to other processes now")


def _read_instances(connection: sqlite3.Connection, instance_id: str | None) -> list[InstanceRow]:
    """Return one process, or all of them, oldest first."""
    rows = connection.execute(
        "SELECT id, pid, process_started, boot_id, host, started_at, beat_at, kind, labels,"
        " capacity FROM instance WHERE ?1 IS NULL OR id = ?1 ORDER BY started_at, id",
        (instance_id,),
    )
    return [_instance(row) for row in rows]


def _instance(row: tuple[Any, ...]) -> InstanceRow:
    known = dict(zip(InstanceRow.__struct_fields__, row, strict=True))
    return InstanceRow(**{**known, "labels": tuple(json.loads(known["labels"]))})


def _delete_instance(connection: sqlite3.Connection, instance_id: str) -> None:
    """Delete a process, unless it owns a run that has not settled."""
    connection.execute(
        "DELETE FROM instance WHERE id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM run WHERE status = 'running' AND owner = ?1)",
        (instance_id,),
    )


def _request_stop(connection: sqlite3.Connection, run_id: str, reason: str, time: int) -> None:
    stored = connection.execute(
        "INSERT OR REPLACE INTO stop_request SELECT key, ?, ? FROM run WHERE id = ?",
        (replace_surrogates(reason), time, run_id),
    ).rowcount
    if not stored:
        raise NotFound(f"there is no run {run_id!r} to stop")


def _read_stop_requests(connection: sqlite3.Connection, instance_id: str) -> list[StopRequest]:
    rows = connection.execute(
        "SELECT run.id, reason, time FROM stop_request JOIN run ON run.key = stop_request.run"
        " WHERE owner = ? AND status = 'running' ORDER BY time, run.id",
        (instance_id,),
    )
    return [StopRequest(*row) for row in rows]
