"""Processes that own runs: a session lock proves that one exists, a heartbeat that it works.

A process holds an advisory lock of PostgreSQL on a connection of its own. The server releases it
when the connection ends, so also when the process was killed. Another machine can be cut off from
the network, and its connection then ends only after a while; that is what heartbeats are for. All
times are those of PostgreSQL's clock, never of the machines' clocks.

A process is

- dead, if it has not sent a heartbeat for its timeout, whether or not its lock is held: its machine
  is cut off, frozen or gone;
- dead, if its lock is not held and nothing was heard of it for `GRACE_MS`;
- frozen, if it has not sent a heartbeat for half of its timeout;
- alive otherwise.

The grace is for connections that are lost although the process is well. It opens the connection
again and takes its lock again. Between heartbeats the session that holds the lock says every
`SIGN_SECONDS` that it exists. While nobody can reach the database nobody can be heard: see
`outages`. Each process has a timeout of its own in its row, so that all judge it alike.

Who was dead stays dead: another process may have taken over its runs. A heartbeat has the condition
that the process is not dead by these rules, and taking the lock again has a condition that is
stricter by `MARGIN_MS`. A process that is refused has lost its id: `Instance.heartbeat` raises
`Fenced`, and it must end what it does for its runs. It may register again, as somebody new.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, LiteralString, NoReturn

import msgspec
import psycopg
from msgspec.structs import replace

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.values import compact_json
from infloop.store.interfaces.changes import STOPS
from infloop.store.interfaces.liveness import (
    HEARTBEATS_IN_TIMEOUT,
    Instance,
    InstanceRow,
    Liveness,
    OwnerState,
    ProcessKind,
    StopRequest,
)
from infloop.store.postgresql.commit_marks import delete_unused_marks
from infloop.store.postgresql.connections import close_quietly
from infloop.store.postgresql.errors import is_lost, store_error
from infloop.store.postgresql.jobs import (
    register_worker,
    unregister_dead_workers,
    unregister_worker,
)
from infloop.store.postgresql.outages import OUTAGE_MS, excuse_all, wait_for_others
from infloop.store.this_process import describe_process, new_instance_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.store.postgresql.connections import Connection, Database
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer

GRACE_MS = 5_000
MARGIN_MS = 1_000
SIGN_SECONDS = 1.0
_RETRY_SECONDS = 0.1

LOCK_CLASS = 0x696E66_03
"""The first number of the advisory locks; the second is the key of the instance."""

_NOW: LiteralString = "clock_timestamp()"
_HEARD: LiteralString = "greatest(beat_at, held_at)"
_BEAT: LiteralString = "greatest(beat_at, excused_at)"


def _ms(milliseconds: int) -> str:
    return f"interval '{milliseconds} milliseconds'"


_HOLDS = (
    "locktype = 'advisory' AND granted"  # noqa: S608  (constants)
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND classid = {LOCK_CLASS} AND objid = instance.key AND objsubid = 2"
)
_LOCKED = f"EXISTS (SELECT 1 FROM pg_locks WHERE {_HOLDS})"  # noqa: S608  (constants)
_IS_LOST = f"(closed OR {_NOW} > {_BEAT} + timeout)"
_STATE = (
    f"CASE WHEN {_IS_LOST} THEN 'dead'"
    f" WHEN {_NOW} > greatest({_HEARD} + {_ms(GRACE_MS)}, excused_at + timeout)"
    f" AND NOT {_LOCKED} THEN 'dead'"
    f" WHEN {_NOW} > {_BEAT} + timeout / 2 THEN 'frozen' ELSE 'alive' END"
)
_EPOCH_MS = "(extract(epoch FROM {}) * 1000)::bigint"
_BEAT_MS = _EPOCH_MS.format("beat_at")
_COLUMNS = (
    f"id, pid, process_started, boot_id, host, {_EPOCH_MS.format('started_at')}, {_BEAT_MS},"
    " kind, labels, capacity"
)

_REGISTER = (
    "INSERT INTO instance (id, pid, process_started, boot_id, host, kind, labels, capacity,"  # noqa: S608
    " timeout, worker)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s * interval '1 millisecond', %s)"
    f" RETURNING key, {_BEAT_MS}"
)
# One statement, as Procrastinate's own heartbeat is: a process that freezes between two would lose
# its session, and with it its lock, before its timeout.
_HEARTBEAT = (
    f"WITH beat AS (UPDATE instance SET beat_at = {_NOW}, held_at = {_NOW}"  # noqa: S608
    f" WHERE id = %s AND NOT {_IS_LOST} RETURNING worker)"
    " SELECT procrastinate_update_heartbeat_v1(worker) FROM beat"
)
_SIGN = f"UPDATE instance SET held_at = {_NOW} WHERE id = %s AND NOT {_IS_LOST}"  # noqa: S608
_LOCK_AGAIN = (
    f"SELECT pg_try_advisory_lock({LOCK_CLASS}, key) FROM instance WHERE id = %s"  # noqa: S608
    f" AND NOT {_IS_LOST} AND {_NOW} <="
    f" greatest({_HEARD} + {_ms(GRACE_MS)}, excused_at + timeout) - {_ms(MARGIN_MS)}"
)
# The lock can only be held by an earlier session of the same process, whose end the server has not
# noticed.
_END_HOLDER = (
    "SELECT pg_terminate_backend(pg_locks.pid) FROM pg_locks, instance WHERE instance.id = %s"  # noqa: S608
    f" AND {_HOLDS}"
)
_CLOSE_DEAD = f"UPDATE instance SET closed = true WHERE NOT closed AND ({_STATE}) = 'dead'"  # noqa: S608


class PostgresqlInstance(Instance):
    """This process: its row, and the connection that holds its lock."""

    def __init__(
        self, database: Database, writer: Writer, row: InstanceRow, lost_after_ms: int
    ) -> None:
        self.row = row
        self.heartbeat_seconds = lost_after_ms / 1000 / HEARTBEATS_IN_TIMEOUT
        self._database = database
        self._writer = writer
        self._lost_after_ms = lost_after_ms
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._lost = False
        self._beat = self._heard = 0.0
        self._task: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Store the row, and take the lock."""
        row = self.row
        about = (row.id, row.pid, row.process_started, row.boot_id, row.host)
        takes = (row.kind, compact_json(row.labels), row.capacity, self._lost_after_ms)
        connection = await self._database.connect(synced=False)
        try:
            if await wait_for_others(connection, GRACE_MS / 1000):
                await connection.execute(_CLOSE_DEAD.encode())
            async with connection.transaction():
                worker = await register_worker(connection)
                cursor = await connection.execute(_REGISTER.encode(), (*about, *takes, worker))
            key, now = await cursor.fetchone() or (0, 0)
            await connection.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK_CLASS, key))
        except psycopg.Error as error:
            await close_quietly(connection)
            raise store_error(error, self._database.shown) from error
        self.row = replace(row, started_at=now, heartbeat_at=now)
        self._connection, self._lost = connection, False
        self._beat = self._heard = _uptime()
        self._task = asyncio.create_task(self._keep(), name="postgresql-instance")

    def is_late(self) -> bool:
        return self._lost or _uptime() - self._beat > self._lost_after_ms / 2000

    async def heartbeat(self) -> None:
        asked = _uptime()
        await self._execute(_HEARTBEAT)
        self._beat = asked

    async def be_heard(self) -> None:
        """Say that this process exists, unless it did so lately."""
        if self._task is not None and self._was_silent():
            with suppress(StoreError):  # the next heartbeat raises it
                await self._execute(_SIGN)

    def _was_silent(self) -> bool:
        return _uptime() - self._heard > OUTAGE_MS / 1000

    async def renew(self) -> None:
        await self.close()
        self.row = replace(self.row, id=new_instance_id())
        await self.register()

    async def close(self) -> None:
        await self._stop()
        await self._writer.submit(partial(_close_instance, instance_id=self.id))

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await close_quietly(self._connection)
        self._connection = None

    async def abandon(self) -> None:
        """Close the connection, as the end of the process would."""
        await self._stop()

    async def _keep(self) -> None:
        while not self._lost:
            await asyncio.sleep(SIGN_SECONDS)
            with suppress(StoreError):  # the next heartbeat raises it
                await self._execute(_SIGN)

    async def _execute(self, sql: str) -> None:
        """Tell the server that this process exists; take its lock again if it was lost."""
        async with self._turn:
            while True:
                if self._lost:
                    raise self._refusal()
                if self._connection is None:
                    self._connection = await self._locked_again()
                connection, asked = self._connection, _uptime()
                try:
                    if self._was_silent():
                        await excuse_all(connection)
                    told = await connection.execute(sql.encode(), (self.id,))
                except psycopg.Error as error:
                    if not is_lost(error, connection):
                        raise store_error(error, self._database.shown) from error
                    self._connection = None
                    await close_quietly(connection)
                    continue
                if told.rowcount == 0:
                    await self._give_up(connection)
                self._heard = asked
                return

    async def _locked_again(self) -> Connection:
        """Return a new connection that holds the lock, or raise `Fenced` if it is too late."""
        connection = await self._database.reconnect(synced=False)
        try:
            if self._was_silent():
                await excuse_all(connection)
            while True:
                cursor = await connection.execute(_LOCK_AGAIN.encode(), (self.id,))
                row = await cursor.fetchone()
                if row is None:
                    await self._give_up(connection)
                if row == (True,):
                    return connection
                await connection.execute(_END_HOLDER.encode(), (self.id,))
                await asyncio.sleep(_RETRY_SECONDS)
        except BaseException:
            await close_quietly(connection)
            raise

    async def _give_up(self, connection: Connection) -> NoReturn:
        self._lost = True
        self._connection = None
        await close_quietly(connection)
        raise self._refusal()

    def _refusal(self) -> Fenced:
        return Fenced(
            f"{self.id!r} was declared dead because it was not heard for too long; its runs may "
            "belong to another process, and this one must stop working on them"
        )


