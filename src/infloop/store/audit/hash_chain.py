"""The hash chain: each line contains the hash of the line before it, and its own.

- A line is JSON in plain ASCII, so no value can start a new line or control a terminal.
- Its last member is `hash`: the SHA-256 of the same object without that member.
- The member before it is `prev`: the hash of the line before.
- Every entry has exactly one encoding. A line in another encoding is not intact.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.audit import AuditEntry

if TYPE_CHECKING:
    from infloop.model.audit import AuditEvent
    from infloop.model.values import JsonObject

FIRST_PREV = "0" * 64
"""The `prev` of the very first line."""

_decode = msgspec.json.Decoder(AuditEntry).decode
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Link(NamedTuple):
    """A line, and its hash, which is the `prev` of the next line."""

    line: bytes
    hash: str


def seal(fact: AuditEvent, prev: str) -> Link:
    """Return the line for `fact` after the line whose hash is `prev`."""
    return _sealed({**msgspec.to_builtins(fact), "prev": prev})


def _sealed(members: JsonObject) -> Link:
    body = _encode(members)
    name = hashlib.sha256(body.encode("ascii")).hexdigest()
    return Link(f'{body[:-1]},"hash":"{name}"}}\n'.encode("ascii"), name)


def read_line(line: bytes) -> AuditEntry | None:
    """Return the entry of a line, intact or not, or None if it has none."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def hash_of(line: bytes) -> str:
    """Return the hash for the next line: the line's own, or that of its bytes if not an entry."""
    entry = read_line(line)
    return entry.hash if entry else hashlib.sha256(line).hexdigest()


def flaw_of(line: bytes, prev: str | None) -> str:
    """Return what is wrong with a line that should follow `prev`, or an empty text.

    Without `prev` the line is the first that is left: it must be the very first, or the entry about
    a rotation.
    """
    if not line.endswith(b"\n"):
        return "it is cut off; the next entry sets the piece aside"
    try:
        members = json.loads(line)
        own = members.pop("hash")
        link = _sealed(members)
        before, event = members["prev"], members["event"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "it is not an entry"
    if link.hash != own:
        return "what it says does not fit its hash: it was changed"
    if link.line != line:
        return "it is not written as infloop writes"
    if before != prev and not (prev is None and (before == FIRST_PREV or event == "audit.rotated")):
        return "it does not follow the line before it: lines were removed, added or moved"
    return ""
