"""Finds known secrets and tokens in a text.

A few bytes of every known secret and the keywords of rules are looked for first. Only where one of
them is, the secrets and the rules are compared. A child can print nothing but keywords, so a rule
does not read the same long value again for each keyword in it.

Keywords are one RE2 pattern. Known secrets are thousands of literals, for which RE2 computes the
states of its automaton while it reads: with 200 secrets that takes as long as the search itself for
the first 20 MB. `Literals` has them all from the start.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import re2

from infloop.policy.leaks.known import MIN_LENGTH
from infloop.policy.leaks.literals import Literals, Words
from infloop.policy.leaks.rules import Span, is_boundary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from infloop.policy.leaks.known import Form
    from infloop.policy.leaks.rules import LeakRule

_ELLIPSIS = "…".encode()
_FIRST = 2  # keywords are grouped by their first two bytes


# In the first half of a value of at least this many bytes a rule looks for no other value: what it
# would find there ends where this one does, or half a value later.
_LONG = 128
_SHORT = 512
_NO_VALUES: Mapping[str, Span] = {}


class Leak(NamedTuple):
    """A secret in a text, in bytes."""

    start: int
    end: int
    detector: str


class _Place(NamedTuple):
    form: Form
    offset: int


class _Keyword(NamedTuple):
    literal: bytes
    rule: LeakRule
    ignores_case: bool


class Read(NamedTuple):
    """A value that a rule has read, whether or not it was a secret."""

    keyword: int
    rule: LeakRule
    value: Span


class Found(NamedTuple):
    """The secrets in a part of a text by their start, and what the next part needs to know.

    leaks      the secrets; they may overlap
    undecided  the first secret that could be longer if the text went on, or the end of the part
    reads      what the rules have read, in the order of the text
    """

    leaks: list[Leak]
    undecided: int
    reads: list[Read]


class LeakFinder:
    """Finds the forms of known secrets, and what the rules describe."""

    def __init__(self, forms: Iterable[Form], rules: Sequence[LeakRule]) -> None:
        self._places: dict[bytes, list[_Place]] = {}
        self._keywords: dict[bytes, list[_Keyword]] = {}
        for form in forms:
            for offset in form.offsets:
                literal = form.text[offset : offset + MIN_LENGTH]
                self._places.setdefault(literal, []).append(_Place(form, offset))
        for rule in rules:
            for word in rule.keywords:
                keyword = _Keyword(word.encode(), rule, rule.ignores_case)
                self._keywords.setdefault(keyword.literal[:_FIRST].lower(), []).append(keyword)
        keywords = [each for group in self._keywords.values() for each in group]
        self._any_place = Literals([*self._places], MIN_LENGTH)
        self._any_keyword = _any_of(keywords)
        self._all_keywords = keywords
        tokens = _beginnings(each.literal for each in keywords if not each.rule.secret_group)
        # What a text may end with, and whether that counts only behind a boundary.
        self._begun = dict.fromkeys(tokens, True) | dict.fromkeys(_beginnings(self._places), False)
        self._begun_lengths = _lengths_by_last_byte(self._begun)

    def __bool__(self) -> bool:
        return bool(self._places or self._keywords)

    def may_contain(self, data: bytes) -> bool:
        """Tell whether a text needs a closer look."""
        if self._any_keyword is not None and self._any_keyword.search(data):
            return True
        return any(True for _ in self._any_place.find(data, 0, len(data)))

    def holds_nothing(self, data: bytes) -> bool:
        """Tell whether a short text surely holds no secret, nor the start of one at its end.

        So it is with nearly all pieces of a token stream. In 40 bytes the words are found in a
        third of the time that RE2 needs; in 4 KiB of code they take longer.
        """
        return (
            len(data) <= _SHORT
            and not self.begun_at_end(data)
            and not self._any_place.find(data, 0, len(data))
            and not self._keyword_words.occur_in(data)
        )

    @cached_property
    def _keyword_words(self) -> Words:
        """All keywords; made when the first stream needs them."""
        return Words(each.literal for each in self._all_keywords)

    def find(self, data: bytes) -> list[Leak]:
        """Return the secrets in a text by their start; they may overlap."""
        return self.find_between(data, 0, len(data)).leaks

    def find_between(
        self, data: bytes, start: int, end: int, values: Mapping[str, Span] = _NO_VALUES
    ) -> Found:
        """Return the secrets that start in a part of a text.

        A name that a secret is assigned to may be before `start`. `values` is the last value that
        each rule has read before the text.
        """
        places = self._any_place.find(data, start, end)
        keyword = self._any_keyword and self._any_keyword.search(data)
        if not places and not keyword:  # so it is with most chunks of a stream
            return Found([], end, [])
        known, known_undecided = self._find_known(data, start, end, places)
        tokens, undecided, reads = self._find_tokens(data, start, end, values)
        leaks = sorted(known + tokens, key=_start)
        return Found(leaks, min(undecided, known_undecided), reads)

    def _find_known(
        self, data: bytes, start: int, end: int, places: Iterable[tuple[int, bytes]]
    ) -> tuple[list[Leak], int]:
        leaks: list[Leak] = []
        undecided = end
        is_shortened: bool | None = None  # a long search, which most texts do not need
        for here, literal in places:
            if is_shortened is None:
                is_shortened = _ELLIPSIS in data
            for form, offset in self._places[literal]:
                if is_shortened or not form.only_shortened:
                    leak, is_open = _common(data, start, here, form, offset)
                    if is_open:
                        undecided = min(undecided, leak.start)
                    if leak.end - leak.start >= form.shortest:
                        leaks.append(leak)
        return leaks, undecided

    def _find_tokens(
        self, data: bytes, start: int, end: int, last_values: Mapping[str, Span]
    ) -> Found:
        leaks: list[Leak] = []
        reads: list[Read] = []
        at, undecided = 0, end
        while (
            self._any_keyword is not None
            and (found := self._any_keyword.search(data, at))
            and (here := found.start()) < end
        ):
            at = here + 1
            for literal, rule, _ in self._keywords_at(data, here):
                if here < start and not rule.secret_group:
                    continue
                if (last := last_values.get(rule.id)) and _is_in_first_half(here, last):
                    continue
                window, is_open = rule.window_end(data, here)
                if is_open:
                    name = len(literal) if rule.secret_group else 0
                    undecided = min(undecided, max(start, here + name))
                if value := rule.value_at(data, here, window):
                    last_values = {**last_values, rule.id: value}
                    reads.append(Read(here, rule, value))
                    if rule.is_secret(data[value.start : value.end]):
                        leaks.append(Leak(*value, rule.id))
        return Found(leaks, undecided, reads)

    def begun_at_end(self, data: bytes) -> int:
        """Return how many bytes at the end of a text may be the start of a secret."""
        for size in self._begun_lengths.get(data[-1], ()) if data else ():
            if size <= len(data):
                needs_boundary = self._begun.get(data[-size:])
                if needs_boundary is False or (
                    needs_boundary and is_boundary(data, len(data) - size)
                ):
                    return size
        return 0

    def _keywords_at(self, data: bytes, at: int) -> Iterator[_Keyword]:
        for keyword in self._keywords.get(data[at : at + _FIRST].lower(), ()):
            literal = keyword.literal
            if keyword.ignores_case:
                same = data[at : at + len(literal)].lower() == literal
            else:
                same = data.startswith(literal, at)
            if same and keyword.rule.may_start(data, at):
                yield keyword


def _is_in_first_half(at: int, value: Span) -> bool:
    length = value.end - value.start
    return length >= _LONG and value.start <= at < value.start + length // 2


def _common(data: bytes, start: int, at: int, form: Form, offset: int) -> tuple[Leak, bool]:
    """Return what a form and a text from `start` on have in common around a place.

    The second result tells whether it may go on after the text.
    """
    begin, first = at, offset
    while begin > start and first and data[begin - 1] == form.text[first - 1]:
        begin, first = begin - 1, first - 1
    end, last = at, offset
    while end < len(data) and last < len(form.text) and data[end] == form.text[last]:
        end, last = end + 1, last + 1
    return Leak(begin, end, form.detector), end == len(data) and last < len(form.text)


def _beginnings(words: Iterable[bytes]) -> frozenset[bytes]:
    """Return what a word may begin with; not the word itself."""
    return frozenset(word[:end] for word in words for end in range(1, len(word)))


def _lengths_by_last_byte(words: Iterable[bytes]) -> dict[int, list[int]]:
    """Return how long the words are that end with a byte, the longest first.

    Few words end with the byte that a text ends with, none with a space. To try every length took 5
    to 9 µs for each piece of a stream, this takes 0.2 to 5 µs.
    """
    lengths: dict[int, set[int]] = {}
    for word in words:
        lengths.setdefault(word[-1], set()).add(len(word))
    return {byte: sorted(sizes, reverse=True) for byte, sizes in lengths.items()}


def _start(leak: Leak) -> int:
    return leak.start


def _any_of(keywords: Sequence[_Keyword]) -> re2._Regexp[bytes] | None:
    """Return a pattern for any of the keywords."""
    parts = {
        b"(?i:" + re2.escape(each.literal) + b")" if each.ignores_case else re2.escape(each.literal)
        for each in keywords
    }
    if not parts:
        return None
    options = re2.Options()
    options.never_capture = True
    return re2.compile(b"|".join(sorted(parts)), options)
