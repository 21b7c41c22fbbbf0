"""The run log on SQLite: each method hands a function to the writer or to a reader."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.store.encoding.appends import FailedAppends
from infloop.store.interfaces.run_log import (
    Cursor,
    EarlierEvents,
    LoadedRun,
    NewRun,
    Ownership,
    RunLog,
    RunRow,
    SearchHit,
    StoredStatus,
    TextPage,
)
from infloop.store.sqlite import (
    append,
    creation,
    known_directories,
    listing,
    ownership,
    pruning,
    reading,
    search,
)

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.encoding.documents import RunDocuments
    from infloop.store.sqlite.access import Readers, Writer


class SqliteRunLog(RunLog):
    """Runs in one database file; output beyond `output_cap` bytes of a run is dropped."""

    def __init__(self, writer: Writer, readers: Readers, output_cap: int) -> None:
        self._writer = writer
        self._readers = readers
        self._output_cap = output_cap
        self._failed_appends = FailedAppends()

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
            self._failed_appends.check(run_id, epoch, first_seq)
            append.append(connection, run_id, epoch, items, scope, self._output_cap)

        on_failure = partial(self._failed_appends.add, run_id, epoch, first_seq)
        return self._writer.submit(work, on_failure=on_failure, small=True)

    def checkpoint(self, run_id: str, epoch: int, seq: int, state: bytes) -> asyncio.Future[None]:
        return self._writer.submit(
            lambda connection: append.checkpoint(connection, run_id, epoch, seq, state)
        )

    async def take_over(
        self,
        run_id: str,
        owner: str,
        *,
        expect_dead: str | None = None,
        expect_status: StoredStatus | None = None,
        force: bool = False,
    ) -> Ownership:
        if (expect_dead is None) != force:
            raise UsageError("take_over needs either the owner that was found dead, or force")
        return await self._writer.submit(
            partial(
                ownership.take_over,
                run_id=run_id,
                owner=owner,
                expect_dead=expect_dead,
                expect_status=expect_status,
            )
        )

    async def fork(self, run_id: str, before_seq: int, run: NewRun) -> Ownership:
        return await self._writer.submit(
            lambda connection: creation.fork(connection, run_id, before_seq, run)
        )

    def expect_runs(self, count: int) -> None:
        self._writer.single_run = count == 1

    async def flush(self) -> None:
        await self._writer.submit(_nothing)
        error, self._failed_appends.first_error = self._failed_appends.first_error, None
        if error is not None:
            raise error

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

    async def events_before(
        self,
        run_id: str,
        before_seq: int,
        *,
        step: str = "",
        limit: int = 1000,
        include_output: bool = True,
    ) -> EarlierEvents:
        return await self._readers.run(
            reading.read_events_before, run_id, before_seq, step, limit, include_output
        )

    async def load(self, run_id: str, *, until_seq: int | None = None) -> LoadedRun:
        return await self._readers.run(reading.load_run, run_id, until_seq)

    async def output_page(
        self, run_id: str, path: str, field: str, offset: int, limit: int
    ) -> TextPage:
        return await self._readers.run(reading.output_page, run_id, path, field, offset, limit)

    async def runs(
        self,
        *,
        workflow_id: str | None = None,
        status: StoredStatus | None = None,
        limit: int = 50,
        before: Cursor | None = None,
    ) -> list[RunRow]:
        return await self._readers.run(listing.list_runs, workflow_id, status, limit, before)

    async def runs_with_prefix(self, prefix: str, *, limit: int = 10) -> list[RunRow]:
        return await self._readers.run(listing.runs_with_prefix, prefix, limit)

    async def count(
        self, *, workflow_id: str | None = None, status: StoredStatus | None = None
    ) -> int:
        return await self._readers.run(listing.count_runs, workflow_id, status)

    async def prune(self, workflow_id: str, keep: int) -> int:
        doomed = await self._readers.run(pruning.prunable_runs, workflow_id, keep)
        deleted = 0
        for start in range(0, len(doomed), pruning.RUNS_PER_TRANSACTION):
            some = doomed[start : start + pruning.RUNS_PER_TRANSACTION]
            deleted += await self._writer.submit(partial(pruning.delete_runs, run_ids=some))
        if deleted:
            await self._shrink()
        return deleted

    async def _shrink(self) -> None:
        if await self._readers.run(pruning.free_pages) < pruning.MIN_FREE_PAGES:
            return
        await self._writer.submit(search.merge_index)
        # In small steps, so that appends are not held up. It ends when a step makes no progress:
        # other processes may be freeing pages at the same time.
        before = inf
        while 0 < (free := await self._vacuum_some()) < before:
            before = free
        await self._writer.submit(pruning.truncate_log, outside_transaction=True)

    async def _vacuum_some(self) -> int:
        return await self._writer.submit(pruning.vacuum_some, outside_transaction=True)

    async def index_runs(self, *run_ids: str) -> None:
        left = await self._readers.run(search.existing_runs, run_ids)
        while left:
            documents = await self._readers.run(search.read_documents, left)
            await self._index(documents)
            left = left[len(documents) :]

    async def _index(self, documents: list[RunDocuments]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for each in documents:
                search.replace_documents(connection, each)

        await self._writer.submit(work)

    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        expression = search.match_expression(query)
        if not expression:
            return []
        key = 0
        while documents := await self._readers.run(search.read_unindexed, key):
            await self._index(documents)
            key = documents[-1].key
        return await self._readers.run(search.find, expression, limit)

    async def has_worked_in(self, path: str) -> bool:
        return await self._readers.run(known_directories.is_known, path)

    async def note_worked_in(self, path: str) -> None:
        await self._writer.submit(partial(known_directories.add, path=path))


def _nothing(_connection: sqlite3.Connection) -> None:
    """Do nothing, when all work that was submitted before is committed."""
