"""The run queue in the database.

Whoever adds an entry takes a lock until that is committed, so that the limit and the idempotency
keys hold between processes.

Whoever takes entries passes over those that another process is just taking (`SKIP LOCKED`), so
takers do not wait for each other. The runs of a workflow that is limited are counted, and between
counting and taking nobody else may take one. So when such an entry is among the next, nothing is
taken, and the taker tries again with the lock.
"""

from __future__ import annotations

from collections import Counter
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

_PRIORITY, _KEY = 5, -1  # in QUEUE_COLUMNS

# The earlier answer, if there is one, and how many entries there are.
_LOOK = """
SELECT
    (SELECT array[id, run, first_position::text] FROM queued
        WHERE %(key)s <> '' AND idempotency_key = %(key)s
        AND (queued_at >= %(oldest)s OR state IN ('waiting', 'taken')) LIMIT 1),
    (SELECT id FROM queued WHERE %(fingerprint)s <> '' AND fingerprint = %(fingerprint)s
        AND (queued_at >= %(oldest)s OR state IN ('waiting', 'taken')) LIMIT 1),
    (SELECT count(*) FROM queued WHERE state = 'waiting'),
    (SELECT count(*) FROM queued WHERE state = 'taken'),
    (SELECT count(*) FROM queued WHERE state = 'waiting' AND (held OR priority < %(priority)s))
"""

_TAKEABLE = """
state = 'waiting' AND NOT held
    AND (requires = '[]' OR NOT EXISTS (SELECT 1 FROM json_array_elements_text(requires::json) AS it
        WHERE it <> ALL(%(labels)s::text[])))
    AND (%(only)s::text[] IS NULL OR id = ANY(%(only)s))
"""

_NOT_ON_HOLD = "NOT EXISTS (SELECT 1 FROM queue_hold WHERE owner = %(owner)s)"

_LIVE = """
(SELECT count(*) FROM run WHERE status = 'running' AND workflow_id = queued.workflow)
    + (SELECT count(*) FROM queued AS other
        WHERE other.state = 'taken' AND other.workflow = queued.workflow)
"""

# Takes the next entries, if no workflow of theirs is limited. The first row says whether one is.
_TAKE_UNLIMITED = f"""
WITH next AS MATERIALIZED (
    SELECT key, max_concurrent > 0 OR EXISTS (SELECT 1 FROM queued AS other WHERE state = 'waiting'
        AND max_concurrent > 0 AND other.workflow = queued.workflow) AS limited
    FROM queued WHERE {_TAKEABLE} AND {_NOT_ON_HOLD}
    ORDER BY priority DESC, key LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE queued SET state = 'taken', owner = %(owner)s
    WHERE key IN (SELECT key FROM next) AND NOT EXISTS (SELECT 1 FROM next WHERE limited)
    RETURNING {QUEUE_COLUMNS}
)
SELECT EXISTS (SELECT 1 FROM next WHERE limited), taken.*
FROM (SELECT) AS one_row LEFT JOIN taken ON true
""".encode()  # noqa: S608  (constants)

# The next entries, each with the live runs of its workflow if that is limited.
_NEXT = f"""
SELECT CASE WHEN max_concurrent = 0 THEN 0 ELSE {_LIVE} END, {QUEUE_COLUMNS}
FROM queued WHERE {_TAKEABLE} AND {_NOT_ON_HOLD} AND workflow <> ALL(%(full)s::text[])
ORDER BY priority DESC, key LIMIT %(limit)s FOR UPDATE
""".encode()  # noqa: S608  (constants)

_HAS_TAKEABLE = f"""
SELECT EXISTS (SELECT 1 FROM queued WHERE max_concurrent = 0 AND {_TAKEABLE}) OR EXISTS (
    SELECT 1 FROM (SELECT DISTINCT workflow, max_concurrent FROM queued
        WHERE max_concurrent > 0 AND {_TAKEABLE}) AS queued
    WHERE max_concurrent > {_LIVE})
""".encode()  # noqa: S608  (constants)


