"""The run queue in the database: a table of ours for the entries, Procrastinate for their order.

`queued` is the record of an entry: its inputs, its keys, what became of it. Which entry is handed
out next, and to whom, is decided by Procrastinate's jobs (`jobs`), in the same transactions.

Whoever adds an entry takes a lock until that is committed, so that the limit and the idempotency
keys hold between processes.

How entries are taken is in `taking`.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from msgspec.structs import replace

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.values import compact_json
from infloop.store.encoding.compression import pack
from infloop.store.encoding.records import QUEUE_COLUMNS, queue_entry
from infloop.store.encoding.values import to_json
from infloop.store.interfaces.changes import QUEUE
from infloop.store.interfaces.queue import (
    KEPT_MS,
    Enqueued,
    QueuedRun,
    QueueEntry,
    QueueFull,
    Replayed,
    RunQueue,
)
from infloop.store.postgresql import creation
from infloop.store.postgresql.definitions import (
    drop_unused_definition,
    keep_definition,
    read_definition,
)
from infloop.store.postgresql.jobs import (
    FINISH,
    NewJob,
    defer_jobs,
    finish_job,
    give_jobs,
    lock_job,
    queue_name,
    repair_jobs,
    retry_jobs,
)
from infloop.store.postgresql.taking import Choice, has_takeable, take

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.run_log import NewRun
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer

_PRUNED_PER_PUT = 200

_NOTHING = pack(b"{}")

Cursor: TypeAlias = "psycopg.AsyncCursor[tuple[Any, ...]]"

# The earlier answer, if there is one, how many entries there are, and whether one has no job yet.
_LOOK = """
SELECT
    (SELECT array[id, run, first_position::text] FROM queued
        WHERE %(key)s <> '' AND idempotency_key = %(key)s
        AND (queued_at >= %(oldest)s OR state IN ('waiting', 'taken')) LIMIT 1),
    (SELECT id FROM queued WHERE %(fingerprint)s <> '' AND fingerprint = %(fingerprint)s
        AND (queued_at >= %(oldest)s OR state IN ('waiting', 'taken')) LIMIT 1),
    (SELECT count(*) FROM queued WHERE state = 'waiting'),
    (SELECT count(*) FROM queued WHERE state = 'taken'),
    (SELECT count(*) FROM queued WHERE state = 'waiting' AND (held OR priority < %(priority)s)),
    EXISTS (SELECT 1 FROM queued WHERE state = 'waiting' AND NOT held AND queue = '')
