"""Full-text search over inputs, outputs, errors and logs.

A run is indexed after it has settled, so that indexing does not slow it down. A search first
indexes the runs that have changed since. What is indexed is in `encoding/documents`.
"""

from __future__ import annotations

import json
from functools import cache
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
        f"SELECT id FROM run WHERE key > ? AND indexed_seq < {LAST_SEQ} ORDER BY key LIMIT ?",  # noqa: S608
        (after_key, _RUNS_AT_ONCE),
    ).fetchall()
    return read_documents(connection, [run_id for (run_id,) in rows])


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
        "UPDATE run SET indexed_seq = ?1 WHERE key = ?2 AND indexed_seq < ?1",
        (last_seq, key),
    ).rowcount
    if not updated:
        return
    connection.execute("DELETE FROM document WHERE run = ?", (key,))
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        rows = texts[start : start + _ROWS_AT_ONCE]
        values = [value for path, kind, text in rows for value in (key, path, kind, text)]
        connection.execute(_insert_sql(len(rows)), values)


def merge_index(connection: sqlite3.Connection) -> None:
    """Remove the words of deleted documents from the index, in a bounded amount of work."""
    connection.execute(
        "INSERT INTO document_words (document_words, rank) VALUES ('merge', ?)", (-_MERGED_PAGES,)
    )


@cache
def _insert_sql(rows: int) -> str:
    values = ",".join(["(?,?,?,?)"] * rows)
    return f"INSERT INTO document (run, path, kind, body) VALUES {values}"  # noqa: S608  (constants)


def match_expression(text: str) -> str:
    """Return a user's query as an FTS5 expression of words and phrases only; it may be empty."""
    terms = query_terms(text)
    return " ".join([f'"{term.text}"' + ("*" if term.is_prefix else "") for term in terms])


def find(connection: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """Return the newest runs that match an expression, each with its best matching document."""
    rows = connection.execute(
        "WITH matching AS MATERIALIZED ("  # noqa: S608  (constants)
        "  SELECT rowid AS id, rank FROM document_words WHERE document_words MATCH ?"
        "), best AS ("
        "  SELECT document.run, document.id, path, kind, min(rank), count(*) AS matches"
        "  FROM matching JOIN document ON document.id = matching.id GROUP BY document.run"
        f") SELECT best.id, path, kind, matches, {RUN_COLUMNS}"
        " FROM best JOIN run ON run.key = best.run ORDER BY started_at DESC, run.id DESC LIMIT ?",
        (query, limit),
    ).fetchall()
    return [
        SearchHit(run_row(row[4:]), path, kind, *_snippet(connection, query, document), matches)
        for row in rows
        for document, path, kind, matches in [row[:4]]
    ]


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
