"""What a child may say to its proxy, read strictly: bytes in, an order or a refusal out.

Rules
  * Three orders exist: `CONNECT host:port` (a tunnel), `METHOD http://host/…` (plain HTTP, passed
    on) and `METHOD /…` (meant for the proxy itself). Everything else is refused.
  * A head is complete, at most 16 KiB and 100 fields, in lines that end in CR LF, without folding,
    control characters, or blanks where none belong.
  * The Host field, if any, says the same as the target; HTTP/1.1 has exactly one.
  * A body has a length or is chunked, never both; a tunnel has none.
  * What is passed on is built anew from what was understood here, field by field.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from infloop.errors import EgressError
from infloop.policy.hosts import DEFAULT_PORTS, parse_authority, parse_url
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.policy.hosts import HttpUrl

MAX_HEAD = 16 << 10
MAX_FIELDS = 100

# Our own fixed patterns: no nested repeats over the same characters.
_REQUEST_LINE = re.compile(rb"([A-Z]{3,10}) ([!-~]{1,8000}) HTTP/1\.([01])")  # noqa: TID251
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")  # noqa: TID251
_LENGTH = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)  # noqa: TID251

_PASSED_ON = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_ONCE = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "content-type", "connection", "expect"),
        *("authorization", "proxy-authorization", "x-api-key"),
    )
)
_BETWEEN_NEIGHBOURS = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host"),
        *("http2-settings", "content-length"),
    )
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order is not carried out, and the status that says so."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Head:
    """A request's first part: field names are in lower case, values as they came."""

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
        """About how many bytes of it the child wrote."""
        return len(self.target) + sum(len(name) + len(text) for name, text in self.fields.items())

    def passed_on(self) -> dict[str, str]:
        """Return the fields that are for the other side and not for us."""
        named = {name.strip().lower() for name in self.fields.get("connection", "").split(",")}
        return {
            name: value
            for name, value in self.fields.items()
            if name not in _BETWEEN_NEIGHBOURS and name not in named
        }


@dataclass(frozen=True, slots=True)
class Tunnel:
    """Open a tunnel to a host."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass a plain HTTP request on to a host."""

    place: HttpUrl


@dataclass(frozen=True, slots=True)
class Local:
    """Answer a request yourself."""

    path: str


Order: TypeAlias = Tunnel | Forward | Local


def read_head(data: bytes | bytearray) -> tuple[Head, int] | Refusal | None:
    """Return the head that `data` begins with and its size; None while it is incomplete."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
    if end < 0:
        return _doubt(data)
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


def _doubt(data: bytes | bytearray) -> Refusal | None:
    """Refuse early what can no longer become a head."""
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
        elif name in _ONCE:
            return Refusal(400, f"the field {name!r} is given twice")
        else:
            fields[name] += f", {value}"
    return fields


def _framing(head: Head) -> Refusal | None:
    coding = head.fields.get("transfer-encoding")
    length = head.fields.get("content-length")
    if coding is not None and (length is not None or coding != "chunked" or head.version == 0):
        return Refusal(400, "the body is neither plainly chunked nor of one length")
    if length is not None and not _LENGTH.fullmatch(length):
        return Refusal(400, "the content length is not a plain number")
    if head.fields.get("expect", "100-continue").lower() != "100-continue":
        return Refusal(417, "only 100-continue can be expected")
    return None


def understand(head: Head) -> Order | Refusal:
    """Return what a request asks for."""
    try:
        if head.method == "CONNECT":
            return _tunnel(head)
        if head.method not in _PASSED_ON:
            return Refusal(405, f"the method {head.method} is not passed on")
        if head.target.startswith("/"):
            return Local(head.target)
        return _forward(head)
    except EgressError as error:
        return Refusal(400, str(error))


def _tunnel(head: Head) -> Tunnel | Refusal:
    host, port = parse_authority(head.target)
    if head.length != 0:
        return Refusal(400, "CONNECT has no body")
    return _mismatch(head, host, port, port) or Tunnel(host, port)


def _forward(head: Head) -> Forward | Refusal:
    place = parse_url(head.target)
    if place.scheme != "http":
        return Refusal(400, "https goes through CONNECT")
    return _mismatch(head, place.host, place.port, DEFAULT_PORTS["http"]) or Forward(place)


def _mismatch(head: Head, host: str, port: int, default_port: int) -> Refusal | None:
    said = head.fields.get("host")
    if said is None and head.version == 0:
        return None
    if said is None or parse_authority(said, default_port) != (host, port):
        return Refusal(400, "the Host field does not say what the target says")
    return None


def holds_token(head: Head, token: str) -> bool:
    """Say whether a request shows the run's token, as the password of Basic or as Bearer."""
    scheme, _, said = head.fields.get("proxy-authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            shown = said.strip()
        case "basic":
            try:
                shown = b64decode(said.strip(), validate=True).decode("latin-1").partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        case _:
            return False
    return same_secret(shown, token)


def refusal_answer(refusal: Refusal) -> bytes:
    """Return the whole answer to an order that is refused."""
    body = f"{refusal.reason}\n".encode("utf-8", "backslashreplace")
    challenge = 'proxy-authenticate: Basic realm="infloop"\r\n' if refusal.status == 407 else ""
    head = (
        f"HTTP/1.1 {refusal.status} {_PHRASES.get(refusal.status, 'Refused')}\r\n"
        f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
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
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
