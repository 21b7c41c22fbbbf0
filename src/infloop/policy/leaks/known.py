"""How a known secret may be written in the output of a child.

Rules
  * Values shorter than 8 characters are not looked for, because they occur in ordinary text.
  * Of a long value that looks random, every part of at least `SHORTEST_PART` characters is found,
    whole or not: a shortened line, a wrapped base64 text.
  * Of any other value of at least 16 characters, half counts as the secret in a text that was
    shortened with `…`.

To add a form, write one function and add it to `FORMS`.
"""

from __future__ import annotations

import codecs
import json
from base64 import b64encode, urlsafe_b64encode
from string import ascii_letters, digits
from typing import TYPE_CHECKING, NamedTuple

from infloop.policy.leaks.entropy import entropy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIN_LENGTH = 8
SHORTEST_PART = 16

_RANDOM_LENGTH = 20
_RANDOM_ENTROPY = 3.2
# A shorter base64 text occurs in ordinary words.
_SHORTEST_BASE64 = 12
# What stays as it is in a URL.
_UNRESERVED = frozenset(f"{ascii_letters}{digits}-._~".encode())


class Secret(NamedTuple):
    """A secret, and the name of the detector that markers and warnings show."""

    detector: str
    value: str


class Form(NamedTuple):
    """One way to write a secret.

    offsets   the places of `text` to look for, each of `MIN_LENGTH` bytes
    shortest  the shortest part of `text` that counts; its length, if only the whole counts
    """

    detector: str
    text: bytes
    offsets: range
    shortest: int
    only_shortened: bool = False


def forms(secret: Secret) -> Iterator[Form]:
    """Yield the ways to look for a secret."""
    written: dict[str, bool] = {}
    for text, can_be_part in _written(secret.value):
        if len(text) >= MIN_LENGTH:
            written.setdefault(text, can_be_part)
    random = looks_random(secret.value)
    for text, can_be_part in written.items():
        data = text.encode("utf-8", "surrogatepass")
        if random and can_be_part and len(data) > SHORTEST_PART:
            # Every part of `SHORTEST_PART` bytes holds one of these places whole.
            places = range(0, len(data) - MIN_LENGTH + 1, SHORTEST_PART - MIN_LENGTH)
            yield Form(secret.detector, data, places, SHORTEST_PART)
        else:
            yield Form(secret.detector, data, range(1), len(data))
            for half in _halves(text):
                data = half.encode("utf-8", "surrogatepass")
                yield Form(secret.detector, data, range(1), len(data), only_shortened=True)


def looks_random(value: str) -> bool:
    """Tell whether a part of a value is unlikely to occur in ordinary text."""
    return (
        len(value) >= _RANDOM_LENGTH
        and any(map(str.isdigit, value))
        and not any(map(str.isspace, value))
        and entropy(value) >= _RANDOM_ENTROPY
    )


def _written(value: str) -> Iterator[tuple[str, bool]]:
    """Yield a value in every form, and whether a part of it may be found."""
    for form in FORMS:
        yield form(value), form is _as_is
    if looks_random(value):
        yield value[::-1], False
        yield codecs.encode(value, "rot13"), False
    data = value.encode("utf-8", "surrogatepass")
    if len(data) >= _SHORTEST_BASE64:
        for skipped in range(3):
            # The letters that hold bits of a neighbour are left out.
            covered = data[skipped : skipped + (len(data) - skipped) // 3 * 3]
            for encode in (b64encode, urlsafe_b64encode):
                yield encode(covered).decode(), True


def _halves(text: str) -> Iterator[str]:
    middle = len(text) // 2
    if middle >= MIN_LENGTH:
        yield text[:middle]
        yield text[middle:]


def _as_is(secret: str) -> str:
    return secret


def _in_ascii_json(secret: str) -> str:
    return json.dumps(secret)[1:-1]


def _in_json(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]


def _in_json_twice(secret: str) -> str:
    return _in_ascii_json(_in_ascii_json(secret))


def _in_url(secret: str) -> str:
    data = secret.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in data)


def _in_html(secret: str) -> str:
    from html import escape  # a table of two thousand names comes with it

    return escape(secret)


def _as_bytes(pattern: str) -> Callable[[str], str]:
    """Return a form that writes every byte by a pattern."""

    def write(secret: str) -> str:
        return "".join(pattern % byte for byte in secret.encode("utf-8", "surrogatepass"))

    return write


FORMS: tuple[Callable[[str], str], ...] = (
    *(_as_is, _in_ascii_json, _in_json, _in_json_twice, _in_url, _in_html),
    *(_as_bytes(each) for each in ("%02x", "%02X", "%%%02x", "%%%02X", "\\x%02x", "=%02X")),
    *(_as_bytes(each) for each in ("0x%02x,", "\\u%04x", "&#%d;", "&#x%x;")),
)