class PostgresqlQueue(RunQueue):
    """The queue of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def put(
        self, run: QueuedRun, *, limit: int, definition: bytes = b""
    ) -> Enqueued | QueueFull | Replayed:
        work = partial(_put, run=run, limit=limit, definition=definition)
        answer = await self._writer.submit(work, lock="queue")
        if isinstance(answer, Enqueued) and not answer.repeated:
            self._writer.announce(QUEUE)
        return answer

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
        values = {"owner": owner, "limit": limit, **_choice(labels, only)}
        taken = await self._writer.submit(partial(_take_unlimited, values=values))
        if taken is None:
            taken = await self._writer.submit(partial(_take, values=values), lock="queue")
        return taken

    async def has_takeable(
        self, *, labels: Collection[str] = (), only: Collection[str] | None = None
    ) -> bool:
        return await self._readers.run(_has_takeable, _choice(labels, only))

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
        self._announce_some(await self._writer.submit(partial(_retry_held, only=only)))

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
    first_answer, replayed, waiting, taken, behind = row
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
    await _insert(connection, run, position)
    return Enqueued(run.id, run.run_id, position)


async def _prune(connection: Connection, before: int) -> None:
    """Delete some entries that have left the queue and were added before `before`."""
    await connection.execute(
        "DELETE FROM queued WHERE key IN (SELECT key FROM queued WHERE queued_at < %s"
        " AND state NOT IN ('waiting', 'taken') LIMIT %s)",
        (before, _PRUNED_PER_PUT),
    )


async def _insert(connection: Connection, run: QueuedRun, position: int) -> None:
    try:
        await connection.execute(
            "INSERT INTO queued (id, run, workflow, correlation_id, cause, priority,"
            " idempotency_key, fingerprint, queued_at, first_position, requires, max_concurrent,"
            " definition, body)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
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
            ),
        )
    except psycopg.errors.UniqueViolation as error:
        raise StoreError(
            f"{run.id!r} or its run {run.run_id!r} was already in the queue; "
            "every entry needs ids of its own"
        ) from error


# -- taking ----------------------------------------------------------------------------------------


_Values: TypeAlias = dict[str, Any]


def _choice(labels: Collection[str], only: Collection[str] | None) -> _Values:
    return {"labels": [*labels], "only": None if only is None else [*only]}


async def _take_unlimited(connection: Connection, values: _Values) -> list[QueueEntry] | None:
    """Take the next entries; None if a workflow of theirs is limited, and nothing was taken."""
    cursor = await connection.execute(_TAKE_UNLIMITED, values, binary=True)
    rows = await cursor.fetchall()
    if rows[0][0]:
        return None
    found = [row[1:] for row in rows if row[-1] is not None]
    found.sort(key=lambda row: (-row[_PRIORITY], row[_KEY]))
    return [queue_entry(row, 0) for row in found]


async def _take(connection: Connection, values: _Values) -> list[QueueEntry]:
    """Take the next entries, as far as their workflows are not full."""
    full: list[str] = []
    taken: list[QueueEntry] = []
    while left := values["limit"] - len(taken):
        # What is full is found one workflow at a time: passing over it makes room for others.
        cursor = await connection.execute(
            _NEXT, {**values, "full": full, "limit": left}, binary=True
        )
        rows = await cursor.fetchall()
        live: Counter[str] = Counter()
        chosen: list[QueueEntry] = []
        for before, *row in rows:
            entry = queue_entry(row, 0)
            name, most = entry.run.workflow_id, entry.run.max_concurrent
            if name in full or (most and before + live[name] >= most):
                full.append(name)
                continue
            live[name] += 1
            chosen.append(replace(entry, state="taken", owner=values["owner"]))
        await connection.execute(
            "UPDATE queued SET state = 'taken', owner = %s WHERE id = ANY(%s)",
            (values["owner"], [entry.run.id for entry in chosen]),
        )
        taken += chosen
        if len(chosen) == len(rows):  # nothing was passed over: there is no more
            break
    return taken


async def _has_takeable(connection: Connection, values: _Values) -> bool:
    row = await (await connection.execute(_HAS_TAKEABLE, values)).fetchone()
    return row == (True,)


async def _finish(connection: Connection, entry_id: str, owner: str) -> str:
    """End an entry that `owner` took and that becomes a run; return the id of the run."""
    finished = await connection.execute(
        "UPDATE queued SET state = 'started', reason = '', body = %s, definition = NULL"
        " WHERE id = %s AND state = 'taken' AND owner = %s RETURNING run",
        (_NOTHING, entry_id, owner),
    )
    row = await finished.fetchone()
    if row is None:
        raise _not_taken(entry_id, owner)
    return str(row[0])


async def _requeue(connection: Connection, entry_id: str, owner: str) -> None:
    requeued = await connection.execute(
        "UPDATE queued SET state = 'waiting', owner = ''"
        " WHERE id = %s AND state = 'taken' AND owner = %s",
        (entry_id, owner),
    )
    if not requeued.rowcount:
        raise _not_taken(entry_id, owner)


async def _hold_entry(connection: Connection, entry_id: str, owner: str, reason: str) -> None:
    held = await connection.execute(
        "UPDATE queued SET state = 'waiting', owner = '', held = true, reason = %s"
        " WHERE id = %s AND state = 'taken' AND owner = %s",
        (reason, entry_id, owner),
    )
    if not held.rowcount:
        raise _not_taken(entry_id, owner)


async def _retry_held(connection: Connection, only: Collection[str] | None) -> int:
    """Release the oldest held entry of each workflow and reason; return how many."""
    released = await connection.execute(
        "UPDATE queued SET held = false WHERE key IN (SELECT min(key) FROM queued"
        " WHERE state = 'waiting' AND held"
        " AND (%(only)s::text[] IS NULL OR id = ANY(%(only)s)) GROUP BY workflow, reason)",
        {"only": None if only is None else [*only]},
    )
    return released.rowcount


async def _release_held(connection: Connection, row: tuple[str, str]) -> int:
    released = await connection.execute(
        "UPDATE queued SET held = false"
        " WHERE state = 'waiting' AND held AND workflow = %s AND reason = %s",
        row,
    )
    return released.rowcount


def _not_taken(entry_id: str, owner: str) -> Fenced:
    return Fenced(f"{owner!r} has not taken {entry_id!r} from the queue, so it must not use it")


async def _remove(connection: Connection, entry_id: str) -> bool:
    definition = await _definition_of(connection, entry_id)
    removed = await connection.execute(
        "UPDATE queued SET state = 'removed', body = %s, definition = NULL"
        " WHERE id = %s AND state = 'waiting'",
        (_NOTHING, entry_id),
    )
    await drop_unused_definition(connection, definition)
    return removed.rowcount > 0


async def _definition_of(connection: Connection, entry_id: str) -> str:
    found = await connection.execute("SELECT definition FROM queued WHERE id = %s", (entry_id,))
    row = await found.fetchone()
    return str(row[0]) if row and row[0] else ""


async def _withdraw(connection: Connection, entry_id: str) -> bool:
    definition = await _definition_of(connection, entry_id)
    withdrawn = await connection.execute(
        "DELETE FROM queued WHERE id = %s AND state IN ('waiting', 'taken')", (entry_id,)
    )
    await drop_unused_definition(connection, definition)
    return withdrawn.rowcount > 0


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
        "UPDATE queued SET state = 'waiting', owner = '' WHERE state = 'taken' AND owner = %s",
        (owner,),
    )
    return requeued.rowcount


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