class PostgresqlLiveness(Liveness):
    """The processes of all machines that use the same database."""

    def __init__(
        self, database: Database, writer: Writer, readers: Readers, lost_after_ms: int
    ) -> None:
        self._database = database
        self._writer = writer
        self._readers = readers
        self._lost_after_ms = lost_after_ms
        self._own: list[PostgresqlInstance] = []

    async def register(
        self, kind: ProcessKind = "run", *, labels: Collection[str] = (), capacity: int = 0
    ) -> Instance:
        row = describe_process(0, kind, labels, capacity)
        instance = PostgresqlInstance(self._database, self._writer, row, self._lost_after_ms)
        await instance.register()
        self._own.append(instance)
        return instance

    async def close(self) -> None:
        """End the registrations that were not closed, as the end of the process would."""
        for instance in self._own:
            await instance.abandon()

    async def states(self, instance_ids: Collection[str]) -> dict[str, OwnerState]:
        if not instance_ids:
            return {}
        # Who could not be heard cannot tell whether others could, and must first be heard itself.
        for instance in self._own:
            await instance.be_heard()
        found = await self._readers.run(_read_states, [*instance_ids])
        return {each: found.get(each, "dead") for each in instance_ids}

    async def instance(self, instance_id: str) -> InstanceRow | None:
        rows = await self._readers.run(_read_instances, instance_id)
        return rows[0] if rows else None

    async def instances(self) -> list[InstanceRow]:
        return await self._readers.run(_read_instances, None)

    async def sweep(self) -> None:
        await self._writer.submit(_sweep)

    async def request_stop(self, run_id: str, reason: str, time: int) -> None:
        work = partial(_request_stop, run_id=run_id, reason=reason, time=time)
        await self._writer.submit(work)
        self._writer.announce(STOPS)

    async def stop_requests(self, instance_id: str) -> list[StopRequest]:
        return await self._readers.run(_read_stop_requests, instance_id)


