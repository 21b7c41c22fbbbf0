"""Full-text search over inputs, outputs, errors and logs.

A run is indexed after it has settled, so that indexing does not slow it down. A search first
indexes the runs that have changed since. What is indexed is in `encoding/documents`, as which words
in `words`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.store.encoding.documents import RUN_CHARACTERS, DocumentCollector, RunDocuments
from infloop.store.encoding.records import run_row
from infloop.store.interfaces.run_log import SearchHit
from infloop.store.postgresql.listing import RUN_COLUMNS, read_run
from infloop.store.postgresql.reading import all_items
from infloop.store.postgresql.words import Query, indexed_words, snippet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.postgresql.connections import Connection

_RUNS_AT_ONCE = 100

# The best document of a run is the shortest that matches: the words are most of it.
_FIND = f"""
WITH matching AS MATERIALIZED (
    SELECT id, run, path, kind, length(body) AS size FROM document
    WHERE lexemes @@ %(words)s::tsquery AND NOT EXISTS
        (SELECT 1 FROM unnest(%(phrases)s::text[]) AS phrase WHERE strpos(words, phrase) = 0)
), best AS (
    SELECT DISTINCT ON (run) run, id, path, kind, count(*) OVER (PARTITION BY run) AS matches
    FROM matching ORDER BY run, size, id
)
SELECT document.body, best.path, best.kind, best.matches, {RUN_COLUMNS}
FROM best JOIN run ON run.key = best.run JOIN document ON document.id = best.id
ORDER BY started_at DESC, run.id DESC LIMIT %(limit)s
"""  # noqa: S608  (constants)

# Nothing happens if the run was deleted or is already indexed further.
_REPLACE = """
WITH indexed AS (
    UPDATE run SET indexed_seq = %(seq)s WHERE key = %(key)s AND indexed_seq < %(seq)s
    RETURNING key
), gone AS (
    DELETE FROM document USING indexed WHERE document.run = indexed.key
)
INSERT INTO document (run, path, kind, body, words, lexemes)
SELECT indexed.key, path, kind, body, words,
    array_to_tsvector(array_remove(string_to_array(btrim(words, ' '), ' '), ''))
FROM indexed, unnest(%(paths)s::text[], %(kinds)s::text[], %(bodies)s::text[], %(words)s::text[])
    AS given (path, kind, body, words)
"""


async def read_unindexed(connection: Connection, after_key: int) -> list[RunDocuments]:
    """Return the documents of some runs that changed since they were indexed, ordered by key."""
    cursor = await connection.execute(
        "SELECT id FROM run WHERE key > %s AND indexed_seq < last_seq ORDER BY key LIMIT %s",
        (after_key, _RUNS_AT_ONCE),
    )
    return await read_documents(connection, [run_id for (run_id,) in await cursor.fetchall()])


async def read_documents(connection: Connection, run_ids: Sequence[str]) -> list[RunDocuments]:
    """Return the documents of the first of these runs, up to a total size."""
    found: list[RunDocuments] = []
    size = 0
    for run_id in run_ids:
        found.append(await _read_run_documents(connection, run_id))
        size += sum(len(text) for _, _, text in found[-1].texts)
        if size > RUN_CHARACTERS:
            break
    return found


async def existing_runs(connection: Connection, run_ids: Sequence[str]) -> list[str]:
    """Return those of these runs that were not deleted."""
    cursor = await connection.execute("SELECT id FROM run WHERE id = ANY(%s)", ([*run_ids],))
    return [run_id for (run_id,) in await cursor.fetchall()]


async def _read_run_documents(connection: Connection, run_id: str) -> RunDocuments:
    key, run = await read_run(connection, run_id)
    collector = DocumentCollector(run)
    async for recorded in all_items(connection, key, run.id):
        collector.add(recorded)
        if collector.is_full:
            break
    return RunDocuments(key, run.last_seq, collector.documents())


async def replace_documents(
    connection: Connection, documents: RunDocuments, words: Sequence[str]
) -> None:
    """Replace the documents of a run, unless it was deleted or is already indexed further.

    `words` are the words of each of them.
    """
    key, last_seq, texts = documents
    paths, kinds, bodies = [[text[n] for text in texts] for n in range(3)]
    await connection.execute(
        _REPLACE,
        {
            "key": key,
            "seq": last_seq,
            "paths": paths,
            "kinds": kinds,
            "bodies": bodies,
            "words": [*words],
        },
    )


async def words_of(documents: Sequence[RunDocuments]) -> list[list[str]]:
    """Return the words of every document of every run."""

    def find() -> list[list[str]]:
        return [[indexed_words(text) for _, _, text in each.texts] for each in documents]

    return await asyncio.to_thread(find)


async def find(connection: Connection, query: Query, limit: int) -> list[SearchHit]:
    """Return the newest runs that match, each with its best matching document."""
    cursor = await connection.execute(
        _FIND, {"words": query.words, "phrases": query.phrases, "limit": limit}, prepare=False
    )
    rows = await cursor.fetchall()

    def hits() -> list[SearchHit]:
        return [
            SearchHit(run_row(row[4:]), path, kind, *snippet(body, query), matches)
            for row in rows
            for body, path, kind, matches in [row[:4]]
        ]

    return await asyncio.to_thread(hits)
