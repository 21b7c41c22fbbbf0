"""Full-text search over inputs, outputs, errors and logs.

A run is indexed after it has settled, so that nothing of this is on a run's way; a search first
catches up on runs that grew since. A *document* is what one step had as input, gave as output,
printed or failed with. Of a very large run only its beginning is searchable, and its error.
"""

from __future__ import annotations

import json
from collections import deque
from functools import cache
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
from infloop.store.sqlite.encoding import mended_text
from infloop.store.sqlite.listing import LAST_SEQ, RUN_COLUMNS, read_run, run_row
from infloop.store.sqlite.reading import every_event

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
_TIDY_PAGES = 500

_BEGIN, _END = "\x02", "\x03"  # documents hold no control characters, so these mark only matches
_CONTROLS = {code: " " for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}


class Documents(NamedTuple):
    """What is searchable of a run, as of `last_seq`."""

    key: int
    last_seq: int
    texts: list[tuple[str, TextKind, str]]


class _Excerpt:
    """The head and the tail of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._room = DOCUMENT_CHARACTERS // 2
        self._tail: deque[str] = deque()
        self._tail_size = 0

    def add(self, piece: str) -> None:
        """Take the next piece."""
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
        """Return what is kept, without control characters."""
        head, tail = "".join(self._head), "".join(self._tail)
        return mended_text(head + tail[-DOCUMENT_CHARACTERS // 2 :]).translate(_CONTROLS)


def gather_unindexed(connection: sqlite3.Connection, after_key: int) -> list[Documents]:
    """Return the texts of some runs that grew since they were indexed, in the order of keys."""
    rows = connection.execute(
        f"SELECT id FROM run WHERE key > ? AND indexed_seq < {LAST_SEQ} ORDER BY key LIMIT ?",  # noqa: S608
        (after_key, _RUNS_AT_ONCE),
    ).fetchall()
    return gather(connection, [run_id for (run_id,) in rows])


def gather(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[Documents]:
    """Return the searchable texts of runs: not too much at once, so perhaps not of all of them."""
    gathered: list[Documents] = []
    size = 0
    for run_id in run_ids:
        gathered.append(_gather_run(connection, run_id))
        size += sum(len(text) for _, _, text in gathered[-1].texts)
        if size > RUN_CHARACTERS:
            break
    return gathered


def still_there(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[str]:
    """Return which of these runs are not forgotten."""
    rows = connection.execute(
        "SELECT id FROM run WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(run_ids),)
    )
    return [run_id for (run_id,) in rows]


def _gather_run(connection: sqlite3.Connection, run_id: str) -> Documents:
    key, run = read_run(connection, run_id)
    texts: list[tuple[str, TextKind, str]] = []
    room = RUN_CHARACTERS
    for (path, kind), excerpt in _excerpts(connection, key, run).items():
        text = excerpt.text()[:room]
        room -= len(text)
        if text.strip():
            texts.append((mended_text(path), kind, text))
    return Documents(key, run.last_seq, texts)


def _excerpts(
    connection: sqlite3.Connection, key: int, run: RunRow
) -> dict[tuple[str, TextKind], _Excerpt]:
    excerpts: dict[tuple[str, TextKind], _Excerpt] = {}
    if run.error:  # first, so that no limit can leave it out
        excerpts[run.failed_step, "error"] = _Excerpt()
        excerpts[run.failed_step, "error"].add(run.error)
    seen = 0
    for recorded in every_event(connection, key, run.id):
        for path, kind, text in _texts(recorded):
            excerpts.setdefault((path, kind), _Excerpt()).add(text)
            seen += len(text)
        if len(excerpts) >= RUN_DOCUMENTS or seen > READ_CHARACTERS:
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
    """Return the names and texts of a JSON value, a line each."""
    lines: list[str] = []
    waiting = [("", value)]
    while waiting:
        name, member = waiting.pop()
        if isinstance(member, dict):
            waiting += reversed(member.items())
        elif isinstance(member, list):
            waiting += reversed([(name, item) for item in member])
        elif member is not None and member != "":
            lines.append(f"{name}: {as_text(member)}\n")
    return "".join(lines)


def replace_documents(connection: sqlite3.Connection, documents: Documents) -> None:
    """Make these the run's documents, unless the run is gone or already indexed further."""
    key, last_seq, texts = documents
    behind = connection.execute(
        "UPDATE run SET indexed_seq = ?1 WHERE key = ?2 AND indexed_seq < ?1",
        (last_seq, key),
    ).rowcount
    if not behind:
        return
    connection.execute("DELETE FROM document WHERE run = ?", (key,))
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        rows = texts[start : start + _ROWS_AT_ONCE]
        values = [value for path, kind, text in rows for value in (key, path, kind, text)]
        connection.execute(_insert_sql(len(rows)), values)


def tidy(connection: sqlite3.Connection) -> None:
    """Let the index drop the words of documents that are gone; a bounded piece of work."""
    connection.execute(
        "INSERT INTO document_words (document_words, rank) VALUES ('merge', ?)", (-_TIDY_PAGES,)
    )


@cache
def _insert_sql(rows: int) -> str:
    places = ",".join(["(?,?,?,?)"] * rows)
    return f"INSERT INTO document (run, path, kind, body) VALUES {places}"  # noqa: S608  (constants)


def words_query(text: str) -> str:
    """Return the user's text as a query in which nothing has a meaning but words and quotes.

    Empty when there is nothing to look for.
    """
    pieces = mended_text(text[:_QUERY_CHARACTERS]).translate(_CONTROLS).split('"')
    terms: list[str] = []
    for number, piece in enumerate(pieces):
        quoted = number % 2 == 1
        terms += [piece] if quoted else piece.split()
    terms = [f'"{term}"' for term in terms if term.strip()][:_QUERY_TERMS]
    unfinished = bool(pieces[-1].strip())  # what follows the last quote, or has no closing one
    return " ".join(terms) + ("*" if terms and unfinished else "")


def find(connection: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """Return the newest runs that match a query made by `words_query`, each with its best place."""
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