async def _read_states(connection: Connection, instance_ids: list[str]) -> dict[str, OwnerState]:
    cursor = await connection.execute(
        f"SELECT id, {_STATE} FROM instance WHERE id = ANY(%s)".encode(),  # noqa: S608  (constants)
        (instance_ids,),
    )
    return dict(await cursor.fetchall())


async def _read_instances(connection: Connection, instance_id: str | None) -> list[InstanceRow]:
    """Return one process, or all of them, oldest first."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM instance WHERE %(id)s::text IS NULL OR id = %(id)s"  # noqa: S608
        " ORDER BY started_at, key".encode(),
        {"id": instance_id},
    )
    return [_instance(row) for row in await cursor.fetchall()]


def _instance(row: tuple[Any, ...]) -> InstanceRow:
    known = dict(zip(InstanceRow.__struct_fields__, row, strict=True))
    return InstanceRow(**{**known, "labels": tuple(msgspec.json.decode(known["labels"]))})


def _uptime() -> float:
    """Return seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_OWNS_NOTHING = "NOT EXISTS (SELECT 1 FROM run WHERE status = 'running' AND owner = instance.id)"


async def _close_instance(connection: Connection, instance_id: str) -> None:
    """Delete a process; one that owns a run that has not settled is kept as a dead one."""
    closed = await connection.execute(
        "UPDATE instance SET closed = true WHERE id = %s RETURNING worker", (instance_id,)
    )
    for (worker,) in await closed.fetchall():
        await unregister_worker(connection, worker)
    await connection.execute(
        f"DELETE FROM instance WHERE id = %s AND {_OWNS_NOTHING}".encode(),  # noqa: S608
        (instance_id,),
    )


async def _sweep(connection: Connection) -> None:
    await connection.execute(
        f"DELETE FROM instance WHERE ({_STATE}) = 'dead' AND {_OWNS_NOTHING}".encode()  # noqa: S608
    )
    await unregister_dead_workers(connection)
    await delete_unused_marks(connection)


async def _request_stop(connection: Connection, run_id: str, reason: str, time: int) -> None:
    stored = await connection.execute(
        "INSERT INTO stop_request SELECT key, %s, %s FROM run WHERE id = %s"
        " ON CONFLICT (run) DO UPDATE SET reason = excluded.reason, time = excluded.time",
        (reason, time, run_id),
    )
    if not stored.rowcount:
        raise NotFound(f"there is no run {run_id!r} to stop")


async def _read_stop_requests(connection: Connection, instance_id: str) -> list[StopRequest]:
    cursor = await connection.execute(
        "SELECT run.id, reason, time FROM stop_request JOIN run ON run.key = stop_request.run"
        " WHERE owner = %s AND status = 'running' ORDER BY time, run.id",
        (instance_id,),
    )
    found: list[Any] = await cursor.fetchall()
    return [StopRequest(*row) for row in found]
