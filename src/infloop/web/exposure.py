"""Who can reach the server, and under which names. Pure decisions from data.

Rules
  * Without a token the server listens on loopback only, unless the operator insists, loudly.
  * Without a token, connections of another user of this machine are refused. Root may connect. A
    connection whose user is not known is refused.
  * A request must name this server in its Host header: a loopback name or the address that it
    arrived at, with its own port or none, or a name that the operator listed. This stops DNS
    rebinding. On a network address the port is not compared: it may be published under another.
  * Without a token, requests that a proxy or a tunnel forwarded are refused.
  * A short token is refused on a network address.
  * Requests of a web page of another origin are refused by their Origin or Sec-Fetch-Site header.
    Another port is another origin.
  * A link from elsewhere can open a page; it cannot open anything below `/api/`.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from infloop.errors import EgressError, SettingsError
from infloop.model.hosts import canonical_host, parse_authority, parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHORT_TOKEN = 20
"""Fewer visible characters than this cannot hold 128 random bits."""

LOOPBACK_NAME = "localhost"

INSECURE_BANNER = """\
************************************************************************
*  INSECURE: this server listens on {where:<35} *
*  without a token. Anybody who reaches it can run commands as you.    *
*  Set INFLOOP_API_TOKEN and unset INFLOOP_ALLOW_INSECURE.             *
************************************************************************"""


AllowedHost: TypeAlias = "tuple[str, int | None]"
"""A name of the server, and its port; None means any port."""


class Exposure(msgspec.Struct, frozen=True):
    """Where to listen, which token is needed, and under which names."""

    host: str = "127.0.0.1"
    token: str = ""
    allowed_hosts: frozenset[AllowedHost] = frozenset()
    warnings: tuple[str, ...] = ()
    insecure: bool = False
    any_user: bool = False
    """Whether every user of this machine may connect without a token."""

    @property
    def open(self) -> bool:
        return not self.token


def decide_exposure(
    host: str, token: str, allowed_hosts: Sequence[str] = (), *, allow_insecure: bool = False
) -> Exposure:
    """Return how the server may be reached; raise SettingsError if that would be open to all."""
    warnings: list[str] = []
    names = frozenset(_allowed(name) for name in allowed_hosts if name.strip())
    _refuse_unusable(token)
    if token and len(token) < SHORT_TOKEN:
        short = (
            f"INFLOOP_API_TOKEN has only {len(token)} characters; use at least {SHORT_TOKEN}, "
            "such as `openssl rand -hex 32` prints"
        )
        if not is_loopback(host) and not allow_insecure:
            raise SettingsError(f"will not listen on {host!r}: {short}")
        warnings.append(short)
    if not is_loopback(host) and not token:
        if not allow_insecure:
            raise SettingsError(
                f"will not listen on {host!r} without INFLOOP_API_TOKEN: anybody who reaches "
                "that address could run commands as you. Use `--token auto`, set INFLOOP_API_TOKEN "
                "(`openssl rand -hex 32` makes one), or listen on 127.0.0.1"
            )
        warnings.append(INSECURE_BANNER.format(where=host[:35]))
    return Exposure(
        host, token, names, tuple(warnings), insecure=allow_insecure, any_user=allow_insecure
    )


def _refuse_unusable(token: str) -> None:
    """Raise for a token that no header can carry; the token itself is never shown."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise SettingsError(
            "INFLOOP_API_TOKEN must be visible ASCII characters without spaces; "
            "`openssl rand -hex 32` makes one"
        )


def _allowed(name: str) -> AllowedHost:
    text = name.strip()
    try:
        if text.startswith("[") or text.count(":") == 1:
            host, port = parse_authority(text, _NO_PORT)
            return host, port or None
        return canonical_host(text), None
    except EgressError as error:
        raise SettingsError(f"INFLOOP_ALLOWED_HOSTS: {error}") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; of names only localhost counts."""
    if host == LOOPBACK_NAME:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# -- one connection --------------------------------------------------------------------------


def refuse_user(peer: int | None, own: int, exposure: Exposure) -> str:
    """Return why a connection of user `peer` is refused, or an empty text.

    `own` is the server's user. `peer` is None if the user is not known.
    """
    if not exposure.open or exposure.any_user or peer in (own, 0):
        return ""
    who = "of an unknown user" if peer is None else f"of user {peer}"
    return (
        f"this is a connection {who}, and without a token only user {own} and root may use this "
        "server. Start it with `infloop serve --token auto`, or set INFLOOP_API_TOKEN. A reverse "
        "proxy that runs as another user needs a token too"
    )


# -- one request -----------------------------------------------------------------------------


class RequestOrigin(msgspec.Struct, frozen=True):
    """The parts of a request that say where it comes from; headers in all their occurrences."""

    method: str
    path: str
    host: Sequence[str]
    origin: Sequence[str]
    fetch: Mapping[str, str]
    arrived_at: tuple[str, int]
    forwarded: bool = False


def refuse_host(request: RequestOrigin, exposure: Exposure) -> str:
    """Return why the Host header is not acceptable, or an empty text."""
    if len(request.host) != 1:
        return "a request needs exactly one Host header"
    try:
        name, port, loopback = _named(request.host[0])
    except EgressError as error:
        return f"the Host header cannot be read: {error}"
    if (name, None) in exposure.allowed_hosts or (name, port) in exposure.allowed_hosts:
        return ""
    address, own_port = request.arrived_at
    called = name if port is None else f"{name}:{port}"
    # A container or a router can publish the port of a network address under another number.
    right_port = port in (None, own_port) or not is_loopback(exposure.host)
    if (loopback or name == address) and right_port:
        return ""
    return (
        f"this server is not called {called!r}; add that to INFLOOP_ALLOWED_HOSTS if it should be"
    )


@lru_cache(maxsize=64)
def _named(host: str) -> tuple[str, int | None, bool]:
    """Return the name and the port in a Host header, and whether it is a loopback name."""
    name, port = parse_authority(host, _NO_PORT)
    return name, port or None, is_loopback(name)


_NO_PORT = 0


def refuse_forwarded(request: RequestOrigin, exposure: Exposure) -> str:
    """Return why a forwarded request is refused, or an empty text."""
    if not request.forwarded or not exposure.open or exposure.insecure:
        return ""
    return (
        "a proxy or a tunnel forwarded this request, and without a token anybody behind it could "
        "run commands as you; set INFLOOP_API_TOKEN"
    )


def refuse_origin(request: RequestOrigin) -> str:
    """Return why a request of a web page is refused, or an empty text."""
    if _is_navigation(request):
        return ""
    site = request.fetch.get("sec-fetch-site", "")
    if site not in ("", "same-origin", "none"):
        return f"a web page of another origin request this (Sec-Fetch-Site: {site[:20]!r})"
    if not request.origin:
        return ""
    if len(request.origin) == 1 and _same_origin(request.origin[0], request.host[0]):
        return ""
    return f"a web page of another origin request this (Origin: {request.origin[0][:80]!r})"


def _is_navigation(request: RequestOrigin) -> bool:
    """Return whether somebody follows a link to a page; the linking site does not see it."""
    return (
        request.method in ("GET", "HEAD")
        and not request.path.startswith("/api/")
        and not request.origin
        and request.fetch.get("sec-fetch-mode") == "navigate"
        and request.fetch.get("sec-fetch-dest") == "document"
    )


def _same_origin(origin: str, host: str) -> bool:
    try:
        place = parse_url(origin)
        usual = 443 if place.scheme == "https" else 80
        return place.target == "/" and (place.host, place.port) == parse_authority(host, usual)
    except EgressError:
        return False
