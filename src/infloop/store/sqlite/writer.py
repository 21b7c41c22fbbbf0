"""One thread, one connection, everything queued in one transaction.

While a transaction is being committed the next work gathers; then it is done in one transaction
too. When anything in such a group fails, the group is undone and each piece of work gets a
transaction of its own, so that a failure stays with the one that caused it.

With one run alone there is nothing to gather, and waking two threads costs a third of a commit.
Told that it is so (`alone`), the writer does the work where it is submitted, as long as nothing is
on its way and the disk answers quickly; a slow disk must not hold up the event loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from dataclasses import dataclass
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from infloop.errors import StoreError
from infloop.store.sqlite.database import BUSY_MS, LOG_BYTES
from infloop.store.sqlite.errors import is_busy, store_error
from infloop.store.sqlite.headroom import Headroom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
_Work: TypeAlias = "Callable[[sqlite3.Connection], object]"

SLOW_S = 0.01
"""A transaction that takes longer makes the next ones go to the writer's thread."""

JOBS_IN_TURN = 50
RIDE_S = 0.05
BUSY_S = BUSY_MS / 1000


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
        self._connection.execute("PRAGMA busy_timeout = 0")  # `_begin` waits by itself
        self._path = path
        self._headroom = Headroom(path, LOG_BYTES)
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._under_way = 0
        self._in_turn = 0
        self._board: Callable[[], _Work] | None = None
        self._urgent = False
        self._departure: asyncio.TimerHandle | None = None
        self._last_ride: asyncio.Future[Any] | None = None
        self.alone = False
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        failed: Callable[[Exception], None] | None = None,
        bare: bool = False,
        small: bool = False,
    ) -> asyncio.Future[T]:
        """Queue `work`; the future ends with its result once that is committed.

        Work may be run twice, the first time for nothing. `failed` is called in the writer's
        thread, before anything that was submitted later is committed. `bare` work runs outside a
        transaction. `small` work may be done before this returns.
        """
        if self._closed:
            raise StoreError(f"the journal {self._path!r} is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        job = _Job(work, future, failed, bare)
        here = small and self.alone and self._under_way == 0 and self._disk_is_quick()
        self._dispatch([*self._take_riders(), job] if self._urgent else [job], here=here)
        return future

    def ride(self, board: Callable[[], _Work], *, urgent: bool) -> None:
        """Do the work that `board` then returns after a moment, or with the next transaction.

        Only what is urgent joins the next transaction. What fails is the writer's own loss: nobody
        waits for it.
        """
        if self._closed:
            raise StoreError(f"the journal {self._path!r} is closed")
        self._board = board
        self._urgent = self._urgent or urgent
        if self._departure is None:
            self._departure = self._loop.call_later(RIDE_S, self._due)

    def _due(self) -> None:
        """Join the next transaction if one is likely to come at once, else be one."""
        if self.alone and not self._urgent:
            self._urgent = True
            self._departure = self._loop.call_later(RIDE_S, self._leave)
        else:
            self._leave()

    async def settle(self) -> None:
        """Wait for what rides along, if anything does."""
        self._leave()
        if self._last_ride is not None:
            await asyncio.shield(self._last_ride)

    def _leave(self) -> None:
        riders = self._take_riders()
        if riders and not self._closed:
            self._dispatch(riders, here=False)

    def _take_riders(self) -> list[_Job]:
        if self._departure is None or self._board is None:
            return []
        self._departure.cancel()
        self._departure = None
        self._urgent = False
        self._last_ride = self._loop.create_future()
        return [_Job(self._board(), self._last_ride, None, bare=False)]

    def _dispatch(self, jobs: list[_Job], *, here: bool) -> None:
        self._under_way += len(jobs)
        if not (here and self._done_here(jobs)):
            for job in jobs:
                self._queue.put(job)

    def _disk_is_quick(self) -> bool:
        """Say so, except for a while after it was not."""
        self._in_turn = max(0, self._in_turn - 1)
        return self._in_turn == 0

    def _done_here(self, jobs: list[_Job]) -> bool:
        """Do the work in the event loop's thread, whose own has nothing to do meanwhile.

        Whatever goes wrong, the writer's thread meets it again, and reports it.
        """
        began = time.perf_counter()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = self._commit(jobs)
        except Exception:  # noqa: BLE001  (see above)
            return False
        if time.perf_counter() - began > SLOW_S:
            self._in_turn = JOBS_IN_TURN
        self._under_way = 0
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)
        return True

    async def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if not self._closed:
            self._leave()
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
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        for job in jobs:
            try:
                outcomes.append((job, job.work(self._connection), None))
            except Exception as error:  # noqa: BLE001  (the edge of the thread)
                outcomes.append(self._failure(job, error))
        self._connection.execute("PRAGMA busy_timeout = 0")
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
        self._begin()
        return self._commit(jobs)

    def _commit(self, jobs: Sequence[_Job]) -> list[Any]:
        """Do the work in the transaction that has begun, and end it."""
        connection = self._connection
        try:
            results = [job.work(connection) for job in jobs]
            self._headroom.keep()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def _begin(self) -> None:
        """Begin a transaction; wait for another process that holds the database."""
        deadline = time.monotonic() + BUSY_S
        pause = 0.001
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _failure(self, job: _Job, error: Exception) -> _Outcome:
        if isinstance(error, sqlite3.Error):
            error = store_error(error, self._path)
        if job.failed is not None:
            job.failed(error)
        return job, None, error

    def _report(self, outcomes: list[_Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve, outcomes)
        except RuntimeError:  # the event loop is gone, and with it everyone who waited
            return

    def _resolve(self, outcomes: list[_Outcome]) -> None:
        self._under_way -= len(outcomes)
        for job, result, error in outcomes:
            future = job.future
            if future.done():  # its waiter was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
                future.exception()  # unawaited, it is not news: the run's next append has it