"""

_FINISH = f"""
WITH finished AS (
    UPDATE queued SET state = 'started', reason = '', body = %s, definition = NULL
    WHERE id = %s AND state = 'taken' AND owner = %s RETURNING run, job
)
SELECT run, CASE WHEN job IS NOT NULL THEN {FINISH.format("job")} END FROM finished
""".encode()  # noqa: S608  (constants)


class PostgresqlQueue(RunQueue):
    """The queue of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._has_passed_over = False
        self._needs_repair = True  # once, and after processes without jobs have gone

    async def put(
        self, run: QueuedRun, *, limit: int, definition: bytes = b""
    ) -> Enqueued | QueueFull | Replayed:
        work = partial(_put, run=run, limit=limit, definition=definition)
        return await self._writer.submit(work, lock="queue")  # its job announces itself

    async def definition(self, name: str) -> bytes:
        return await self._readers.run(read_definition, name)

    async def take(
        self,
        owner: str,
        limit: int = 1,
        *,
        labels: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[QueueEntry]:
        if limit <= 0:
            return []
        choice = Choice(owner, limit, [*labels], None if only is None else [*only])
        if not self._has_passed_over:
            taken, self._has_passed_over = await self._writer.submit(partial(take, choice=choice))
            if taken or not self._has_passed_over:
                return taken
        work = partial(take, choice=choice, is_locked=True)
        taken, self._has_passed_over = await self._writer.submit(work, lock="queue")
        return taken

    async def has_takeable(
        self, *, labels: Collection[str] = (), only: Collection[str] | None = None
    ) -> bool:
        choice = Choice("", 0, [*labels], None if only is None else [*only])
        return await self._readers.run(has_takeable, choice)

    async def start(
        self,
        entry_id: str,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded] = (),
        *,
        scope: JsonObject | None = None,
    ) -> int:
        async def work(connection: Connection) -> bool:
            promised = await _finish(connection, entry_id, run.owner)
            if promised != run.id:
                raise StoreError(f"the run of {entry_id!r} is {promised!r} and not {run.id!r}")
            cap = self._writer.output_cap
            return await creation.create_run(connection, run, (first, *rest), scope, cap)

        queue_waits = await self._writer.submit(work)
        self._writer.announce(*[QUEUE] if queue_waits else [], run_id=run.id)
        return creation.FIRST_EPOCH

    async def requeue(self, entry_id: str, owner: str) -> None:
        await self._writer.submit(partial(_requeue, entry_id=entry_id, owner=owner))
        self._writer.announce(QUEUE)

    async def hold_entry(self, entry_id: str, owner: str, reason: str) -> None:
        await self._writer.submit(
            partial(_hold_entry, entry_id=entry_id, owner=owner, reason=reason)
        )

    async def retry_held(self, *, only: Collection[str] | None = None) -> None:
        work = partial(_retry_held, only=only, repair=self._needs_repair)
        released, self._needs_repair = await self._writer.submit(work)
        self._announce_some(released)

    async def release_held(self, workflow_id: str, reason: str) -> None:
        work = partial(_release_held, row=(workflow_id, reason))
        self._announce_some(await self._writer.submit(work))

    async def remove(self, entry_id: str) -> bool:
        return await self._writer.submit(partial(_remove, entry_id=entry_id))

    async def withdraw(self, entry_id: str) -> bool:
        return await self._writer.submit(partial(_withdraw, entry_id=entry_id))

    async def entry(self, entry_id: str) -> QueueEntry:
        return await self._readers.run(_read_entry, entry_id)

    async def entries(self, *, limit: int = 1000) -> list[QueueEntry]:
        return await self._readers.run(_read_entries, limit)

    async def count(self) -> int:
        return await self._readers.run(_count)

    async def hold(self, owner: str, reason: str, since: int) -> None:
        await self._writer.submit(partial(_hold, row=(owner, reason, since)))

    async def release(self, owner: str) -> None:
        await self._writer.submit(partial(_release, owner=owner))

    async def owners(self) -> list[str]:
        return await self._readers.run(_read_owners)

    async def requeue_all(self, owner: str) -> int:
        requeued = await self._writer.submit(partial(_requeue_all, owner=owner))
        self._announce_some(requeued)
        return requeued

    def _announce_some(self, released: int) -> None:
        if released:
            self._writer.announce(QUEUE)


# -- adding ----------------------------------------------------------------------------------------


