"""The run log on PostgreSQL: each method hands a function to the writer or to a reader."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.store.encoding.documents import query_terms
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
from infloop.store.postgresql import (
    append,
    creation,
    known_directories,
    listing,
    ownership,
    pruning,
    reading,
    search,
)
from infloop.store.postgresql.words import make_query

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.encoding.documents import RunDocuments
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer


class PostgresqlRunLog(RunLog):
    """Runs of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

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
            creation.create_run,
            run=run,
            items=items,
            scope=scope,
            output_cap=self._writer.output_cap,
        )
        await self._writer.submit(work)
        self._writer.announce(run_id=run.id)
        return creation.FIRST_EPOCH

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
        return self._writer.append(append.Append(run_id, epoch, items, scope))

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
        """Take no hint: a group is what was submitted while the one before was committed."""

    async def flush(self) -> None:
        await self._writer.submit(_nothing)
        failed = self._writer.failed_appends
        error, failed.first_error = failed.first_error, None
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
        return deleted

    async def index_runs(self, *run_ids: str) -> None:
        left = await self._readers.run(search.existing_runs, run_ids)
        while left:
            documents = await self._readers.run(search.read_documents, left)
            await self._index(documents)
            left = left[len(documents) :]

    async def _index(self, documents: list[RunDocuments]) -> None:
        words = await search.words_of(documents)

        async def work(connection: Connection) -> None:
            for each, its_words in zip(documents, words, strict=True):
                await search.replace_documents(connection, each, its_words)

        await self._writer.submit(work)

    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        wanted = make_query(query_terms(query))
        if wanted is None:
            return []
        key = 0
        while documents := await self._readers.run(search.read_unindexed, key):
            await self._index(documents)
            key = documents[-1].key
        return await self._readers.run(search.find, wanted, limit)

    async def has_worked_in(self, path: str) -> bool:
        return await self._readers.run(known_directories.is_known, path)

    async def note_worked_in(self, path: str) -> None:
        await self._writer.submit(partial(known_directories.add, path=path))


async def _nothing(_connection: Connection) -> None:
    """Do nothing, when all work that was submitted before is committed."""
