"""One task, one connection, group commit.

While one transaction is being committed, further work gathers and becomes the next transaction. The
appends of a group that follow each other are one statement (see `append`), and a group of appends
alone is nothing else: one message to the server and one back.

When work in a transaction fails, the transaction is rolled back and each piece of work is repeated
in a transaction of its own, so that only the failing one fails.

When the connection is lost, it is opened again, and

- a transaction whose COMMIT was not sent did not happen, and is repeated;
- if COMMIT was sent, the database is asked what became of the transaction (`commit_marks`);
- a statement of appends is repeated: it stores nothing twice, because a run's sequence only grows.
  An append that the run already has was committed the first time.

Locks between processes (`LOCKS`) are taken at the beginning of a transaction, in one order, so that
two groups never wait for each other.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
import psycopg

from infloop.store.encoding.appends import FailedAppends
from infloop.store.interfaces.changes import QUEUE
from infloop.store.postgresql import append
from infloop.store.postgresql.append import Append, Group
from infloop.store.postgresql.commit_marks import CommitMarks
from infloop.store.postgresql.connections import (
    PATIENCE_SECONDS,
    Unreachable,
    close_quietly,
    closed,
)
from infloop.store.postgresql.errors import is_lost, store_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from infloop.store.postgresql.changes import PostgresqlChanges
    from infloop.store.postgresql.connections import Connection, Database

T = TypeVar("T")
Work: TypeAlias = "Callable[[Connection], Awaitable[T]]"

Lock: TypeAlias = Literal["queue", "caps"]
LOCKS: dict[Lock, int] = {"queue": 0x696E66_01, "caps": 0x696E66_02}
"""Advisory locks: adding to the queue, and reserving money under a cap."""

_TRANSIENT = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.ForeignKeyViolation,
)
"""Another process did something at the same moment; the same work succeeds when repeated."""

_ATTEMPTS = 5

DEFER_SECONDS = 0.05
MOST_JOBS = 500
"""How many pieces of work one transaction has at most."""


class _Job(msgspec.Struct):
    task: Callable[[Connection], Awaitable[Any]] | Append
    future: asyncio.Future[Any]
    lock: Lock | None = None


_Outcome: TypeAlias = tuple[_Job, Any, Exception | None]


class Writer:
    """Runs work on the writing connection, in the order in which it was submitted.

    `changes` is told what was committed. `output_cap` is the limit of a run's stored output.
    """

    def __init__(
        self,
        database: Database,
        connection: Connection,
        changes: PostgresqlChanges,
        output_cap: int,
    ) -> None:
        self.output_cap = output_cap
        self.failed_appends = FailedAppends()
        self._database = database
        self._connection: Connection | None = connection
        self._changes = changes
        self._marks = CommitMarks()
        self._queue_waits = False
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._collect_deferred: Callable[[], Work[None]] | None = None
        self._deferred_is_urgent = False
        self._defer_timer: asyncio.TimerHandle | None = None
        self._last_deferred: asyncio.Future[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._serve(), name="postgresql-writer")

    def submit(
        self,
        work: Callable[[Connection], Awaitable[T]],
        *,
        lock: Lock | None = None,
    ) -> asyncio.Future[T]:
        """Queue `work`; the future has its result once that is committed.

        Work may be called several times, each but the last in a transaction that is rolled back.
        """
        return self._put(_Job(work, self._loop.create_future(), lock))

    def announce(self, *subjects: str, run_id: str = "") -> None:
        """Tell the other processes that something was committed about subjects, or about a run."""
        self._changes.committed(subjects, [run_id] if run_id else [])

    def append(self, items: Append) -> asyncio.Future[None]:
        """Queue an append."""
        return self._put(_Job(items, self._loop.create_future()))

    def _put(self, job: _Job) -> asyncio.Future[Any]:
        if self._closed:
            raise closed(self._database.shown)
        if self._deferred_is_urgent:
            self._submit_deferred()
        self._jobs.append(job)
        self._wake.set()
        return job.future

    # -- deferred work -------------------------------------------------------------------------

    def defer(self, collect: Callable[[], Work[None]], *, urgent: bool) -> None:
        """Run the work that `collect` returns within `DEFER_SECONDS`; a failure is ignored.

        Urgent work joins the next transaction, if that comes first.
        """
        if self._closed:
            raise closed(self._database.shown)
        self._collect_deferred = collect
        self._deferred_is_urgent = self._deferred_is_urgent or urgent
        if self._defer_timer is None:
            self._defer_timer = self._loop.call_later(DEFER_SECONDS, self._submit_deferred)

    async def flush_deferred(self) -> None:
        """Commit the deferred work now, if there is any."""
        self._submit_deferred()
        if self._last_deferred is not None:
            await asyncio.shield(self._last_deferred)

    def _submit_deferred(self) -> None:
        if self._defer_timer is None or self._collect_deferred is None or self._closed:
            return
        self._defer_timer.cancel()
        self._defer_timer = None
        self._deferred_is_urgent = False
        self._last_deferred = self._put(_Job(self._collect_deferred(), self._loop.create_future()))

    async def close(self) -> None:
        """Commit what is queued, then close the connection."""
        if not self._closed:
            self._submit_deferred()
            self._closed = True
            self._wake.set()
        await asyncio.shield(self._task)

    # -- the writer's task -----------------------------------------------------------------------

    async def _serve(self) -> None:
        while self._jobs or not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._jobs:
                jobs, self._jobs = self._jobs[:MOST_JOBS], self._jobs[MOST_JOBS:]
                together = all(type(job.task) is Append for job in jobs)
                run = self._append_together if together else self._run_group
                self._resolve(await run(jobs))
        if self._connection is not None:
            with suppress(psycopg.Error):
                await self._marks.remove(self._connection)
        await close_quietly(self._connection)

    def _resolve(self, outcomes: Sequence[_Outcome]) -> None:
        appended = {
            job.task.run_id
            for job, _, error in outcomes
            if error is None and type(job.task) is Append
        }
        waits, self._queue_waits = self._queue_waits, False
        self._changes.committed([QUEUE] if waits else [], appended)
        for job, result, error in outcomes:
            future = job.future
            if future.done():  # its waiter was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
                # Not an unhandled error if nobody awaits it: the run's next append raises it.
                future.exception()

    def _failure(self, job: _Job, error: Exception) -> _Outcome:
        if isinstance(error, psycopg.Error):
            error = store_error(error, self._database.shown)
        if type(job.task) is Append:
            self.failed_appends.add(job.task.run_id, job.task.epoch, job.task.first_seq, error)
        return job, None, error

    # -- appends in one statement ----------------------------------------------------------------

    async def _append_together(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        """Store what one statement can store; run the rest one at a time."""
        outcomes: list[_Outcome] = []
        left: list[tuple[_Job, bool]] = []
        group = Group(self.output_cap)
        for job in jobs:
            assert type(job.task) is Append
            try:
                self._check(job.task)
                plain = group.add(job.task)
            except Exception as error:  # noqa: BLE001  (the edge of the task)
                outcomes.append(self._failure(job, error))
            else:
                left.append((job, plain))
        try:
            stored, repeated = await self._store_group(group)
        except Unreachable as error:
            return outcomes + [self._failure(job, error) for job, _ in left]
        except Exception:  # noqa: BLE001  (reported when they are run one at a time)
            stored, repeated = {}, True
        for job, plain in left:
            assert type(job.task) is Append
            if plain and job.task.run_id in stored:
                self._queue_waits = self._queue_waits or stored[job.task.run_id]
                outcomes.append((job, None, None))
            else:
                job.task.repeated = repeated
                outcomes += await self._run_group([job])
        return outcomes

    async def _store_group(self, group: Group) -> tuple[dict[str, bool], bool]:
        """Store the group; return the runs for which that worked, and whether it was repeated."""
        repeated = False
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            connection = await self._connected()
            try:
                return await group.store(connection), repeated
            except psycopg.Error as error:
                if not is_lost(error, connection) or time.monotonic() > give_up:
                    raise
                await self._drop_connection()
                repeated = True

    # -- transactions ------------------------------------------------------------------------------

    async def _run_group(self, jobs: Sequence[_Job], attempt: int = 1) -> list[_Outcome]:
        try:
            results = await self._transaction(jobs)
        except Exception as error:  # noqa: BLE001  (the edge of the task)
            if len(jobs) == 1 and isinstance(error, _TRANSIENT) and attempt < _ATTEMPTS:
                return await self._run_group(jobs, attempt + 1)
            if len(jobs) == 1 or isinstance(error, Unreachable):
                return [self._failure(job, error) for job in jobs]
            return [outcome for job in jobs for outcome in await self._run_group([job])]
        return [(job, result, None) for job, result in zip(jobs, results, strict=True)]

    async def _transaction(self, jobs: Sequence[_Job]) -> list[Any]:
        """Run jobs in one transaction; return their results when it is committed."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        locks = sorted({LOCKS[job.lock] for job in jobs if job.lock is not None})
        while True:
            connection = await self._connected()
            mark, results = 0, None
            try:
                mark = await self._marks.begin(connection, locks)
                found: list[Any] = []
                for are_appends, some in groupby(jobs, lambda job: type(job.task) is Append):
                    perform = self._append_all if are_appends else _perform_all
                    found += await perform(connection, [job.task for job in some])
                results = found
                await connection.execute("COMMIT")
            except BaseException as error:
                if not is_lost(error, connection):
                    await self._roll_back(connection)
                    raise
                await self._drop_connection()
                if results is not None and await self._was_committed(mark):
                    return results
                if time.monotonic() > give_up:
                    raise
            else:
                return results

    async def _append_all(self, connection: Connection, tasks: Sequence[Any]) -> list[None]:
        """Store appends in the current transaction."""
        group = Group(self.output_cap)
        for task in tasks:
            self._check(task)
        plain = [group.add(task) for task in tasks]
        stored = await group.store(connection)
        for task, is_plain in zip(tasks, plain, strict=True):
            waits = stored.get(task.run_id) if is_plain else None
            if waits is None:
                waits = await append.append(connection, task, self.output_cap)
            self._queue_waits = self._queue_waits or waits
        return [None] * len(tasks)

    def _check(self, task: Append) -> None:
        self.failed_appends.check(task.run_id, task.epoch, task.first_seq)

    async def _roll_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            await connection.execute("ROLLBACK")
            return
        await self._drop_connection()

    async def _was_committed(self, mark: int) -> bool:
        """Return what became of a transaction whose COMMIT was sent."""
        while True:
            connection = await self._connected()
            try:
                return await self._marks.was_committed(connection, mark)
            except psycopg.Error as error:
                if not is_lost(error, connection):
                    raise
                await self._drop_connection()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            await self._drop_connection()
            self._connection = await self._database.reconnect()
        return self._connection

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        await close_quietly(connection)


async def _perform_all(connection: Connection, tasks: Sequence[Any]) -> list[Any]:
    return [await task(connection) for task in tasks]
