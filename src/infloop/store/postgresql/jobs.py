"""Jobs of Procrastinate: which entry of the queue is handed out next, and to which process.

Each entry in the queue has one job, `queued.job`:

    the entry waits and may be handed out    the job is `todo`
    it was taken, or it is held              `doing`
    it has left the queue                    there is no job

Procrastinate's own queries run on the connection of the transaction in progress, so an entry, its
job and its run are committed together.

`fetch_job` chooses by priority and age among the jobs of some queues. So what decides whether a
process may take an entry is in the name of its queue: the labels that it requires and, if its
workflow is limited, the workflow and the limit.

Who is alive is not decided here: a process is a worker of Procrastinate and beats there too, so
that its tools show what is true, but `liveness` alone decides who is dead.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from infloop.model.values import compact_json

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import LiteralString

    from psycopg import AsyncCursor

    from infloop.store.postgresql.connections import Connection

TASK = "infloop.start_run"

MOST_BYTES = 40
"""How long the name of a queue may be: it is part of the name of a channel."""

_MOST_PRIORITY = 2**31 - 1

# A job that is retried is due at once, by every clock.
_AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)

_WITHOUT_JOB = """
SELECT id, requires, workflow, max_concurrent, priority FROM queued
WHERE state = 'waiting' AND NOT held AND queue = '' ORDER BY key FOR UPDATE SKIP LOCKED
"""

# Entries are taken and runs are created in statements of ours that call the library's functions:
# one message to the server instead of one for each job. It is called until there is no job left.
_FETCH_ONE = "procrastinate_fetch_job_v2(%(queues)s::varchar[], %(worker)s)"
FETCH = f"""
SELECT 1 AS number, {_FETCH_ONE} AS job
UNION ALL
SELECT number + 1, {_FETCH_ONE} FROM fetched
WHERE (job).id IS NOT NULL AND number < %(limit)s
"""  # noqa: S608  (constants)
FINISH = "procrastinate_finish_job_v1({}, 'succeeded', true)"

# That function cannot choose among the jobs of a queue. A process that takes only what it queued
# itself (`infloop mcp`) needs that; this does the same for jobs without locks and times.
FETCH_ONLY = """
UPDATE procrastinate_jobs SET status = 'doing', worker_id = %(worker)s WHERE id IN (
    SELECT id FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = ANY(%(queues)s)
        AND args ->> 'entry' = ANY(%(only)s)
    ORDER BY priority DESC, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING procrastinate_jobs AS job
"""

# A process of a version without jobs takes, requeues and removes entries and leaves their jobs as
# they are. An entry whose job will not be handed out gets another one; a job whose entry has left
# the queue goes. Both look up one entry for each job: nobody knows how many there are.
_FORGET_JOBS = """
UPDATE queued SET job = NULL, queue = '' WHERE state = 'waiting' AND NOT held AND id IN (
    SELECT args ->> 'entry' FROM procrastinate_jobs WHERE status <> 'todo')
"""
_DELETE_ORPHANS = """
DELETE FROM procrastinate_jobs WHERE (SELECT queued.job = procrastinate_jobs.id
    AND state IN ('waiting', 'taken') FROM queued WHERE queued.id = args ->> 'entry') IS NOT TRUE
"""
_IS_USED_WITHOUT_JOBS = "SELECT EXISTS (SELECT 1 FROM instance WHERE worker IS NULL AND NOT closed)"

_WORKERS_OF_NOBODY = """
SELECT id FROM procrastinate_workers
WHERE NOT EXISTS (SELECT 1 FROM instance WHERE worker = procrastinate_workers.id)
"""


class NewJob(NamedTuple):
    """A job for an entry."""

    entry_id: str
    queue: str
    priority: int


def queue_name(requires: Collection[str], workflow_id: str, max_concurrent: int) -> str:
    """Return the queue of an entry's job: entries of one queue may be taken by the same processes.

    A long name is replaced by its hash.
    """
    name = compact_json(sorted(requires))
    if max_concurrent:
        name += f" {workflow_id} {max_concurrent}"
    data = name.encode(errors="replace")
    if len(data) <= MOST_BYTES:
        return data.decode()
    return f"sha256:{hashlib.sha256(data).hexdigest()[:32]}"


class TransactionConnector(BaseAsyncConnector):
    """Runs the queries of Procrastinate in the transaction in progress.

    Errors are psycopg's own: the writer knows them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        await self._execute(query, arguments)

    async def execute_query_one_async(
        self, query: LiteralString, **arguments: Any
    ) -> dict[str, Any]:
        row = await (await self._execute(query, arguments)).fetchone()
        assert row is not None
        return row

    async def execute_query_all_async(
        self, query: LiteralString, **arguments: Any
    ) -> list[dict[str, Any]]:
        return await (await self._execute(query, arguments)).fetchall()

    async def _execute(
        self, query: LiteralString, arguments: dict[str, Any]
    ) -> AsyncCursor[dict[str, Any]]:
        cursor = self._connection.cursor(row_factory=dict_row)
        return await cursor.execute(query, {key: _value(it) for key, it in arguments.items()})


def _value(value: object) -> object:
    """Return an argument of a query as psycopg takes it: objects are JSON."""
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple([_value(item) for item in value])
    return value


def _manager(connection: Connection) -> JobManager:
    return JobManager(TransactionConnector(connection))


# -- jobs ------------------------------------------------------------------------------------------


async def defer_jobs(connection: Connection, new: Sequence[NewJob]) -> list[int]:
    """Add jobs; return their ids. Who listens hears of them when that is committed."""
    added = await _manager(connection).batch_defer_jobs_async(
        [
            Job(
                queue=each.queue,
                priority=max(-_MOST_PRIORITY, min(each.priority, _MOST_PRIORITY)),
                lock=None,
                queueing_lock=None,
                task_name=TASK,
                task_kwargs={"entry": each.entry_id},
            )
            for each in new
        ]
    )
    return [job.id for job in added if job.id is not None]


async def give_jobs(connection: Connection) -> None:
    """Give a job to each entry that waits without one.

    `infloop migrate` adds such entries, and so do processes of a version without jobs.
    """
    rows = await (await connection.execute(_WITHOUT_JOB)).fetchall()
    if not rows:  # another process is just giving them theirs
        return
    new = [
        NewJob(entry_id, queue_name(msgspec.json.decode(requires), workflow, most), priority)
        for entry_id, requires, workflow, most, priority in rows
    ]
    jobs = await defer_jobs(connection, new)
    await connection.execute(
        "UPDATE queued SET job = it.job, queue = it.queue"
        " FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS it (id, queue, job)"
        " WHERE queued.id = it.id",
        ([each.entry_id for each in new], [each.queue for each in new], jobs),
    )


async def finish_job(connection: Connection, job: int | None) -> None:
    """Delete the job of an entry that leaves the queue."""
    if job is not None:
        await _manager(connection).finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True)


