"""Full-text search over inputs, outputs, errors and logs.

A run is indexed after it has settled, so that indexing does not slow it down. A search first
indexes the runs that have changed since. A document is one text of one step: its input, output, log
or error. Only the beginning of a very large run is indexed, and its error.

The id of a document begins with the time at which its run started. So the newest matches are the
first that the index returns, and a search takes as long among ten runs as among ten thousand.
"""

from __future__ import annotations

import json
from collections import deque
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, assert_never

from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Notice,
    Output,
    Recorded,
    Remark,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    WaitOver,
)
from infloop.model.values import as_text
from infloop.store.interfaces.run_log import RunRow, SearchHit, TextKind
from infloop.store.sqlite.encoding import replace_surrogates
from infloop.store.sqlite.listing import LAST_SEQ, RUN_COLUMNS, read_run, run_row
from infloop.store.sqlite.reading import all_items

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from infloop.model.values import JsonValue

DOCUMENT_CHARACTERS = 256 << 10
RUN_CHARACTERS = 2 << 20
RUN_DOCUMENTS = 2000
READ_CHARACTERS = 16 << 20

_QUERY_TERMS = 32
_QUERY_CHARACTERS = 1000
_SNIPPET_WORDS = 16
_ROWS_AT_ONCE = 50
_RUNS_AT_ONCE = 100
_MERGED_PAGES = 500

_BEGIN, _END = "\x02", "\x03"  # they mark matches; documents have no control characters
_CONTROLS = {code: " " for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}


class RunDocuments(NamedTuple):
    """The documents of a run as of `last_seq`: step path, kind and text of each."""

    key: int
    started_at: int
    last_seq: int
    texts: list[tuple[str, TextKind, str]]


class _Excerpt:
    """The beginning and the end of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._room = DOCUMENT_CHARACTERS // 2
        self._tail: deque[str] = deque()
        self._tail_size = 0

    def add(self, piece: str) -> None:
        if self._room:
            self._head.append(piece[: self._room])
            piece = piece[self._room :]
            self._room -= len(self._head[-1])
        if piece:
            self._tail.append(piece)
            self._tail_size += len(piece)
            while self._tail_size - len(self._tail[0]) >= DOCUMENT_CHARACTERS // 2:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        """Return the beginning and the end, without control characters."""
        head, tail = "".join(self._head), "".join(self._tail)
        return replace_surrogates(head + tail[-DOCUMENT_CHARACTERS // 2 :]).translate(_CONTROLS)


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
    texts: list[tuple[str, TextKind, str]] = []
    room = RUN_CHARACTERS
    for (path, kind), excerpt in _excerpts(connection, key, run).items():
        text = excerpt.text()[:room]
        room -= len(text)
        if text.strip():
            texts.append((replace_surrogates(path), kind, text))
    return RunDocuments(key, run.started_at, run.last_seq, texts)


def _excerpts(
    connection: sqlite3.Connection, key: int, run: RunRow
) -> dict[tuple[str, TextKind], _Excerpt]:
    excerpts: dict[tuple[str, TextKind], _Excerpt] = {}
    if run.error:  # first, so that no limit excludes it
        excerpts[run.failed_step, "error"] = _Excerpt()
        excerpts[run.failed_step, "error"].add(run.error)
    characters = 0
    for recorded in all_items(connection, key, run.id):
        for path, kind, text in _texts(recorded):
            excerpts.setdefault((path, kind), _Excerpt()).add(text)
            characters += len(text)
        if len(excerpts) >= RUN_DOCUMENTS or characters > READ_CHARACTERS:
            break
    return excerpts


def _texts(recorded: Recorded) -> Iterator[tuple[str, TextKind, str]]:
    event = recorded.event
    match event:
        case Output(path=path, text=text):
            yield path, "log", text
        case RunStarted(inputs=inputs):
            yield "", "input", _words(inputs)
        case StepStarted(path=path, config=config):
            yield path, "input", _words(config)
        case StepFinished(path=path, outputs=outputs, error=error):
            yield path, "output", _words(outputs)
            yield path, "error", error
        case StepPassed(path=path, config=config, outputs=outputs, error=error):
            yield path, "input", _words(config)
            yield path, "output", _words(outputs)
            yield path, "error", error
        case Notice(path=path, message=message):
            yield path, "log", f"\n{message}\n"
        case RunResumed() | RunFinished() | StepWaiting() | WaitOver():
            pass
        case StopRequested() | BudgetExceeded() | GuardFailed() | Remark():
            pass
        case _:
            assert_never(event)


def _words(value: JsonValue) -> str:
    """Return the keys and values of a JSON value, one per line."""
    lines: list[str] = []
    unvisited = [("", value)]
    while unvisited:
        name, member = unvisited.pop()
        if isinstance(member, dict):
            unvisited += reversed(member.items())
        elif isinstance(member, list):
            unvisited += reversed([(name, item) for item in member])
        elif member is not None and member != "":
            lines.append(f"{name}: {as_text(member)}\n")
    return "".join(lines)


def replace_documents(connection: sqlite3.Connection, documents: RunDocuments) -> None:
    """Replace the documents of a run, unless it was deleted or is already indexed further."""
    key, started_at, last_seq, texts = documents
    updated = connection.execute(
        "UPDATE run SET indexed_seq = ?1 WHERE key = ?2 AND indexed_seq < ?1",
        (last_seq, key),
    ).rowcount
    if not updated:
        return
    connection.execute("DELETE FROM document WHERE run = ?", (key,))
    first_id = _first_id(started_at, key)
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
    pieces = replace_surrogates(text[:_QUERY_CHARACTERS]).translate(_CONTROLS).split('"')
    terms: list[str] = []
    for number, piece in enumerate(pieces):
        quoted = number % 2 == 1
        terms += [piece] if quoted else piece.split()
    terms = [f'"{term}"' for term in terms if term.strip()][:_QUERY_TERMS]
    last_is_prefix = bool(pieces[-1].strip())  # the query does not end with a closed quote
    return " ".join(terms) + ("*" if terms and last_is_prefix else "")


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
