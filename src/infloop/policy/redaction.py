"""Known secrets are taken out of what children say, wherever it is cut into pieces.

Rules
  * A secret is found as it is, and as JSON writes it. Any other form of it (base64, backwards, in
    two parts) is not: this is for what slips out, not against who wants to smuggle.
  * What is shorter than 8 characters is not looked for: it would be found in ordinary text.
  * In a text that was shortened, as its `…` says, half of a secret is taken for the secret.
  * Where secrets overlap there is one marker for all of them, and nothing is left of any.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infloop.model.values import JsonObject, JsonValue

MARKER = "[redacted]"
SHORTEST = 8

_SHORTENED = "…"

Value = TypeVar("Value", bound="JsonValue")


class KnownSecrets:
    """Secrets that nobody is to read; what is known once stays known."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._whole = Words(())
        self._parts = self._whole
        self.learn(values)

    def __bool__(self) -> bool:
        return bool(self._whole)

    def learn(self, values: Iterable[str]) -> None:
        """Look for these as well from now on."""
        new = {each for value in values if len(each := value.strip()) >= SHORTEST} - self._values
        if new:
            self._values |= new
            forms = {form for value in self._values for form in _forms(value)}
            self._whole = Words(forms)
            self._parts = Words(forms | {half for form in forms for half in _halves(form)})

    def clean(self, value: Value) -> Value:
        """Return a JSON value without secrets, in its texts and keys: itself if there are none."""
        if self._whole and self._is_in(value):
            return cast("Value", self._cleaned(value))
        return value

    def stream(self) -> CleanStream:
        """Return what cleans a text that comes in pieces."""
        return CleanStream(self)

    def words(self, text: str) -> Words:
        """Return what to look for in a text."""
        return self._parts if _SHORTENED in text else self._whole

    def _is_in(self, value: JsonValue) -> bool:
        left: list[JsonValue] = [value]
        while left:
            item = left.pop()
            if isinstance(item, str):
                if len(item) >= SHORTEST and self.words(item).are_in(item):
                    return True
            elif isinstance(item, dict):
                left.extend(item)
                left.extend(item.values())
            elif isinstance(item, list):
                left.extend(item)
        return False

    def _text(self, text: str) -> str:
        return self.words(text).replaced(text, 0, len(text))[0]

    def _cleaned(self, value: JsonValue) -> JsonValue:
        """Return a copy without secrets; it may be nested deeper than calls can be."""
        top: list[JsonValue] = [value]
        copies: list[list[JsonValue] | JsonObject] = [top]

        def cleaned(item: JsonValue) -> JsonValue:
            if isinstance(item, str):
                return self._text(item)
            if isinstance(item, list):
                copies.append(copy := item.copy())
                return copy
            if isinstance(item, dict):
                copies.append(made := {self._text(key): each for key, each in item.items()})
                return made
            return item

        while copies:
            copy = copies.pop()
            if isinstance(copy, list):
                copy[:] = map(cleaned, copy)
            else:
                copy.update({key: cleaned(each) for key, each in copy.items()})
        return top[0]


class CleanStream:
    """Takes secrets out of a text that comes in pieces.

    What may be the beginning of a secret is held back until it is known whether it is; of that,
    the first `_hidden` characters are part of another secret, whose marker has been shown. All
    pieces together become what the whole text would.
    """

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._held = ""
        self._hidden = 0

    def feed(self, piece: str) -> str:
        """Take the next piece; return what can be shown by now."""
        words = self._known.words(piece)
        if not words:
            return piece
        text = self._held + piece if self._held else piece
        end = words.unsure_from(text)
        shown, covered = words.replaced(text, self._hidden, end)
        self._held, self._hidden = text[end:], covered - end
        return shown

    def finish(self) -> str:
        """Return what was held back and turned out to be nothing."""
        text, hidden = self._held, self._hidden
        self._held, self._hidden = "", 0
        return self._known.words(text).replaced(text, hidden, len(text))[0]


class Words:
    """Words to be replaced by the marker."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(words, key=len, reverse=True)
        self._longest = len(self._words[0]) if self._words else 0
        self._shortest = len(self._words[-1]) if self._words else 0
        # By their first two letters, and by the first: a text may end with it.
        self._by_beginning: dict[str, list[str]] = {}
        for word in self._words:
            for beginning in (word[:2], word[:1]):
                self._by_beginning.setdefault(beginning, []).append(word)
        beginnings = (re.escape(each) + r"\Z" * (len(each) == 1) for each in self._by_beginning)
        # Plain words and letters: no repeats.
        self._beginning = re.compile("|".join(beginnings) or "(?!)")  # noqa: TID251
        self._any = re.compile("|".join(map(re.escape, self._words)))  # noqa: TID251

    def __bool__(self) -> bool:
        return bool(self._words)

    def are_in(self, text: str) -> bool:
        """Say whether any of them is in a text."""
        if len(text) >= self._shortest:
            for word in self._words:  # a loop: it is done for every text that a child prints
                if word in text:
                    return True
        return False

    def replaced(self, text: str, hidden: int, end: int) -> tuple[str, int]:
        """Return a text up to its `end` with the marker in place of words that begin before it.

        So many characters are `hidden` already, by a marker before this text. With it comes how
        far the text is covered: beyond its end if the last word reaches beyond.
        """
        shown, at, covered = "", 0, hidden
        if self.are_in(text):
            while (found := self._any.search(text, at)) and found.start() < end:
                at = found.start() + 1
                if found.start() >= covered:
                    shown += text[covered : found.start()] + MARKER
                covered = max(covered, found.end())
        return shown + text[covered:end], max(covered, end)

    def unsure_from(self, text: str) -> int:
        """Return where the first word may have begun that ends after this text."""
        at = max(0, len(text) - self._longest + 1)
        while found := self._beginning.search(text, at):
            at = found.start()
            for word in self._by_beginning[found.group()]:
                if len(word) > len(text) - at and word.startswith(text[at:]):
                    return at
            at += 1
        return len(text)


def _forms(value: str) -> set[str]:
    """Return a secret as it is, and as JSON writes it, with and without letters beyond ASCII."""
    written = (json.dumps(value), json.dumps(value, ensure_ascii=False))
    return {value, *(each[1:-1] for each in written)}


def _halves(form: str) -> Iterator[str]:
    middle = len(form) // 2
    if middle >= SHORTEST:
        yield form[:middle]
        yield form[middle:]
