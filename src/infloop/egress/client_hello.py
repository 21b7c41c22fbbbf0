"""Reads the server name in a TLS ClientHello, strictly.

A tunnel may only carry TLS with the host it was opened to. The server name in the ClientHello must
be that host, or be missing if the host is an address. A ClientHello with an encrypted name (ECH) is
refused, because its visible name is not the real one. Browsers send an imitation of one with every
ClientHello, which cannot be told apart; it is allowed for a browser whose requests are judged.
"""

from __future__ import annotations

import struct

import msgspec

from infloop.model.hosts import is_address

MAX_HELLO = 32 << 10

_TOO_LARGE = f"the ClientHello is larger than {MAX_HELLO} bytes"

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_MAX_RECORD, _MAX_RECORDS = 1 << 14, 32
_SERVER_NAME, _HOST_NAME = 0, 0
_HIDDEN_NAMES = frozenset((0xFE0D, 0xFFCE))  # ECH, and ESNI before it

_two_numbers = struct.Struct(">HH").unpack_from
_one_name = struct.Struct(">HBH").unpack_from


class NotHello(Exception):
    """The data is not an acceptable ClientHello; the text says why."""


class Hello(msgspec.Struct, frozen=True):
    """The visible server name of a ClientHello, and whether another one is encrypted."""

    server_name: str
    hidden: bool


def hello_refusal(
    data: bytes | bytearray, host: str, *, hidden_allowed: bool = False
) -> str | None:
    """Return why a tunnel to `host` may not carry this; "" if it may; None while incomplete."""
    try:
        hello = read_hello(data)
    except NotHello as why:
        return str(why)
    if hello is None:
        return None
    if hello.hidden and not hidden_allowed:
        return "the TLS client encrypts the server name (ECH)"
    wanted = "" if is_address(host) else host
    if hello.server_name.lower() != wanted:
        given = hello.server_name[:100]
        return f"the TLS client asks for {given!r} in a tunnel to {host!r}"
    return ""


def read_hello(data: bytes | bytearray) -> Hello | None:
    """Return the ClientHello in `data`, in one or more records; None while it is incomplete."""
    message = _message(data)
    if message is None and len(data) > 2 * MAX_HELLO:
        raise NotHello(_TOO_LARGE)
    return None if message is None else _parse(message)


def _message(data: bytes | bytearray) -> bytes | None:
    """Join the records of the handshake message; None while it is incomplete."""
    message = bytearray()
    position = records = announced = 0
    while position < len(data):
        records += 1
        if records > _MAX_RECORDS:
            raise NotHello("the ClientHello has too many records")
        if data[position] != _HANDSHAKE:
            raise NotHello("the tunnel does not carry TLS")
        if position + 5 > len(data):
            return None
        major, size = data[position + 1], int.from_bytes(data[position + 3 : position + 5], "big")
        if major != 3 or not 0 < size <= _MAX_RECORD:
            raise NotHello("the tunnel does not carry TLS")
        message += data[position + 5 : position + 5 + size]
        announced += size
        position += 5 + size
        if message and message[0] != _CLIENT_HELLO:
            raise NotHello("TLS does not begin with a ClientHello")
        if len(message) >= 4:
            wanted = 4 + int.from_bytes(message[1:4], "big")
            if wanted > MAX_HELLO:
                raise NotHello(_TOO_LARGE)
            if announced > wanted:
                raise NotHello("the ClientHello does not end with its record")
            if len(message) == wanted:
                return bytes(message[4:])
    return None


def _parse(body: bytes) -> Hello:
    try:
        return _extensions(body, _extensions_offset(body))
    except (IndexError, struct.error):
        raise NotHello("the ClientHello contains a length beyond its end") from None


def _extensions_offset(body: bytes) -> int:
    """Return where the extensions begin: after five fields, three of them with a length."""
    at: int = 2 + 32  # version and random
    at += 1 + body[at]  # session id
    at += 2 + _two_bytes(body, at)  # cipher suites
    return at + 1 + body[at]  # compression


def _two_bytes(body: bytes, at: int) -> int:
    return (body[at] << 8) + body[at + 1]


def _extensions(body: bytes, at: int) -> Hello:
    name, seen = "", set[int]()
    if at < len(body):
        at += 2
        if at + _two_bytes(body, at - 2) != len(body):
            raise NotHello("the ClientHello does not end with its extensions")
    while at < len(body):
        kind, size = _two_numbers(body, at)
        content = body[at + 4 : at + 4 + size]
        at += 4 + size
        if kind in seen:
            raise NotHello("the ClientHello has an extension twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _server_name(content)
    if at != len(body):
        raise NotHello("the ClientHello contains a length beyond its end")
    return Hello(name, not seen.isdisjoint(_HIDDEN_NAMES))


def _server_name(content: bytes) -> str:
    listed, kind, size = _one_name(content)
    name = content[5:]
    if listed != len(content) - 2 or size != len(name) or kind != _HOST_NAME or not name:
        raise NotHello("the ClientHello does not name exactly one server")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise NotHello("the ClientHello names a server that is not ASCII") from None
