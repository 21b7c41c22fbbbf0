"""Texts as words: how documents are indexed, and where a query matches one.

A word is a sequence of letters and digits, in lower case and without accents. The words are found
here and not by PostgreSQL's text search parser, because that depends on the locale of the server
and joins what belongs apart (`host/path`, `a-b`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infloop.store.encoding.documents import QueryTerm

MOST_CHARACTERS = 250
"""A longer word is cut: an index entry has a limited length."""

_MOST_BYTES = 900_000  # of the words of a document: PostgreSQL's limit is 1 MB
_SNIPPET_WORDS = 16
_WORDS_BEFORE = 4

# A fixed pattern that takes linear time: letters and digits, with combining accents inside.
_WORD = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u036f])*")  # noqa: TID251


class Phrase(NamedTuple):
    """Words that must be adjacent; the last of them may be incomplete."""

    words: tuple[str, ...]
    is_prefix: bool

    def matches(self, words: tuple[str, ...]) -> bool:
        """Return whether these words, as many as the phrase has, are the phrase."""
        if not self.is_prefix:
            return words == self.words
        return words[:-1] == self.words[:-1] and words[-1].startswith(self.words[-1])


class Query(NamedTuple):
    """A query for PostgreSQL: all words, and the phrases as they stand between spaces."""

    words: str
    phrases: list[str]
    terms: list[Phrase]


def _fold(word: str) -> str:
    word = word[:MOST_CHARACTERS].casefold()
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word)
    return "".join(each for each in decomposed if unicodedata.category(each) != "Mn")


def _words(text: str) -> Iterator[str]:
    return filter(None, (_fold(found.group()) for found in _WORD.finditer(text)))


def indexed_words(text: str) -> str:
    """Return the words of a document, each between spaces."""
    kept, size = [], 0
    for word in _words(text):
        size += len(word.encode()) + 1
        if size > _MOST_BYTES:
            break
        kept.append(word)
    return f" {' '.join(kept)} "


def make_query(terms: Iterable[QueryTerm]) -> Query | None:
    """Return the query for what a user asks for; None if that contains no word."""
    phrases = [Phrase(tuple(_words(term.text)), term.is_prefix) for term in terms]
    phrases = [phrase for phrase in phrases if phrase.words]
    if not phrases:
        return None
    # A word has letters and digits only, so it needs no escaping.
    wanted = [
        f"'{word}'" + (":*" if phrase.is_prefix and word is phrase.words[-1] else "")
        for phrase in phrases
        for word in phrase.words
    ]
    adjacent = [
        f" {' '.join(phrase.words)}" + ("" if phrase.is_prefix else " ")
        for phrase in phrases
        if len(phrase.words) > 1
    ]
    return Query(" & ".join(wanted), adjacent, phrases)


def snippet(text: str, query: Query) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the part of a text around its first match, and the ranges of it that match."""
    places = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    words = [_fold(text[begin:end]) for begin, end in places]
    first = next((n for n in range(len(words)) if _match_at(words, n, query)), 0)
    begin = max(0, first - _WORDS_BEFORE)
    end = min(len(words), begin + _SNIPPET_WORDS)
    start = places[begin][0] if begin else 0
    stop = places[end - 1][1] if end < len(words) else len(text)
    before, after = "…" if start else "", "…" if stop < len(text) else ""
    shift = len(before) - start
    marks: list[tuple[int, int]] = []
    number = begin
    while number < end:
        length = min(_match_at(words, number, query), end - number)
        if length:
            marks.append((places[number][0] + shift, places[number + length - 1][1] + shift))
        number += length or 1
    return before + text[start:stop] + after, tuple(marks)


def _match_at(words: list[str], number: int, query: Query) -> int:
    """Return how many words from here on are a phrase of the query; 0 if none is."""
    return max(
        (
            len(phrase.words)
            for phrase in query.terms
            if len(words) - number >= len(phrase.words)
            and phrase.matches(tuple(words[number : number + len(phrase.words)]))
        ),
        default=0,
    )
