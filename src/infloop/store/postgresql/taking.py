"""Takes entries from the queue.

Takers do not wait for each other: Procrastinate passes over what another process is just taking.
The runs of a workflow that is limited are counted, and between counting and taking nobody else may
take one. That needs the lock of the queue; while another process has it, such workflows are passed
over. A taker waits for the lock if there was nothing else, or if it passed over one the last time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from infloop.store.encoding.records import QUEUE_COLUMNS, queue_entry
from infloop.store.postgresql.jobs import (
    FETCH,
    FETCH_ONLY,
    finish_job,
    give_jobs,
)
from infloop.store.postgresql.writer import LOCKS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.store.interfaces.queue import QueueEntry
    from infloop.store.postgresql.connections import Connection

_ONLY = "AND id = ANY(%(only)s)"


def _queues_sql(only: str) -> bytes:
    """Return the statement that finds the queues of the entries that wait.

    It answers what the entries of each queue have in common, and the live runs of its workflow if
    that is limited. It skips from one queue to the next, however long they are. Entries that have
    no job yet are in the queue without a name.
    """
    free = f"""
    SELECT queue, requires, workflow, max_concurrent FROM queued
    WHERE state = 'waiting' AND NOT held {only}
    """  # noqa: S608  (constants)
    return f"""
WITH RECURSIVE queued_in AS (
    ({free} ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.* FROM queued_in, LATERAL (
        {free} AND queue > queued_in.queue ORDER BY queue LIMIT 1
    ) AS next
)
SELECT queue, requires, workflow, max_concurrent, CASE WHEN max_concurrent = 0 THEN 0 ELSE
    (SELECT count(*) FROM run WHERE status = 'running' AND workflow_id = queued_in.workflow)
    + (SELECT count(*) FROM queued WHERE state = 'taken' AND workflow = queued_in.workflow) END,
    (SELECT worker FROM instance WHERE id = %(owner)s)
FROM queued_in
WHERE NOT EXISTS (SELECT 1 FROM queue_hold WHERE owner = %(owner)s)
""".encode()  # noqa: S608  (constants)


def _take_sql(fetch: str) -> bytes:
    """Return the statement that fetches jobs and gives their entries to a new owner."""
    return f"""
WITH RECURSIVE fetched AS ({fetch}), known AS (
    SELECT (job).id AS job_id, (job).priority AS job_priority, (job).queue_name AS job_queue,
        (job).args ->> 'entry' AS entry FROM fetched WHERE (job).id IS NOT NULL
), taken AS (
    UPDATE queued SET state = 'taken', owner = %(owner)s FROM known
    WHERE id = entry AND job = job_id AND state = 'waiting' AND NOT held
    RETURNING {QUEUE_COLUMNS}
)
SELECT job_id, job_queue, entry, taken.* FROM known LEFT JOIN taken ON taken.id = entry
ORDER BY job_priority DESC, job_id
""".encode()  # noqa: S608  (constants)


_QUEUES, _QUEUES_ONLY = _queues_sql(""), _queues_sql(_ONLY)
_TAKE, _TAKE_ONLY = _take_sql(FETCH), _take_sql(FETCH_ONLY)


class _Queue(NamedTuple):
    """A queue in which entries wait; `most` runs of its workflow may be live, 0 is no limit."""

    name: str
    requires: str
    workflow: str
    most: int
    live: int
    worker: int | None  # of the process that asks

    def fits(self, labels: Collection[str]) -> bool:
        return {*msgspec.json.decode(self.requires, type=list[str])} <= {*labels}

    def has_room(self, taken: int = 0) -> bool:
        return not self.most or self.live + taken < self.most


class Choice(NamedTuple):
    """Who takes how many entries, and which."""

    owner: str
    limit: int
    labels: list[str]
    only: list[str] | None


async def take(
    connection: Connection, choice: Choice, *, is_locked: bool = False
) -> tuple[list[QueueEntry], bool]:
    """Take the next entries; say whether limited workflows were passed over for want of the lock.

    The lock is never waited for here: this transaction may have locked rows.
    """
    queues = await _queues(connection, choice)
    if any(not queue.name for queue in queues):
        await give_jobs(connection)
        queues = await _queues(connection, choice)
    queues = _open_queues(queues, choice)
    if not any(queue.most for queue in queues):
        return await _take_from(connection, queues, choice), False
    if is_locked or await _try_lock(connection):
        if not is_locked:  # counted again: another process may have taken some until now
            queues = _open_queues(await _queues(connection, choice), choice)
        return await _take_from(connection, queues, choice), False
    unlimited = [queue for queue in queues if not queue.most]
    return await _take_from(connection, unlimited, choice), True


async def _queues(connection: Connection, choice: Choice) -> list[_Queue]:
    """Return the queues in which entries wait."""
    values = {"owner": choice.owner, "only": choice.only}
    sql = _QUEUES if choice.only is None else _QUEUES_ONLY
    cursor = await connection.execute(sql, values, binary=True)
    return [_Queue(*row) for row in await cursor.fetchall()]


def _open_queues(queues: Sequence[_Queue], choice: Choice) -> list[_Queue]:
    """Return the queues from which a process may take now."""
    return [
        queue for queue in queues if queue.name and queue.fits(choice.labels) and queue.has_room()
    ]


async def _try_lock(connection: Connection) -> bool:
    cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (LOCKS["queue"],))
    return await cursor.fetchone() == (True,)


async def _take_from(
    connection: Connection, queues: Sequence[_Queue], choice: Choice
) -> list[QueueEntry]:
    """Take the next entries of these queues, as far as their workflows have room."""
    live: Counter[str] = Counter()  # of limited workflows, since they were counted
    taken: list[QueueEntry] = []
    while left := choice.limit - len(taken):
        known = {queue.name: queue for queue in queues if queue.has_room(live[queue.workflow])}
        if not known:
            break
        # Whether there is room for the next entry of a limited workflow depends on this one.
        number = 1 if any(queue.most for queue in known.values()) else left
        rows = await _fetch(connection, [*known], queues[0].worker, choice, number)
        for job, queue, entry_id, *row in rows:
            if row[0] is None:
                await _forget(connection, job, entry_id)
                continue
            taken.append(queue_entry(row, 0))
            if known[queue].most:
                live[known[queue].workflow] += 1
        if len(rows) < number:
            break
    return taken


async def _fetch(
    connection: Connection, queues: list[str], worker: int | None, choice: Choice, limit: int
) -> list[tuple[Any, ...]]:
    """Fetch the next jobs of these queues; return them with those of their entries that waited."""
    values = {
        "queues": queues,
        "worker": worker,
        "limit": limit,
        "owner": choice.owner,
        "only": choice.only,
    }
    sql = _TAKE if choice.only is None else _TAKE_ONLY
    return await (await connection.execute(sql, values, binary=True)).fetchall()


async def _forget(connection: Connection, job: int, entry_id: str) -> None:
    """Delete a job whose entry does not wait: a process of a version without jobs has it."""
    await finish_job(connection, job)
    await connection.execute(
        "UPDATE queued SET job = NULL, queue = '' WHERE id = %s AND job = %s", (entry_id, job)
    )


async def has_takeable(connection: Connection, choice: Choice) -> bool:
    """Say whether there is an entry to take; one without a job may be."""
    queues = await _queues(connection, choice)
    return any(not queue.name for queue in queues) or bool(_open_queues(queues, choice))
