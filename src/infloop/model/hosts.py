"""Hosts and URLs in their canonical form.

A host is a DNS name in lower case or an IP address in its shortest form. Forms that two programs
could read differently are refused: a trailing dot, brackets except around IPv6, a zone, an address
written as a number, a user, escapes, characters outside ASCII. Write an internationalised name in
punycode.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, TypeAlias

import msgspec

from infloop.errors import EgressError

Scheme: TypeAlias = Literal["http", "https"]

DEFAULT_PORTS: dict[Scheme, int] = {"https": 443, "http": 80}

_MAX_NAME = 253

# Our own fixed patterns: no nested repeats over the same characters.
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)  # noqa: TID251
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # noqa: TID251
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)  # noqa: TID251
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::([^:]*))?", re.ASCII | re.IGNORECASE)  # noqa: TID251
_URL = re.compile(r"(https?)://([^/?#]*)([/?][!-~]*)?", re.ASCII | re.IGNORECASE)  # noqa: TID251


def canonical_host(text: str) -> str:
    """Return the canonical form of a host; raise EgressError if it is ambiguous or invalid."""
    lowered = text.lower() if text.isascii() else ""
    if ":" in lowered or _NUMBER.fullmatch(lowered.rpartition(".")[2]):
        return str(_canonical_address(text, lowered))
    if len(lowered) > _MAX_NAME or not all(map(_LABEL.fullmatch, lowered.split("."))):
        raise EgressError(f"{quoted(text)} is not a host: write a DNS name or an IP address")
    return lowered


def _canonical_address(text: str, lowered: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(lowered)
    except ValueError:
        address = None
    if address is None or (isinstance(address, IPv6Address) and not _is_plain(address, lowered)):
        raise EgressError(f"{quoted(text)} is not an IP address in its shortest usual form")
    return address


def _is_plain(address: IPv6Address, lowered: str) -> bool:
    return address.ipv4_mapped is None and str(address) == lowered and "%" not in lowered


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse `host:port`; raise EgressError for anything else.

    Only IPv6 addresses may be in brackets. The port is optional only with a `default_port`.
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise EgressError(f"{quoted(text)} is not host:port")
    host, port = match[1], match[2]
    bracketed = host.startswith("[")
    name = canonical_host(host[1:-1] if bracketed else host)
    if bracketed is not (":" in name):
        raise EgressError(f"{quoted(text)} has brackets around something else than IPv6")
    if port is None and default_port is not None:
        return name, default_port
    return name, _port(port or "", text)


def _port(digits: str, text: str) -> int:
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise EgressError(f"{quoted(text)} has no port from 1 to 65535 in plain digits")
    return int(digits)


class HttpUrl(msgspec.Struct, frozen=True):
    """A parsed http(s) URL; `target` is its path and query."""

    scheme: Scheme
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The value of a Host header: the host, and the port unless it is the default."""
        return authority(self.host, self.port, DEFAULT_PORTS[self.scheme])


def parse_url(text: str) -> HttpUrl:
    """Parse an absolute http(s) URL; raise EgressError for an ambiguous one.

    It must not have a user, a fragment, a backslash, a space or a control character.
    """
    match = _URL.fullmatch(text)
    if match is None or "\\" in text or "#" in text:
        raise EgressError(f"{quoted(text)} is not a plain http(s) URL without user and fragment")
    scheme: Scheme = "https" if match[1].lower() == "https" else "http"
    host, port = parse_authority(match[2], DEFAULT_PORTS[scheme])
    target = match[3] or "/"
    return HttpUrl(scheme, host, port, target if target.startswith("/") else f"/{target}")


def authority(host: str, port: int, usual: int | None = None) -> str:
    """Return `host:port`, without the port if it is the usual one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == usual else f"{name}:{port}"


def is_address(host: str) -> bool:
    """Tell whether a canonical host is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def sender_network(remote: str) -> str:
    """Return the key under which a sender is counted: an IPv4 address or an IPv6 /64 network."""
    try:
        address = ip_address(remote.partition("%")[0])
    except ValueError:
        return remote[:64]
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, 64), strict=False))
    return str(address)


def quoted(text: str) -> str:
    """Return a short, printable form of untrusted text."""
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