async def _put(
    connection: Connection, run: QueuedRun, limit: int, definition: bytes
) -> Enqueued | QueueFull | Replayed:
    oldest_kept = run.queued_at - KEPT_MS
    await _prune(connection, oldest_kept)
    cursor = await connection.execute(
        _LOOK,
        {
            "key": run.idempotency_key,
            "fingerprint": run.fingerprint,
            "oldest": oldest_kept,
            "priority": run.priority,
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    first_answer, replayed, waiting, taken, behind, without_job = row
    if first_answer is not None:
        entry_id, run_id, first_position = first_answer
        return Enqueued(entry_id, run_id, int(first_position), repeated=True)
    if replayed is not None:
        return Replayed(replayed)
    if waiting + taken >= limit:
        return QueueFull(limit)
    position = waiting - behind + 1
    if run.definition:
        await keep_definition(connection, run.definition, definition)
    if without_job:  # what came before goes first
        await give_jobs(connection)
    queue = queue_name(run.requires, run.workflow_id, run.max_concurrent)
    (job,) = await defer_jobs(connection, [NewJob(run.id, queue, run.priority)])
    await _insert(connection, run, position, queue, job)
    return Enqueued(run.id, run.run_id, position)


async def _prune(connection: Connection, before: int) -> None:
    """Delete some entries that have left the queue and were added before `before`."""
    await connection.execute(
        "DELETE FROM queued WHERE key IN (SELECT key FROM queued WHERE queued_at < %s"
        " AND state NOT IN ('waiting', 'taken') LIMIT %s)",
        (before, _PRUNED_PER_PUT),
    )


async def _insert(
    connection: Connection, run: QueuedRun, position: int, queue: str, job: int
) -> None:
    try:
        await connection.execute(
            "INSERT INTO queued (id, run, workflow, correlation_id, cause, priority,"
            " idempotency_key, fingerprint, queued_at, first_position, requires, max_concurrent,"
            " definition, body, queue, job)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                run.id,
                run.run_id,
                run.workflow_id,
                run.correlation_id,
                compact_json(run.cause),
                run.priority,
                run.idempotency_key or None,
                run.fingerprint or None,
                run.queued_at,
                position,
                compact_json(run.requires),
                run.max_concurrent,
                run.definition or None,
                pack(to_json({"inputs": run.inputs, "extra": run.extra})),
                queue,
                job,
            ),
        )
    except psycopg.errors.UniqueViolation as error:
        raise StoreError(
            f"{run.id!r} or its run {run.run_id!r} was already in the queue; "
            "every entry needs ids of its own"
        ) from error


# -- what was taken -------------------------------------------------------------------------------


async def _finish(connection: Connection, entry_id: str, owner: str) -> str:
    """End an entry that `owner` took and that becomes a run; return the id of the run."""
    finished = await connection.execute(_FINISH, (_NOTHING, entry_id, owner))
    row = await finished.fetchone()
    if row is None:
        raise _not_taken(entry_id, owner)
    return str(row[0])


async def _requeue(connection: Connection, entry_id: str, owner: str) -> None:
    requeued = await connection.execute(
        "UPDATE queued SET state = 'waiting', owner = ''"
        " WHERE id = %s AND state = 'taken' AND owner = %s RETURNING job",
        (entry_id, owner),
    )
    if not await _retry_jobs_of(connection, requeued):
        raise _not_taken(entry_id, owner)


async def _hold_entry(connection: Connection, entry_id: str, owner: str, reason: str) -> None:
    held = await connection.execute(
        "UPDATE queued SET state = 'waiting', owner = '', held = true, reason = %s"
        " WHERE id = %s AND state = 'taken' AND owner = %s",
        (reason, entry_id, owner),
    )
    if not held.rowcount:
        raise _not_taken(entry_id, owner)


async def _retry_jobs_of(connection: Connection, changed: Cursor) -> int:
    """Let the jobs that a statement returned be fetched again; return how many there were."""
    jobs = [job for (job,) in await changed.fetchall()]
    if jobs:
        await retry_jobs(connection, jobs)
    return len(jobs)


async def _retry_held(
    connection: Connection, *, only: Collection[str] | None, repair: bool
) -> tuple[int, bool]:
    """Release the oldest held entry of each workflow and reason.

    Returns how many, and whether jobs are to be repaired the next time.
    """
    repair = await repair_jobs(connection, is_needed=repair)
    released = await connection.execute(
        "UPDATE queued SET held = false WHERE key IN (SELECT min(key) FROM queued"
        " WHERE state = 'waiting' AND held"
        " AND (%(only)s::text[] IS NULL OR id = ANY(%(only)s)) GROUP BY workflow, reason)"
        " RETURNING job",
        {"only": None if only is None else [*only]},
    )
    return await _retry_jobs_of(connection, released), repair


async def _release_held(connection: Connection, row: tuple[str, str]) -> int:
    released = await connection.execute(
        "UPDATE queued SET held = false"
        " WHERE state = 'waiting' AND held AND workflow = %s AND reason = %s RETURNING job",
        row,
    )
    return await _retry_jobs_of(connection, released)


def _not_taken(entry_id: str, owner: str) -> Fenced:
    return Fenced(f"{owner!r} has not taken {entry_id!r} from the queue, so it must not use it")


async def _remove(connection: Connection, entry_id: str) -> bool:
    await lock_job(connection, entry_id)
    definition = await _definition_of(connection, entry_id)
    removed = await connection.execute(
        "UPDATE queued SET state = 'removed', body = %s, definition = NULL"
        " WHERE id = %s AND state = 'waiting' RETURNING job",
        (_NOTHING, entry_id),
    )
    return await _finish_job_of(connection, removed, definition)


async def _finish_job_of(connection: Connection, changed: Cursor, definition: str) -> bool:
    """Forget what only an entry has that a statement removed; say whether there was one."""
    row = await changed.fetchone()
    if row is not None:
        await finish_job(connection, row[0])
    await drop_unused_definition(connection, definition)
    return row is not None


async def _definition_of(connection: Connection, entry_id: str) -> str:
    found = await connection.execute("SELECT definition FROM queued WHERE id = %s", (entry_id,))
    row = await found.fetchone()
    return str(row[0]) if row and row[0] else ""


async def _withdraw(connection: Connection, entry_id: str) -> bool:
    await lock_job(connection, entry_id)
    definition = await _definition_of(connection, entry_id)
    withdrawn = await connection.execute(
        "DELETE FROM queued WHERE id = %s AND state IN ('waiting', 'taken') RETURNING job",
        (entry_id,),
    )
    return await _finish_job_of(connection, withdrawn, definition)


# -- owners ----------------------------------------------------------------------------------------


async def _hold(connection: Connection, row: tuple[str, str, int]) -> None:
    await connection.execute(
        "INSERT INTO queue_hold VALUES (%s, %s, %s)"
        " ON CONFLICT (owner) DO UPDATE SET reason = excluded.reason, since = excluded.since",
        row,
    )


async def _release(connection: Connection, owner: str) -> None:
    await connection.execute("DELETE FROM queue_hold WHERE owner = %s", (owner,))


async def _requeue_all(connection: Connection, owner: str) -> int:
    await _release(connection, owner)
    requeued = await connection.execute(
        "UPDATE queued SET state = 'waiting', owner = '' WHERE state = 'taken' AND owner = %s"
        " RETURNING job",
        (owner,),
    )
    return await _retry_jobs_of(connection, requeued)


async def _read_owners(connection: Connection) -> list[str]:
    cursor = await connection.execute(
        "SELECT owner FROM queued WHERE state = 'taken' UNION SELECT owner FROM queue_hold"
    )
    return [owner for (owner,) in await cursor.fetchall()]


# -- reading ---------------------------------------------------------------------------------------


async def _count(connection: Connection) -> int:
    cursor = await connection.execute(
        "SELECT count(*) FROM queued WHERE state IN ('waiting', 'taken')"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _position(connection: Connection, priority: int, key: int) -> int:
    cursor = await connection.execute(
        "SELECT count(*) FROM queued WHERE state = 'waiting' AND NOT held"
        " AND (priority > %(priority)s OR (priority = %(priority)s AND key <= %(key)s))",
        {"priority": priority, "key": key},
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _read_entry(connection: Connection, entry_id: str) -> QueueEntry:
    cursor = await connection.execute(
        f"SELECT {QUEUE_COLUMNS} FROM queued WHERE id = %s".encode(),  # noqa: S608  (constants)
        (entry_id,),
        binary=True,
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no queue entry {entry_id!r}; it may have left the queue days ago")
    entry = queue_entry(row, 0)
    if entry.state != "waiting" or entry.held:
        return entry
    return queue_entry(row, await _position(connection, entry.run.priority, row[-1]))


async def _read_entries(connection: Connection, limit: int) -> list[QueueEntry]:
    cursor = await connection.execute(
        f"SELECT {QUEUE_COLUMNS} FROM queued WHERE state IN ('waiting', 'taken')"  # noqa: S608
        " ORDER BY state, held, priority DESC, key LIMIT %s".encode(),
        (limit,),
        binary=True,
    )
    found = [queue_entry(row, 0) for row in await cursor.fetchall()]
    positions = count(1)
    return [
        replace(entry, position=next(positions))
        if entry.state == "waiting" and not entry.held
        else entry
        for entry in found
    ]
