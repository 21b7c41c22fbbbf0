"""The run queue in the database."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.values import compact_json
from infloop.store.encoding.compression import pack
from infloop.store.encoding.records import QUEUE_COLUMNS, queue_entry
from infloop.store.encoding.values import replace_surrogates, to_json
from infloop.store.interfaces.queue import (
    KEPT_MS,
    Enqueued,
    QueuedRun,
    QueueEntry,
    QueueFull,
    Replayed,
    RunQueue,
)
from infloop.store.sqlite import creation
from infloop.store.sqlite.definitions import (
    drop_unused_definition,
    keep_definition,
    read_definition,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.run_log import NewRun
    from infloop.store.sqlite.access import Readers, Writer

_PRUNED_PER_PUT = 200

_NOTHING = pack(b"{}")


class SqliteQueue(RunQueue):
    """The queue of all processes of this machine that open the same database."""

    def __init__(self, writer: Writer, readers: Readers, output_cap: int) -> None:
        self._writer = writer
        self._readers = readers
        self._output_cap = output_cap

    async def put(
        self, run: QueuedRun, *, limit: int, definition: bytes = b""
    ) -> Enqueued | QueueFull | Replayed:
        work = partial(_put, run=run, limit=limit, definition=definition)
        return await self._writer.submit(work, patient=True)

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
        ids = None if only is None else json.dumps([*only])
        work = partial(_take, owner=owner, limit=limit, labels=json.dumps([*labels]), ids=ids)
        return await self._writer.submit(work)

    async def has_takeable(
        self, *, labels: Collection[str] = (), only: Collection[str] | None = None
    ) -> bool:
        ids = None if only is None else json.dumps([*only])
        return await self._readers.run(_has_takeable, json.dumps([*labels]), ids)

    async def start(
        self,
        entry_id: str,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded] = (),
        *,
        scope: JsonObject | None = None,
    ) -> int:
        work = partial(self._start, entry_id, run, (first, *rest), scope)
        return await self._writer.submit(work)

    async def start_ended(
        self,
        entry_id: str,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded],
        *,
        scope: JsonObject | None = None,
        labels: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> tuple[int, QueueEntry | None]:
        ids = None if only is None else json.dumps([*only])

        def work(connection: sqlite3.Connection) -> tuple[int, QueueEntry | None]:
            epoch = self._start(entry_id, run, (first, *rest), scope, connection)
            taken = _take(connection, run.owner, 1, json.dumps([*labels]), ids)
            return epoch, taken[0] if taken else None

        return await self._writer.submit(work)

    def _start(
        self,
        entry_id: str,
        run: NewRun,
        items: Sequence[Recorded],
        scope: JsonObject | None,
        connection: sqlite3.Connection,
    ) -> int:
        promised = _finish(connection, entry_id, run.owner)
        if promised != run.id:
            raise StoreError(f"the run of {entry_id!r} is {promised!r} and not {run.id!r}")
        return creation.create_run(connection, run, items, scope, self._output_cap)

    async def requeue(self, entry_id: str, owner: str) -> None:
        await self._writer.submit(partial(_requeue, entry_id=entry_id, owner=owner))

    async def hold_entry(self, entry_id: str, owner: str, reason: str) -> None:
        await self._writer.submit(
            partial(_hold_entry, entry_id=entry_id, owner=owner, reason=replace_surrogates(reason))
        )

    async def retry_held(self, *, only: Collection[str] | None = None) -> None:
        ids = None if only is None else json.dumps([*only])
        await self._writer.submit(partial(_retry_held, ids=ids))

    async def release_held(self, workflow_id: str, reason: str) -> None:
        row = (workflow_id, replace_surrogates(reason))
        await self._writer.submit(partial(_release_held, row=row))

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
        row = (owner, replace_surrogates(reason), since)
        await self._writer.submit(partial(_hold, row=row))

    async def release(self, owner: str) -> None:
        await self._writer.submit(partial(_release, owner=owner))

    async def owners(self) -> list[str]:
        return await self._readers.run(_read_owners)

    async def requeue_all(self, owner: str) -> int:
        return await self._writer.submit(partial(_requeue_all, owner=owner))


# -- adding ----------------------------------------------------------------------------------------


# One statement, because each one releases the interpreter lock: up to 0.15 ms under load. A missing
# key or fingerprint is NULL in the table, so an empty one finds nothing.
_LOOK = """
SELECT
    (SELECT json_array(id, run, first_position) FROM queued WHERE idempotency_key = :key
        AND (queued_at >= :oldest OR state IN ('waiting', 'taken')) LIMIT 1),
    (SELECT id FROM queued WHERE fingerprint = :fingerprint
        AND (queued_at >= :oldest OR state IN ('waiting', 'taken')) LIMIT 1),
    EXISTS (SELECT 1 FROM queued WHERE queued_at < :oldest
        AND state NOT IN ('waiting', 'taken')),
    EXISTS (SELECT 1 FROM definition WHERE hash = :definition),
    count(*),
    count(*) FILTER (WHERE state = 'waiting' AND held = 0 AND priority >= :priority)
