"""Parses what a child sends to its proxy, strictly: bytes in, a request or a refusal out.

Rules:

- Three requests exist: `CONNECT host:port` (a tunnel), `METHOD http://host/…` (plain HTTP,
  forwarded) and `METHOD /…` (for the proxy itself). Everything else is refused.
- A head has at most 16 KiB and 100 fields, in lines that end in CR LF, without folding, control
  characters or unexpected spaces.
- The Host field, if any, matches the target. HTTP/1.1 has exactly one.
- A body has a length or is chunked, never both. A tunnel has none.
- What is forwarded is built from the parsed values, field by field.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from infloop.errors import EgressError
from infloop.model.hosts import DEFAULT_PORTS, parse_authority, parse_url
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.model.hosts import HttpUrl

MAX_HEAD = 16 << 10
MAX_FIELDS = 100

# Our own fixed patterns: no nested repeats over the same characters.
_REQUEST_LINE = re.compile(rb"([A-Z]{3,10}) ([!-~]{1,8000}) HTTP/1\.([01])")  # noqa: TID251
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")  # noqa: TID251
_LENGTH = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)  # noqa: TID251

_FORWARDED = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SINGLE = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "content-type", "connection", "expect"),
        *("authorization", "proxy-authorization", "x-api-key"),
    )
)
_HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host"),
        *("http2-settings", "content-length"),
    )
)


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused, and the status of the response."""

    status: int
    reason: str


class Head(msgspec.Struct, frozen=True):
    """The head of a request; field names are in lower case, values unchanged."""

    method: str
    target: str
    version: int
    fields: Mapping[str, str]

    @property
    def length(self) -> int | None:
        """The size of the body; None if it is chunked."""
        if "transfer-encoding" in self.fields:
            return None
        return int(self.fields.get("content-length", "0"))

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.target) + sum(len(name) + len(text) for name, text in self.fields.items())

    def forwarded_fields(self) -> dict[str, str]:
        """Return the fields without the hop-by-hop ones."""
        named = {name.strip().lower() for name in self.fields.get("connection", "").split(",")}
        return {
            name: value
            for name, value in self.fields.items()
            if name not in _HOP_BY_HOP and name not in named
        }


class Tunnel(msgspec.Struct, frozen=True):
    """Open a tunnel to a host."""

    host: str
    port: int


class Forward(msgspec.Struct, frozen=True):
    """Forward a plain HTTP request to a host."""

    place: HttpUrl


class Local(msgspec.Struct, frozen=True):
    """A request for the proxy itself."""

    path: str


ProxyRequest: TypeAlias = Tunnel | Forward | Local


def read_head(data: bytes | bytearray) -> tuple[Head, int] | Refusal | None:
    """Return the head at the start of `data` and its size; None while it is incomplete."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
    if end < 0:
        return _early_refusal(data)
    lines = bytes(data[:end]).split(b"\r\n")
    first = _REQUEST_LINE.fullmatch(lines[0])
    if first is None:
        return Refusal(400, "the request line is not METHOD TARGET HTTP/1.1")
    if len(lines) > MAX_FIELDS + 1:
        return Refusal(431, f"there are more than {MAX_FIELDS} header fields")
    fields = _fields(lines[1:])
    if isinstance(fields, Refusal):
        return fields
    head = Head(first[1].decode(), first[2].decode(), int(first[3]), fields)
    return _framing(head) or (head, end + 4)


def _early_refusal(data: bytes | bytearray) -> Refusal | None:
    """Refuse data that can no longer become a head."""
    if len(data) >= MAX_HEAD:
        return Refusal(431, f"the head is larger than {MAX_HEAD} bytes")
    if data and not 65 <= data[0] <= 90:
        return Refusal(400, "this is not an HTTP request")
    if data.count(b"\n") != data.count(b"\r\n"):
        return Refusal(400, "a line does not end in CR LF")
    return None


def _fields(lines: Sequence[bytes]) -> dict[str, str] | Refusal:
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            return Refusal(400, "a header field is not NAME: VALUE on one line")
        name, value = match[1].decode().lower(), match[2].decode("latin-1").rstrip(" \t")
        if name not in fields:
            fields[name] = value
        elif name in _SINGLE:
            return Refusal(400, f"the field {name!r} is given twice")
        else:
            fields[name] += f", {value}"
    return fields


def _framing(head: Head) -> Refusal | None:
    coding = head.fields.get("transfer-encoding")
    length = head.fields.get("content-length")
    if coding is not None and (length is not None or coding != "chunked" or head.version == 0):
        return Refusal(400, "the body must either be chunked or have one content length")
    if length is not None and not _LENGTH.fullmatch(length):
        return Refusal(400, "the content length is not a plain number")
    if head.fields.get("expect", "100-continue").lower() != "100-continue":
        return Refusal(417, "Expect allows only 100-continue")
    return None


def parse_request(head: Head) -> ProxyRequest | Refusal:
    """Return the request that a head makes."""
    try:
        if head.method == "CONNECT":
            return _tunnel(head)
        if head.method not in _FORWARDED:
            return Refusal(405, f"the method {head.method} is not forwarded")
        if head.target.startswith("/"):
            return Local(head.target)
        return _forward(head)
    except EgressError as error:
        return Refusal(400, str(error))


def _tunnel(head: Head) -> Tunnel | Refusal:
    host, port = parse_authority(head.target)
    if head.length != 0:
        return Refusal(400, "CONNECT must not have a body")
    return _mismatch(head, host, port, port) or Tunnel(host, port)


def _forward(head: Head) -> Forward | Refusal:
    place = parse_url(head.target)
    if place.scheme != "http":
        return Refusal(400, "use CONNECT for https")
    return _mismatch(head, place.host, place.port, DEFAULT_PORTS["http"]) or Forward(place)


def _mismatch(head: Head, host: str, port: int, default_port: int) -> Refusal | None:
    given = head.fields.get("host")
    if given is None and head.version == 0:
        return None
    if given is None or parse_authority(given, default_port) != (host, port):
        return Refusal(400, "the Host field does not match the target")
    return None


def has_token(head: Head, token: str) -> bool:
    """Return whether a request has the run's token, as the password of Basic or as Bearer."""
    scheme, _, given = head.fields.get("proxy-authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            token_given = given.strip()
        case "basic":
            try:
                token_given = (
                    b64decode(given.strip(), validate=True).decode("latin-1").partition(":")[2]
                )
            except (binascii.Error, ValueError):
                return False
        case _:
            return False
    return same_secret(token_given, token)


def refusal_response(refusal: Refusal, json_body: bytes | None = None) -> bytes:
    """Return the whole response to a refused request: with this body, or with its reason."""
    body = json_body or f"{refusal.reason}\n".encode("utf-8", "backslashreplace")
    kind = "application/json" if json_body else "text/plain; charset=utf-8"
    challenge = 'proxy-authenticate: Basic realm="infloop"\r\n' if refusal.status == 407 else ""
    head = (
        f"HTTP/1.1 {refusal.status} {_PHRASES.get(refusal.status, 'Refused')}\r\n"
        f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        f"{challenge}connection: close\r\n\r\n"
    )
    return head.encode() + body


_PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