async def retry_jobs(connection: Connection, jobs: Sequence[int | None]) -> None:
    """Let jobs be fetched again, at their old places.

    What is `todo` or missing stays: a process of a version without jobs had the entry.
    """
    doing = await connection.execute(
        "SELECT id FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'doing'"
        " ORDER BY id FOR UPDATE",
        ([job for job in jobs if job is not None],),
    )
    ids = [job for (job,) in await doing.fetchall()]
    # An entry may be tried again for months. Its job remembers the last time.
    await connection.execute("DELETE FROM procrastinate_events WHERE job_id = ANY(%s)", (ids,))
    manager = _manager(connection)
    for job in ids:
        await manager.retry_job_by_id_async(job, _AT_ONCE)


async def lock_job(connection: Connection, entry_id: str) -> None:
    """Lock the job of an entry before the entry, as whoever takes it does."""
    await connection.execute(
        "SELECT 1 FROM procrastinate_jobs WHERE id = (SELECT job FROM queued WHERE id = %s)"
        " FOR UPDATE",
        (entry_id,),
    )


async def repair_jobs(connection: Connection, *, is_needed: bool) -> bool:
    """Make jobs and entries agree, if it is needed or processes of a version without jobs exist.

    Returns whether there are such processes.
    """
    row = await (await connection.execute(_IS_USED_WITHOUT_JOBS)).fetchone()
    if is_needed or row == (True,):
        await connection.execute(_FORGET_JOBS)
        await connection.execute(_DELETE_ORPHANS)
    return row == (True,)


# -- workers ---------------------------------------------------------------------------------------


async def register_worker(connection: Connection) -> int:
    """Return the number of a new worker."""
    return await _manager(connection).register_worker()


async def unregister_worker(connection: Connection, worker: int | None) -> None:
    """Forget a worker."""
    if worker is not None:
        await _manager(connection).unregister_worker(worker)


async def unregister_dead_workers(connection: Connection) -> None:
    """Forget the workers whose processes were forgotten."""
    found = await connection.execute(_WORKERS_OF_NOBODY)
    for (worker,) in await found.fetchall():
        await unregister_worker(connection, worker)
