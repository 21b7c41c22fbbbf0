"""Removes known secrets from the output of children, also across chunk boundaries.

Rules
  * A secret is found in the forms that `FORMS` lists. Other forms (base64, reversed, split) are not
    found: this protects against accidents, not against deliberate smuggling.
  * Values shorter than 8 characters are ignored, because they occur in ordinary text.
  * In a truncated text, which contains `…`, half of a secret counts as the secret.
  * Overlapping secrets are replaced by one marker.

To add a form, write one function and add it to `FORMS`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from infloop.model.values import JsonObject, JsonValue

MARKER = "[redacted]"
MIN_LENGTH = 8

_ELLIPSIS = "…"

Value = TypeVar("Value", bound="JsonValue")


class KnownSecrets:
    """The secrets to redact; secrets are added, never removed."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._whole = SecretMatcher(())
        self._whole_and_halves = self._whole
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._whole)

    def add(self, values: Iterable[str]) -> None:
        """Redact these values too from now on."""
        new = {each for value in values if len(each := value.strip()) >= MIN_LENGTH} - self._values
        if new:
            self._values |= new
            forms = {form(value) for value in self._values for form in FORMS}
            self._whole = SecretMatcher(forms)
            self._whole_and_halves = SecretMatcher(
                forms | {half for form in forms for half in _halves(form)}
            )

    def redact(self, value: Value) -> Value:
        """Return a JSON value without secrets in texts and keys; itself if there are none."""
        if self._whole and self._contains_secret(value):
            return cast("Value", self._redacted(value))
        return value

    def stream(self) -> RedactingStream:
        """Return a redactor for a text that arrives in chunks."""
        return RedactingStream(self)

    def matcher(self, text: str) -> SecretMatcher:
        """Return the matcher for a text, which depends on whether it was truncated."""
        return self._whole_and_halves if _ELLIPSIS in text else self._whole

    def _contains_secret(self, value: JsonValue) -> bool:
        left: list[JsonValue] = [value]
        while left:
            item = left.pop()
            if isinstance(item, str):
                if len(item) >= MIN_LENGTH and self.matcher(item).occur_in(item):
                    return True
            elif isinstance(item, dict):
                left.extend(item)
                left.extend(item.values())
            elif isinstance(item, list):
                left.extend(item)
        return False

    def _redact_text(self, text: str) -> str:
        return self.matcher(text).replace(text, 0, len(text))[0]

    def _redacted(self, value: JsonValue) -> JsonValue:
        """Return a redacted copy; iterative, because the value may be deeply nested."""
        top: list[JsonValue] = [value]
        copies: list[list[JsonValue] | JsonObject] = [top]

        def redact_item(item: JsonValue) -> JsonValue:
            if isinstance(item, str):
                return self._redact_text(item)
            if isinstance(item, list):
                copies.append(copy := item.copy())
                return copy
            if isinstance(item, dict):
                copies.append(made := {self._redact_text(key): each for key, each in item.items()})
                return made
            return item

        while copies:
            copy = copies.pop()
            if isinstance(copy, list):
                copy[:] = map(redact_item, copy)
            else:
                copy.update({key: redact_item(each) for key, each in copy.items()})
        return top[0]


class RedactingStream:
    """Redacts a text that arrives in chunks.

    Text that may be the start of a secret is held back until more arrives. The first `_hidden`
    characters of it belong to a secret whose marker was already returned. All chunks together give
    the same result as the whole text.
    """

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._held = ""
        self._hidden = 0

    def feed(self, piece: str) -> str:
        """Add a chunk; return the text that can be shown now."""
        matcher = self._known.matcher(piece)
        if not matcher:
            return piece
        text = self._held + piece if self._held else piece
        end = matcher.partial_match_start(text)
        output, covered = matcher.replace(text, self._hidden, end)
        self._held, self._hidden = text[end:], covered - end
        return output

    def finish(self) -> str:
        """Return the rest of the text."""
        text, hidden = self._held, self._hidden
        self._held, self._hidden = "", 0
        return self._known.matcher(text).replace(text, hidden, len(text))[0]


class SecretMatcher:
    """Finds a set of words and replaces them by the marker."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(words, key=len, reverse=True)
        self._longest = len(self._words[0]) if self._words else 0
        self._shortest = len(self._words[-1]) if self._words else 0
        # By two characters, and by one, because a text may end with the first one.
        self._by_prefix: dict[str, list[str]] = {}
        for word in self._words:
            for prefix in (word[:2], word[:1]):
                self._by_prefix.setdefault(prefix, []).append(word)
        prefixes = (re.escape(each) + r"\Z" * (len(each) == 1) for each in self._by_prefix)
        # Escaped literals only: no repeats.
        self._prefix = re.compile("|".join(prefixes) or "(?!)")  # noqa: TID251
        self._any = re.compile("|".join(map(re.escape, self._words)))  # noqa: TID251

    def __bool__(self) -> bool:
        return bool(self._words)

    def occur_in(self, text: str) -> bool:
        """Tell whether any of the words is in a text."""
        if len(text) >= self._shortest:
            for word in self._words:  # a loop is faster than any(), and every output passes here
                if word in text:
                    return True
        return False

    def replace(self, text: str, hidden: int, end: int) -> tuple[str, int]:
        """Replace the words that start before `end`; return the text up to `end`.

        The first `hidden` characters are covered by an earlier marker. The second result is the
        position up to which the text is covered; it is after `end` if the last word is.
        """
        output, at, covered = "", 0, hidden
        if self.occur_in(text):
            while (found := self._any.search(text, at)) and found.start() < end:
                at = found.start() + 1
                if found.start() >= covered:
                    output += text[covered : found.start()] + MARKER
                covered = max(covered, found.end())
        return output + text[covered:end], max(covered, end)

    def partial_match_start(self, text: str) -> int:
        """Return where a word may start that continues after this text."""
        at = max(0, len(text) - self._longest + 1)
        while found := self._prefix.search(text, at):
            at = found.start()
            for word in self._by_prefix[found.group()]:
                if len(word) > len(text) - at and word.startswith(text[at:]):
                    return at
            at += 1
        return len(text)


def _as_is(secret: str) -> str:
    return secret


def _in_ascii_json(secret: str) -> str:
    return json.dumps(secret)[1:-1]


def _in_json(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]


FORMS: tuple[Callable[[str], str], ...] = (_as_is, _in_ascii_json, _in_json)
"""How a secret may be written in the output of a child."""


def _halves(form: str) -> Iterator[str]:
    middle = len(form) // 2
    if middle >= MIN_LENGTH:
        yield form[:middle]
        yield form[middle:]
