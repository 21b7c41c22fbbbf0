"""The texts of a run that can be searched, and the words of a query.

A document is one text of one step: its input, output, log or error. Only the beginning of a very
large run is indexed, and its error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, assert_never

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
from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.run_log import RunRow, TextKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.values import JsonValue

DOCUMENT_CHARACTERS = 256 << 10
RUN_CHARACTERS = 2 << 20
RUN_DOCUMENTS = 2000
READ_CHARACTERS = 16 << 20

_QUERY_TERMS = 32
_QUERY_CHARACTERS = 1000

_CONTROLS = {code: " " for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}

Document: TypeAlias = tuple[str, TextKind, str]
"""The path of a step, what the text was there, and the text, which has no control characters."""


class RunDocuments(NamedTuple):
    """The documents of a run as of `last_seq`; `key` is that of its row."""

    key: int
    last_seq: int
    texts: list[Document]


class QueryTerm(NamedTuple):
    """One or several words that must be adjacent; the last of them may be incomplete."""

    text: str
    is_prefix: bool


def query_terms(text: str) -> list[QueryTerm]:
    """Return what a user's query asks for: words, and phrases in quotes; any text is valid."""
    pieces = replace_surrogates(text[:_QUERY_CHARACTERS]).translate(_CONTROLS).split('"')
    terms: list[str] = []
    for number, piece in enumerate(pieces):
        quoted = number % 2 == 1
        terms += [piece] if quoted else piece.split()
    terms = [term for term in terms if term.strip()][:_QUERY_TERMS]
    last_is_prefix = bool(pieces[-1].strip())  # the query does not end with a closed quote
    last = len(terms) - 1
    return [QueryTerm(term, last_is_prefix and n == last) for n, term in enumerate(terms)]


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


class DocumentCollector:
    """Collects the documents of a run from its items, in order."""

    def __init__(self, run: RunRow) -> None:
        self._excerpts: dict[tuple[str, TextKind], _Excerpt] = {}
        self._characters = 0
        if run.error:  # first, so that no limit excludes it
            self._excerpts[run.failed_step, "error"] = _Excerpt()
            self._excerpts[run.failed_step, "error"].add(run.error)

    @property
    def is_full(self) -> bool:
        """Whether further items are not indexed."""
        return len(self._excerpts) >= RUN_DOCUMENTS or self._characters > READ_CHARACTERS

    def add(self, recorded: Recorded) -> None:
        """Add the texts of an item."""
        for path, kind, text in _texts(recorded):
            self._excerpts.setdefault((path, kind), _Excerpt()).add(text)
            self._characters += len(text)

    def documents(self) -> list[Document]:
        """Return the documents, up to a total size."""
        found: list[Document] = []
        room = RUN_CHARACTERS
        for (path, kind), excerpt in self._excerpts.items():
            text = excerpt.text()[:room]
            room -= len(text)
            if text.strip():
                found.append((replace_surrogates(path), kind, text))
        return found


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
