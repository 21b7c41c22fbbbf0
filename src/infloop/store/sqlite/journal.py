"""The journal on SQLite: each method hands a function to the writer or to a reader."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.store.base import (
    OUTPUT_CAP,
    Bill,
    Booking,
    Calls,
    Cap,
    Cursor,
    Grouping,
    InstanceRow,
    Journal,
    Loaded,
    NewCall,
    NewRun,
    Ownership,
    RunRow,
    SearchHit,
    Spending,
    StopRequest,
    StoredStatus,
    TextPage,
    UsedUp,
)
from infloop.store.sqlite import (
    append,
    creation,
    ledger,
    listing,
    ownership,
    pruning,
    reading,
    search,
)
from infloop.store.sqlite import known_directories as places
from infloop.store.sqlite.approvals import SqliteApprovals
from infloop.store.sqlite.blobs import read_page
from infloop.store.sqlite.database import Synchronous, open_for_reading, open_for_writing
from infloop.store.sqlite.queue import SqliteQueue
from infloop.store.sqlite.readers import Readers
from infloop.store.sqlite.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject


JOURNAL_FILE = "journal.db"


async def open_journal(
    data_dir: Path, *, synchronous: Synchronous = "FULL", output_cap: int = OUTPUT_CAP
) -> SqliteJournal:
    """Open the journal in `data_dir`, creating both if need be.

    `output_cap` is how many bytes of output are kept of one run. With `NORMAL`, what was
    acknowledged survives the death of the process, but not always that of the machine.
    """
    path = data_dir / JOURNAL_FILE
    connection = await asyncio.to_thread(open_for_writing, path, synchronous)
    readers = await asyncio.to_thread(Readers, path)
    watcher = await asyncio.to_thread(open_for_reading, path)
    return SqliteJournal(Writer(connection, str(path)), readers, watcher, output_cap)


class SqliteJournal(Journal):
    """A journal in one file, shared safely by all processes of this machine that open it.

    `queue` holds the runs that wait; they become runs in the same transaction that takes them out.
    `approvals` holds what waits for a person.
    """

    def __init__(
        self, writer: Writer, readers: Readers, watcher: sqlite3.Connection, output_cap: int
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._watcher = watcher
        self._output_cap = output_cap
        self.queue = SqliteQueue(writer, readers, output_cap)
        self.approvals = SqliteApprovals(writer, readers)
        self._gaps = append.Gaps()
        self._bookings: list[Booking] = []

    async def create_run(
        self,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded] = (),
        *,
        scope: JsonObject | None = None,
    ) -> int:
        items = (first, *rest)
        work = partial(
            creation.create_run, run=run, items=items, scope=scope, output_cap=self._output_cap
        )
        return await self._writer.submit(work)

    def append(
        self,
        run_id: str,
        epoch: int,
        items: Sequence[Recorded],
        *,
        scope: JsonObject | None = None,
    ) -> asyncio.Future[None]:
        if not items:
            return self._writer.submit(_nothing)
        first_seq = items[0].seq

        def work(connection: sqlite3.Connection) -> None:
            self._gaps.check(run_id, epoch, first_seq)
            append.append(connection, run_id, epoch, items, scope, self._output_cap)

        failed = partial(self._gaps.open, run_id, epoch, first_seq)
        return self._writer.submit(work, failed=failed, small=True)

    def checkpoint(self, run_id: str, epoch: int, seq: int, state: bytes) -> asyncio.Future[None]:
        return self._writer.submit(
            lambda connection: append.checkpoint(connection, run_id, epoch, seq, state)
        )

    async def take_over(
        self, run_id: str, owner: str, *, expect_dead: str | None = None, force: bool = False
    ) -> Ownership:
        if (expect_dead is None) != force:
            raise UsageError("take_over needs either the owner that was found dead, or force")
        return await self._writer.submit(
            lambda connection: ownership.take_over(connection, run_id, owner, expect_dead)
        )

    async def fork(self, run_id: str, before_seq: int, run: NewRun) -> Ownership:
        return await self._writer.submit(
            lambda connection: creation.fork(connection, run_id, before_seq, run)
        )

    def expect(self, runs: int) -> None:
        self._writer.alone = runs == 1

    async def flush(self) -> None:
        await self._writer.submit(_nothing)
        error, self._gaps.first_error = self._gaps.first_error, None
        if error is not None:
            raise error

    async def close(self) -> None:
        await self._writer.close()
        await self._readers.close()
        self._watcher.close()

    async def run(self, run_id: str) -> RunRow:
        _, row = await self._readers.run(listing.read_run, run_id)
        return row

    async def scope(self, run_id: str) -> JsonObject | None:
        return await self._readers.run(reading.read_scope, run_id)

    async def events(
        self,
        run_id: str,
        after_seq: int = 0,
        until_seq: int | None = None,
        *,
        limit: int = 1000,
        include_output: bool = True,
    ) -> list[Recorded]:
        return await self._readers.run(
            reading.read_events, run_id, after_seq, until_seq, limit, include_output
        )

    async def load(self, run_id: str, *, until_seq: int | None = None) -> Loaded:
        return await self._readers.run(reading.load_run, run_id, until_seq)

    async def output_page(
        self, run_id: str, path: str, field: str, offset: int, limit: int
    ) -> TextPage:
        return await self._readers.run(reading.output_page, run_id, path, field, offset, limit)

    async def read_blob(self, name: str, offset: int, limit: int) -> TextPage:
        return await self._readers.run(read_page, name, offset, limit)

    async def runs(
        self,
        *,
        workflow_id: str | None = None,
        status: StoredStatus | None = None,
        limit: int = 50,
        before: Cursor | None = None,
    ) -> list[RunRow]:
        return await self._readers.run(listing.list_runs, workflow_id, status, limit, before)

    async def runs_named(self, beginning: str, *, limit: int = 10) -> list[RunRow]:
        return await self._readers.run(listing.runs_named, beginning, limit)

    async def count(
        self, *, workflow_id: str | None = None, status: StoredStatus | None = None
    ) -> int:
        return await self._readers.run(listing.count_runs, workflow_id, status)

    async def prune(self, workflow_id: str, keep: int) -> int:
        doomed = await self._readers.run(pruning.runs_to_forget, workflow_id, keep)
        gone = 0
        for start in range(0, len(doomed), pruning.RUNS_AT_ONCE):
            some = doomed[start : start + pruning.RUNS_AT_ONCE]
            gone += await self._writer.submit(partial(pruning.forget_runs, run_ids=some))
        if gone:
            await self._shrink()
        return gone

    async def _shrink(self) -> None:
        if await self._readers.run(pruning.free_pages) < pruning.WORTH_RETURNING:
            return
        await self._writer.submit(search.tidy)
        before = inf
        # In pieces, so that appends get their turn in between, and not for ever, because other
        # runs may come and go at the same time.
        while 0 < (free := await self._writer.submit(pruning.return_pages, bare=True)) < before:
            before = free
        await self._writer.submit(pruning.empty_log, bare=True)

    async def index_run(self, *run_ids: str) -> None:
        left = await self._readers.run(search.still_there, run_ids)
        while left:
            gathered = await self._readers.run(search.gather, left)
            await self._index(gathered)
            left = left[len(gathered) :]

    async def _index(self, gathered: list[search.Documents]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for documents in gathered:
                search.replace_documents(connection, documents)

        await self._writer.submit(work)

    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        words = search.words_query(query)
        if not words:
            return []
        key = 0
        while gathered := await self._readers.run(search.gather_unindexed, key):
            await self._index(gathered)
            key = gathered[-1].key
        return await self._readers.run(search.find, words, limit)

    async def was_real(self, path: str) -> bool:
        return await self._readers.run(places.was_real, path)

    async def note_real(self, path: str) -> None:
        await self._writer.submit(partial(places.note_real, path=path))

    async def reserve_call(self, call: NewCall, caps: Sequence[Cap] = ()) -> int | UsedUp:
        work = partial(ledger.reserve, call=call, caps=caps)
        return await self._writer.submit(work, small=not caps)

    def book(self, booking: Booking) -> None:
        urgent = booking.bill.usd > 0
        if booking.waiting and not urgent:
            return  # it is on its way, and says what it says by then
        if not booking.waiting:
            booking.waiting = True
            self._bookings.append(booking)
        self._writer.ride(self._take_bookings, urgent=urgent)

    def _take_bookings(self) -> Callable[[sqlite3.Connection], None]:
        bookings, self._bookings = self._bookings, []
        return partial(ledger.write_bookings, bookings=bookings)

    def charge_call(self, call: int, bill: Bill) -> asyncio.Future[None]:
        return self._writer.submit(partial(ledger.charge, call=call, bill=bill), small=True)

    def settle_call(self, call: int, bill: Bill, *, known: bool, time: int) -> asyncio.Future[None]:
        work = partial(ledger.settle, call=call, bill=bill, known=known, time=time)
        return self._writer.submit(work, small=True)

    async def abandon_calls(self, instance: str, time: int) -> int:
        return await self._writer.submit(partial(ledger.abandon, instance=instance, time=time))

    async def callers(self) -> list[str]:
        await self._writer.settle()
        return await self._readers.run(ledger.callers)

    async def spent(self, calls: Calls | None = None) -> Spending:
        await self._writer.settle()
        return await self._readers.run(ledger.read_spent, calls or Calls())

    async def spending(self, by: Grouping, calls: Calls | None = None) -> list[Spending]:
        await self._writer.settle()
        return await self._readers.run(ledger.read_spending, by, calls or Calls())

    async def request_stop(self, run_id: str, reason: str, time: int) -> None:
        await self._writer.submit(
            lambda connection: ownership.request_stop(connection, run_id, reason, time)
        )

    async def pending_requests(self, instance_id: str) -> list[StopRequest]:
        return await self._readers.run(ownership.pending_requests, instance_id)

    def version(self) -> int:
        (version,) = self._watcher.execute("PRAGMA data_version").fetchone()
        return int(version)

    async def put_instance(self, instance: InstanceRow) -> None:
        await self._writer.submit(lambda connection: ownership.put_instance(connection, instance))

    async def beat_instance(self, instance_id: str, time: int) -> None:
        await self._writer.submit(
            lambda connection: ownership.beat_instance(connection, instance_id, time)
        )

    async def instance(self, instance_id: str) -> InstanceRow | None:
        rows = await self._readers.run(ownership.read_instances, instance_id)
        return rows[0] if rows else None

    async def instances(self) -> list[InstanceRow]:
        return await self._readers.run(ownership.read_instances, None)

    async def drop_instance(self, instance_id: str) -> bool:
        return await self._writer.submit(
            lambda connection: ownership.drop_instance(connection, instance_id)
        )


def _nothing(_connection: sqlite3.Connection) -> None:
    """Work that only waits its turn."""
