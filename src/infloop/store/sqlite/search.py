"""Full-text search over inputs, outputs, errors and logs.

A run is indexed after it has settled, so that indexing does not slow it down. A search first
indexes the runs that have changed since. What is indexed is in `encoding/documents`.

The id of a document begins with the time at which its run started. So the newest matches are the
first that the index returns, and a search takes as long among ten runs as among ten thousand.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from infloop.store.encoding.documents import (
    RUN_CHARACTERS,
    DocumentCollector,
    RunDocuments,
    query_terms,
)
from infloop.store.encoding.records import run_row
from infloop.store.interfaces.run_log import SearchHit
from infloop.store.sqlite.listing import LAST_SEQ, RUN_COLUMNS, read_run
from infloop.store.sqlite.reading import all_items

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_SNIPPET_WORDS = 16
_ROWS_AT_ONCE = 50
_RUNS_AT_ONCE = 100
_MERGED_PAGES = 500

_BEGIN, _END = "\x02", "\x03"  # they mark matches; documents have no control characters


def read_unindexed(connection: sqlite3.Connection, after_key: int) -> list[RunDocuments]:
    """Return the documents of some runs that changed since they were indexed, ordered by key."""
    rows = connection.execute(
        "SELECT key, id FROM run"  # noqa: S608  (constants)
        f" WHERE status = 'running' AND indexed_seq < {LAST_SEQ} AND key > ?1"
        " UNION ALL SELECT key, id FROM run INDEXED BY run_to_index"
        " WHERE status <> 'running' AND indexed_seq < last_seq AND key > ?1"
        " ORDER BY key LIMIT ?2",
        (after_key, _RUNS_AT_ONCE),
    ).fetchall()
    return read_documents(connection, [run_id for _, run_id in rows])


def read_documents(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[RunDocuments]:
    """Return the documents of the first of these runs, up to a total size."""
    found: list[RunDocuments] = []
    size = 0
    for run_id in run_ids:
        found.append(_read_run_documents(connection, run_id))
        size += sum(len(text) for _, _, text in found[-1].texts)
        if size > RUN_CHARACTERS:
            break
    return found


def existing_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[str]:
    """Return those of these runs that were not deleted."""
    rows = connection.execute(
        "SELECT id FROM run WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(run_ids),)
    )
    return [run_id for (run_id,) in rows]


def _read_run_documents(connection: sqlite3.Connection, run_id: str) -> RunDocuments:
    key, run = read_run(connection, run_id)
    collector = DocumentCollector(run)
    for recorded in all_items(connection, key, run.id):
        collector.add(recorded)
        if collector.is_full:
            break
    return RunDocuments(key, run.last_seq, collector.documents())


def replace_documents(connection: sqlite3.Connection, documents: RunDocuments) -> None:
    """Replace the documents of a run, unless it was deleted or is already indexed further."""
    key, last_seq, texts = documents
    updated = connection.execute(
        "UPDATE run SET indexed_seq = ?1 WHERE key = ?2 AND indexed_seq < ?1 RETURNING started_at",
        (last_seq, key),
    ).fetchall()
    if not updated:
        return
    connection.execute("DELETE FROM document WHERE run = ?", (key,))
    first_id = _first_id(updated[0][0], key)
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        rows = enumerate(texts[start : start + _ROWS_AT_ONCE], first_id + start)
        values = [(number, key, path, kind, text) for number, (path, kind, text) in rows]
        connection.execute(_insert_sql(len(values)), [each for row in values for each in row])


def _first_id(started_at: int, key: int) -> int:
    """Return the id of a run's first document: newer runs have higher ones.

    The key tells apart a thousand runs that start in the same millisecond. The migration
    `_NEWEST_FIRST` computes the same number.
    """
    return started_at << 21 | (key & 1023) << 11  # room for 2,048 documents


def merge_index(connection: sqlite3.Connection) -> None:
    """Remove the words of deleted documents from the index, in a bounded amount of work."""
    connection.execute(
        "INSERT INTO document_words (document_words, rank) VALUES ('merge', ?)", (-_MERGED_PAGES,)
    )


@cache
def _insert_sql(rows: int) -> str:
    values = ",".join(["(?,?,?,?,?)"] * rows)
    return f"INSERT INTO document (id, run, path, kind, body) VALUES {values}"  # noqa: S608  (constants)


def match_expression(text: str) -> str:
    """Return a user's query as an FTS5 expression of words and phrases only; it may be empty."""
    terms = query_terms(text)
    return " ".join([f'"{term.text}"' + ("*" if term.is_prefix else "") for term in terms])


def find(connection: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """Return the newest runs that match an expression, each with its shortest matching document."""
    matching = connection.execute(
        "SELECT rowid, rowid >> 11 FROM document_words WHERE document_words MATCH ?"
        " ORDER BY rowid DESC",
        (query,),
    )
    runs = groupby(matching, key=itemgetter(1))  # of more than `limit` runs, the rest is not read
    found = [[document for document, _ in documents] for _, documents in islice(runs, limit)]
    return [_hit(connection, query, documents) for documents in found]


def _hit(connection: sqlite3.Connection, query: str, documents: Sequence[int]) -> SearchHit:
    document, path, kind, *run = connection.execute(
        f"SELECT document.id, path, kind, {RUN_COLUMNS}"  # noqa: S608  (constants)
        " FROM document JOIN run ON run.key = document.run"
        " WHERE document.id IN (SELECT value FROM json_each(?))"
        " ORDER BY length(body), document.id LIMIT 1",
        (json.dumps(documents),),
    ).fetchone()
    snippet, marks = _snippet(connection, query, document)
    return SearchHit(run_row(run), path, kind, snippet, marks, len(documents))


def _snippet(
    connection: sqlite3.Connection, query: str, document: int
) -> tuple[str, tuple[tuple[int, int], ...]]:
    (marked,) = connection.execute(
        "SELECT snippet(document_words, 0, ?, ?, '…', ?) FROM document_words"
        " WHERE document_words MATCH ? AND rowid = ?",
        (_BEGIN, _END, _SNIPPET_WORDS, query, document),
    ).fetchone()
    text, marks = "", []
    for piece in str(marked).split(_BEGIN):
        match, end, rest = piece.partition(_END)
        if end:
            marks.append((len(text), len(text) + len(match)))
        text += match + rest
    return text, tuple(marks)
