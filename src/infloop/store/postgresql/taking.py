"""Takes entries from the queue.

Takers do not wait for each other: `fetch_job` passes over what another process is just taking. The
runs of a workflow that is limited are counted, and between counting and taking nobody else may take
one. That needs the lock of the queue; while another process has it, such workflows are passed over.
A taker waits for the lock if there was nothing else, or if it passed over one the last time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.store.encoding.records import QUEUE_COLUMNS, queue_entry
from infloop.store.postgresql.jobs import (
    FetchedJob,
    fetch_job,
    finish_job,
    give_jobs,
)
from infloop.store.postgresql.writer import LOCKS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.store.interfaces.queue import QueueEntry
    from infloop.store.postgresql.connections import Connection

_FREE = """
SELECT queue, requires, workflow, max_concurrent FROM queued WHERE state = 'waiting' AND NOT held
    AND (%(only)s::text[] IS NULL OR id = ANY(%(only)s))
"""

# The queues of the entries that wait, each with what its entries have in common, and the live runs
# of its workflow if that is limited. It skips from one queue to the next, however long they are.
# Entries that have no job yet are in the queue without a name.
_QUEUES = f"""
WITH RECURSIVE queued_in AS (
    ({_FREE} ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.* FROM queued_in, LATERAL (
        {_FREE} AND queue > queued_in.queue ORDER BY queue LIMIT 1
    ) AS next
)
SELECT queue, requires, workflow, max_concurrent, CASE WHEN max_concurrent = 0 THEN 0 ELSE
    (SELECT count(*) FROM run WHERE status = 'running' AND workflow_id = queued_in.workflow)
    + (SELECT count(*) FROM queued WHERE state = 'taken' AND workflow = queued_in.workflow) END,
    (SELECT worker FROM instance WHERE id = %(owner)s)
FROM queued_in
WHERE NOT EXISTS (SELECT 1 FROM queue_hold WHERE owner = %(owner)s)
""".encode()  # noqa: S608  (constants)

_TAKE = f"""
UPDATE queued SET state = 'taken', owner = %(owner)s
WHERE id = ANY(%(entries)s) AND job = ANY(%(jobs)s) AND state = 'waiting' AND NOT held
RETURNING {QUEUE_COLUMNS}
""".encode()  # noqa: S608  (constants)


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
    cursor = await connection.execute(_QUEUES, values, binary=True)
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
        fetched = await _fetch(connection, queues, choice.only, left, live)
        taken += await _mark_taken(connection, fetched, choice.owner)
        if len(fetched) < left:
            break
    return taken


async def _fetch(
    connection: Connection,
    queues: Sequence[_Queue],
    only: list[str] | None,
    limit: int,
    live: Counter[str],
) -> list[FetchedJob]:
    """Fetch the next jobs of these queues, and count them."""
    fetched: list[FetchedJob] = []
    while len(fetched) < limit:
        known = {queue.name: queue for queue in queues if queue.has_room(live[queue.workflow])}
        if not known:
            break
        job = await fetch_job(connection, [*known], queues[0].worker, only)
        if job is None:
            break
        fetched.append(job)
        if known[job.queue].most:
            live[known[job.queue].workflow] += 1
    return fetched


async def _mark_taken(
    connection: Connection, jobs: Sequence[FetchedJob], owner: str
) -> list[QueueEntry]:
    """Give the entries of jobs to their new owner; delete the jobs of entries that do not wait.

    Only a process of a version without jobs leaves such.
    """
    if not jobs:
        return []
    names, numbers = [job.entry_id for job in jobs], [job.id for job in jobs]
    values = {"owner": owner, "entries": names, "jobs": numbers}
    cursor = await connection.execute(_TAKE, values, binary=True)
    taken = {row[0]: queue_entry(row, 0) for row in await cursor.fetchall()}
    gone = [job for job in jobs if job.entry_id not in taken]
    for job in gone:
        await finish_job(connection, job.id)
        await connection.execute(
            "UPDATE queued SET job = NULL, queue = '' WHERE id = %s AND job = %s",
            (job.entry_id, job.id),
        )
    return [taken[name] for name in names if name in taken]


async def has_takeable(connection: Connection, choice: Choice) -> bool:
    """Say whether there is an entry to take; one without a job may be."""
    queues = await _queues(connection, choice)
    return any(not queue.name for queue in queues) or bool(_open_queues(queues, choice))
