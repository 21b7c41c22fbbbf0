"""Redacts the secrets in values and in streams.

A secret becomes `[redacted:<detector>]`; secrets that overlap become one marker. `on_leak` gets the
names of the detectors, so that a run can say what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from infloop.policy.leaks.known import MIN_LENGTH, Secret, forms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from infloop.model.values import JsonObject, JsonValue
    from infloop.policy.leaks.finder import Leak, LeakFinder
    from infloop.policy.leaks.known import Form
    from infloop.policy.leaks.modes import LeakMode
    from infloop.policy.leaks.rules import LeakRule, Span

OnLeak: TypeAlias = "Callable[[str], None]"
Value = TypeVar("Value", bound="JsonValue")

# What was shown stays known this far: a name that a secret is assigned to, or an escape.
_CONTEXT = 32
_LONG_HELD = 64
BLOCKED = "tool output blocked by leak guard"


def marker(detector: str) -> str:
    """Return what replaces a secret."""
    return f"[redacted:{detector}]"


def _ignore(_: str) -> None:
    pass


class LeakGuard:
    """Knows secrets, which are added and never removed, and rules for unknown ones.

    `rules` returns the rules. They are read when the first text is examined.
    """

    def __init__(
        self,
        secrets: Iterable[Secret] = (),
        rules: Callable[[], Sequence[LeakRule]] = tuple,
        mode: LeakMode = "redact",
    ) -> None:
        self.mode = mode
        self._rules = rules
        self._known: set[str] = set()
        self._forms: list[Form] = []
        self._finder: LeakFinder | None = None
        self.add(secrets)

    @property
    def finder(self) -> LeakFinder:
        """What finds the secrets; made when it is needed, once for secrets that come one by one."""
        if self._finder is None:
            # Not above: a run without effects has no text to examine, and RE2 and the rules take
            # 25 ms to load.
            from infloop.policy.leaks.finder import LeakFinder

            self._finder = LeakFinder(self._forms, self._rules())
        return self._finder

    def __bool__(self) -> bool:
        return self.mode != "off" and bool(self.finder)

    def add(self, secrets: Iterable[Secret]) -> None:
        """Look for these secrets too from now on."""
        for detector, given in secrets:
            value = given.strip()
            if len(value) >= MIN_LENGTH and value not in self._known:
                self._known.add(value)
                self._forms += forms(Secret(detector, value))
                self._finder = None

    def redact(self, value: Value, on_leak: OnLeak = _ignore) -> Value:
        """Return a JSON value without secrets in texts and keys; itself if there are none."""
        if self and self._contains_secret(value):
            redacted = self._redacted(value, on_leak)
            return value if self.mode == "warn" else cast("Value", redacted)
        return value

    def stream(self, on_leak: OnLeak = _ignore) -> RedactingStream:
        """Return a redactor for a text that arrives in chunks."""
        return RedactingStream(self, on_leak)

    def _contains_secret(self, value: JsonValue) -> bool:
        left: list[JsonValue] = [value]
        while left:
            item = left.pop()
            if isinstance(item, str):
                if len(item) >= MIN_LENGTH and self.finder.may_contain(_encoded(item)):
                    return True
            elif isinstance(item, dict):
                left.extend(item)
                left.extend(item.values())
            elif isinstance(item, list):
                left.extend(item)
        return False

    def _redact_text(self, text: str, on_leak: OnLeak) -> str:
        data = _encoded(text)
        leaks = self.finder.find(data)
        return _replaced(data, leaks, 0, len(data), on_leak)[0] if leaks else text

    def _redacted(self, value: JsonValue, on_leak: OnLeak) -> JsonValue:
        """Return a redacted copy; iterative, because the value may be deeply nested."""
        top: list[JsonValue] = [value]
        copies: list[list[JsonValue] | JsonObject] = [top]

        def redact_item(item: JsonValue) -> JsonValue:
            if isinstance(item, str):
                return self._redact_text(item, on_leak)
            if isinstance(item, list):
                copies.append(copy := item.copy())
                return copy
            if isinstance(item, dict):
                made = {self._redact_text(key, on_leak): each for key, each in item.items()}
                copies.append(made)
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
    """Redacts a text that arrives in chunks. The chunks together give the same as the whole text.

    What may be the start of a secret is held back, and so is the rest of a line after a name such
    as `password`. Of a part of a known secret, up to 7 characters may be shown before it is
    recognised.

    A long text that is held is not searched again for each small chunk: `_next_look` is the length
    at which it is.

    `_text` is what is held, and before it `_shown` bytes that were shown. Of what is held, the
    first `_hidden` bytes belong to a secret whose marker was already returned.
    """

    def __init__(self, guard: LeakGuard, on_leak: OnLeak = _ignore) -> None:
        self._guard = guard
        self._on_leak = on_leak
        self._text = b""
        self._shown = 0
        self._hidden = 0
        self._values: dict[str, Span] = {}
        self._next_look = 0

    def feed(self, piece: str) -> str:
        """Add a chunk; return the text that can be shown now."""
        if not self._guard:
            return piece
        is_settled = self._shown == len(self._text) and not self._hidden and not self._values
        self._text += _encoded(piece)
        if len(self._text) < self._next_look:
            return piece if self._guard.mode == "warn" else ""
        finder = self._guard.finder
        if is_settled and finder.holds_nothing(self._text):  # 4 instead of 8 µs for a word
            self._text = self._text[_char_start(self._text, len(self._text) - _CONTEXT) :]
            self._shown = len(self._text)
            return piece
        end = len(self._text) - finder.begun_at_end(self._text)
        return self._show_until(_char_start(self._text, end), piece)

    def finish(self) -> str:
        """Return the rest of the text."""
        return self._show_until(len(self._text), "", is_last=True)

    def _show_until(self, end: int, piece: str, *, is_last: bool = False) -> str:
        if end <= self._shown:
            return "" if self._guard.mode != "warn" else piece
        leaks, undecided, reads = self._guard.finder.find_between(
            self._text, self._shown, end, self._values
        )
        if not is_last:
            end = undecided
        start = self._shown + self._hidden
        shown, covered = _replaced(self._text, leaks, start, end, self._on_leak)
        self._hidden = covered - end
        kept = _char_start(self._text, max(0, end - _CONTEXT))
        self._text, self._shown = self._text[kept:], end - kept
        # The next part reads again from `kept` on, or from `end` on where the keyword is secret.
        for keyword, rule, value in reads:
            if keyword < (kept if rule.secret_group else end):
                self._values[rule.id] = value
        if self._values:
            self._values = {
                name: value._replace(start=value.start - kept, end=value.end - kept)
                for name, value in self._values.items()
                if value.end > kept
            }
        held = len(self._text) - self._shown
        self._next_look = len(self._text) + held // 8 if held > _LONG_HELD else 0
        return piece if self._guard.mode == "warn" else shown


def _replaced(
    data: bytes, leaks: Iterable[Leak], start: int, end: int, on_leak: OnLeak
) -> tuple[str, int]:
    """Replace the secrets that start before `end`; return the text from `start` to `end`.

    What is before `start` is shown already, or covered by an earlier marker. The second result is
    the position up to which the text is covered; it is after `end` if the last secret is.
    """
    output, covered = [], start
    for leak in leaks:
        if leak.start >= end:
            break
        if leak.start >= covered:
            on_leak(leak.detector)
            output += [
                data[covered : _char_start(data, leak.start)],
                marker(leak.detector).encode(),
            ]
        covered = max(covered, _char_end(data, leak.end))
    output.append(data[covered:end])
    return b"".join(output).decode("utf-8", "surrogatepass"), max(covered, end)


def _char_start(data: bytes, at: int) -> int:
    """Return where the character starts that a position is in."""
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:  # a continuation byte of UTF-8
        at -= 1
    return max(at, 0)


def _char_end(data: bytes, at: int) -> int:
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