FROM queued WHERE state IN ('waiting', 'taken')
"""


def _put(
    connection: sqlite3.Connection, run: QueuedRun, limit: int, definition: bytes
) -> Enqueued | QueueFull | Replayed:
    oldest_kept = run.queued_at - KEPT_MS
    first_answer, replayed, has_old, has_definition, inside, ahead = connection.execute(
        _LOOK,
        {
            "key": replace_surrogates(run.idempotency_key),
            "fingerprint": replace_surrogates(run.fingerprint),
            "oldest": oldest_kept,
            "definition": run.definition,
            "priority": run.priority,
        },
    ).fetchone()
    if has_old:
        _prune(connection, oldest_kept)
    if first_answer is not None:
        entry_id, run_id, first_position = json.loads(first_answer)
        return Enqueued(entry_id, run_id, first_position, repeated=True)
    if replayed is not None:
        return Replayed(replayed)
    if inside >= limit:
        return QueueFull(limit)
    if run.definition and not has_definition:
        keep_definition(connection, run.definition, definition)
    position = ahead + 1
    _insert(connection, run, position)
    return Enqueued(run.id, run.run_id, position)


def _prune(connection: sqlite3.Connection, before: int) -> None:
    """Delete some entries that have left the queue and were added before `before`."""
    connection.execute(
        "DELETE FROM queued WHERE key IN (SELECT key FROM queued WHERE queued_at < ?"
        " AND state NOT IN ('waiting', 'taken') LIMIT ?)",
        (before, _PRUNED_PER_PUT),
    )


def _insert(connection: sqlite3.Connection, run: QueuedRun, position: int) -> None:
    try:
        connection.execute(
            "INSERT INTO queued (id, run, workflow, correlation_id, cause, priority,"
            " idempotency_key, fingerprint, queued_at, first_position, requires, max_concurrent,"
            " definition, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run.id,
                run.run_id,
                run.workflow_id,
                run.correlation_id,
                compact_json(run.cause),
                run.priority,
                replace_surrogates(run.idempotency_key) or None,
                replace_surrogates(run.fingerprint) or None,
                run.queued_at,
                position,
                json.dumps(run.requires),
                run.max_concurrent,
                run.definition or None,
                pack(to_json({"inputs": run.inputs, "extra": run.extra})),
            ),
        )
    except sqlite3.IntegrityError as error:
        raise StoreError(
            f"{run.id!r} or its run {run.run_id!r} was already in the queue; "
            "every entry needs ids of its own"
        ) from error


# -- taking ----------------------------------------------------------------------------------------


def _take(
    connection: sqlite3.Connection,
    owner: str,
    limit: int,
    labels: str,
    ids: str | None,
) -> list[QueueEntry]:
    taken: list[QueueEntry] = []
    full: list[str] = []
    if connection.execute("SELECT 1 FROM queue_hold WHERE owner = ?", (owner,)).fetchone():
        return taken
    is_complete = False
    while not is_complete:
        is_complete = True
        for row in _next(connection, limit - len(taken), full, labels, ids):
            entry = queue_entry(row, 0)
            run = entry.run
            if run.max_concurrent and _live(connection, run.workflow_id) >= run.max_concurrent:
                full.append(run.workflow_id)
                is_complete = False  # entries of other workflows take the places
                continue
            connection.execute(
                "UPDATE queued SET state = 'taken', owner = ? WHERE key = ?", (owner, row[-1])
            )
            taken.append(replace(entry, state="taken", owner=owner))
    return taken


def _has_takeable(connection: sqlite3.Connection, labels: str, ids: str | None) -> bool:
    full: list[str] = []
    while rows := _next(connection, 1, full, labels, ids):
        run = queue_entry(rows[0], 0).run
        if not run.max_concurrent or _live(connection, run.workflow_id) < run.max_concurrent:
            return True
        full.append(run.workflow_id)
    return False


def _next(
    connection: sqlite3.Connection, limit: int, full: list[str], labels: str, ids: str | None
) -> list[tuple[Any, ...]]:
    """Return the next entries for a process with these labels, none of the workflows in `full`."""
    rows: list[tuple[Any, ...]] = connection.execute(
        f"SELECT {QUEUE_COLUMNS} FROM queued WHERE state = 'waiting' AND held = 0"  # noqa: S608  (constants)
        " AND workflow NOT IN (SELECT value FROM json_each(?1))"
        " AND (requires = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(requires)"
        "  WHERE value NOT IN (SELECT value FROM json_each(?2))))"
        " AND (?3 IS NULL OR id IN (SELECT value FROM json_each(?3)))"
        " ORDER BY priority DESC, key LIMIT ?4",
        (json.dumps(full), labels, ids, limit),
    ).fetchall()
    return rows


def _live(connection: sqlite3.Connection, workflow: str) -> int:
    """Return how many runs of a workflow are live or about to start, in all processes."""
    (count,) = connection.execute(
        "SELECT (SELECT count(*) FROM run WHERE status = 'running' AND workflow_id = ?1)"
        " + (SELECT count(*) FROM queued WHERE state = 'taken' AND workflow = ?1)",
        (workflow,),
    ).fetchone()
    return int(count)


def _finish(connection: sqlite3.Connection, entry_id: str, owner: str) -> str:
    """End an entry that `owner` took and that becomes a run; return the id of the run."""
    finished = connection.execute(
        "UPDATE queued SET state = 'started', reason = '', body = ?, definition = NULL"
        " WHERE id = ? AND state = 'taken' AND owner = ? RETURNING run",
        (_NOTHING, entry_id, owner),
    ).fetchall()
    if not finished:
        raise _not_taken(entry_id, owner)
    return str(finished[0][0])


def _requeue(connection: sqlite3.Connection, entry_id: str, owner: str) -> None:
    requeued = connection.execute(
        "UPDATE queued SET state = 'waiting', owner = ''"
        " WHERE id = ? AND state = 'taken' AND owner = ?",
        (entry_id, owner),
    ).rowcount
    if not requeued:
        raise _not_taken(entry_id, owner)


def _hold_entry(connection: sqlite3.Connection, entry_id: str, owner: str, reason: str) -> None:
    held = connection.execute(
        "UPDATE queued SET state = 'waiting', owner = '', held = 1, reason = ?"
        " WHERE id = ? AND state = 'taken' AND owner = ?",
        (reason, entry_id, owner),
    ).rowcount
    if not held:
        raise _not_taken(entry_id, owner)


def _retry_held(connection: sqlite3.Connection, ids: str | None) -> None:
    """Release the oldest held entry of each workflow and reason; `ids` is a JSON list."""
    connection.execute(
        "UPDATE queued SET held = 0 WHERE key IN (SELECT min(key) FROM queued"
        " WHERE state = 'waiting' AND held = 1"
        " AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1)))"
        " GROUP BY workflow, reason)",
        (ids,),
    )


def _release_held(connection: sqlite3.Connection, row: tuple[str, str]) -> None:
    connection.execute(
        "UPDATE queued SET held = 0"
        " WHERE state = 'waiting' AND held = 1 AND workflow = ? AND reason = ?",
        row,
    )


def _not_taken(entry_id: str, owner: str) -> Fenced:
    return Fenced(f"{owner!r} has not taken {entry_id!r} from the queue, so it must not use it")


def _remove(connection: sqlite3.Connection, entry_id: str) -> bool:
    definition = _definition_of(connection, entry_id)
    removed = connection.execute(
        "UPDATE queued SET state = 'removed', body = ?, definition = NULL"
        " WHERE id = ? AND state = 'waiting'",
        (_NOTHING, entry_id),
    ).rowcount
    drop_unused_definition(connection, definition)
    return removed > 0


def _definition_of(connection: sqlite3.Connection, entry_id: str) -> str:
    row = connection.execute("SELECT definition FROM queued WHERE id = ?", (entry_id,)).fetchone()
    return str(row[0]) if row and row[0] else ""


def _withdraw(connection: sqlite3.Connection, entry_id: str) -> bool:
    definition = _definition_of(connection, entry_id)
    withdrawn = connection.execute(
        "DELETE FROM queued WHERE id = ? AND state IN ('waiting', 'taken')", (entry_id,)
    ).rowcount
    drop_unused_definition(connection, definition)
    return withdrawn > 0


# -- owners ----------------------------------------------------------------------------------------


def _hold(connection: sqlite3.Connection, row: tuple[str, str, int]) -> None:
    connection.execute("INSERT OR REPLACE INTO queue_hold VALUES (?, ?, ?)", row)


def _release(connection: sqlite3.Connection, owner: str) -> None:
    connection.execute("DELETE FROM queue_hold WHERE owner = ?", (owner,))


def _requeue_all(connection: sqlite3.Connection, owner: str) -> int:
    _release(connection, owner)
    return connection.execute(
        "UPDATE queued SET state = 'waiting', owner = '' WHERE state = 'taken' AND owner = ?",
        (owner,),
    ).rowcount


def _read_owners(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT owner FROM queued WHERE state = 'taken' UNION SELECT owner FROM queue_hold"
    )
    return [owner for (owner,) in rows]


# -- reading ---------------------------------------------------------------------------------------


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute(
        "SELECT count(*) FROM queued WHERE state IN ('waiting', 'taken')"
    ).fetchone()
    return int(count)


def _position(connection: sqlite3.Connection, priority: int, key: int) -> int:
    (position,) = connection.execute(
        "SELECT count(*) FROM queued WHERE state = 'waiting' AND held = 0"
        " AND (priority > ?1 OR (priority = ?1 AND key <= ?2))",
        (priority, key),
    ).fetchone()
    return int(position)


def _read_entry(connection: sqlite3.Connection, entry_id: str) -> QueueEntry:
    row = connection.execute(
        f"SELECT {QUEUE_COLUMNS} FROM queued WHERE id = ?",  # noqa: S608  (constants)
        (entry_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no queue entry {entry_id!r}; it may have left the queue days ago")
    entry = queue_entry(row, 0)
    if entry.state != "waiting" or entry.held:
        return entry
    return queue_entry(row, _position(connection, entry.run.priority, row[-1]))


def _read_entries(connection: sqlite3.Connection, limit: int) -> list[QueueEntry]:
    rows = connection.execute(
        f"SELECT {QUEUE_COLUMNS} FROM queued WHERE state IN ('waiting', 'taken')"  # noqa: S608  (constants)
        " ORDER BY state, held, priority DESC, key LIMIT ?",
        (limit,),
    ).fetchall()
    found = [queue_entry(row, 0) for row in rows]
    positions = count(1)
    return [
        replace(entry, position=next(positions))
        if entry.state == "waiting" and not entry.held
        else entry
        for entry in found
    ]
