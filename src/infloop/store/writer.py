"""One thread, one connection, everything queued in one transaction.

While a transaction is being committed the next work gathers; then it is done in one transaction
too. When anything in such a group fails, the group is undone and each piece of work gets a
transaction of its own, so that a failure stays with the one that caused it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import dataclass
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from infloop.errors import StoreError
from infloop.store.faults import is_busy, store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    failed: Callable[[Exception], None] | None
    bare: bool


_Outcome: TypeAlias = tuple[_Job, Any, Exception | None]


class Writer:
    """Runs work on the writing connection, in the order it was submitted.

    Submit from the event loop that was running at construction; work runs in the writer's thread.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        failed: Callable[[Exception], None] | None = None,
        bare: bool = False,
    ) -> asyncio.Future[T]:
        """Queue `work`; the future ends with its result once that is committed.

        Work may be run twice, the first time for nothing. `failed` is called in the writer's
        thread, before anything that was submitted later is committed. `bare` work runs outside a
        transaction.
        """
        if self._closed:
            raise StoreError(f"the journal {self._path!r} is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Job(work, future, failed, bare))
        return future

    async def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        open_for_work = True
        while open_for_work:
            jobs = self._gather()
            open_for_work = None not in jobs
            for bare, group in groupby((job for job in jobs if job), key=lambda job: job.bare):
                run = self._run_bare if bare else self._run_group
                self._report(run(list(group)))
        self._connection.close()

    def _gather(self) -> list[_Job | None]:
        jobs = [self._queue.get()]
        try:
            while True:
                jobs.append(self._queue.get_nowait())
        except Empty:
            return jobs

    def _run_bare(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for job in jobs:
            try:
                outcomes.append((job, job.work(self._connection), None))
            except Exception as error:  # noqa: BLE001  (the edge of the thread)
                outcomes.append(self._failure(job, error))
        return outcomes

    def _run_group(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        try:
            results = self._transact(jobs)
        except Exception as error:  # noqa: BLE001  (the edge of the thread)
            if len(jobs) == 1 or is_busy(error):  # waiting again for each would take for ever
                return [self._failure(job, error) for job in jobs]
            return [outcome for job in jobs for outcome in self._run_group([job])]
        return [(job, result, None) for job, result in zip(jobs, results, strict=True)]

    def _transact(self, jobs: Sequence[_Job]) -> list[Any]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def _failure(self, job: _Job, error: Exception) -> _Outcome:
        if isinstance(error, sqlite3.Error):
            error = store_error(error, self._path)
        if job.failed is not None:
            job.failed(error)
        return job, None, error

    def _report(self, outcomes: list[_Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve, outcomes)
        except RuntimeError:  # the event loop is gone, and with it everyone who waited
            return


def _resolve(outcomes: list[_Outcome]) -> None:
    for job, result, error in outcomes:
        future = job.future
        if future.done():  # its waiter was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
            future.exception()  # an unawaited failure is not news: the run's next append has it
