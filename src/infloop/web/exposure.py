"""Who can reach the server at all, and under which names: decided from data, before it listens.

Rules
  * Without a token the server listens on loopback only, unless the operator insists, loudly.
  * A request must name this server in its Host header: a loopback name, the very address that it
    arrived at, or a name that the operator listed. So a name that an attacker's DNS points at this
    machine gets nothing.
  * Without a token nothing is answered that a proxy or a tunnel brought from elsewhere.
  * A token that could be guessed does not open a network address.
  * A web page of another origin gets nothing either, whatever it sends: its Origin or
    Sec-Fetch-Site header gives it away. Another port is another origin.
  * A page can be opened by following a link from elsewhere; below `/api/` nothing can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from infloop.errors import EgressError, SettingsError
from infloop.policy.hosts import canonical_host, parse_authority, parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHORT_TOKEN = 20
"""Fewer visible characters than this cannot hold 128 random bits."""

LOOPBACK_NAME = "localhost"

INSECURE_BANNER = """\
************************************************************************
*  INSECURE: this server listens on {where:<35} *
*  without a token. Whoever reaches it can run commands as you.        *
*  Set INFLOOP_API_TOKEN and unset INFLOOP_ALLOW_INSECURE.             *
************************************************************************"""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What was decided: where to listen, who must say which token, which names are ours."""

    host: str = "127.0.0.1"
    token: str = ""
    allowed_hosts: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    insecure: bool = False

    @property
    def open(self) -> bool:
        """Whether requests need no token."""
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
                f"will not listen on {host!r} without INFLOOP_API_TOKEN: whoever reaches that "
                "address could run commands as you. Set INFLOOP_API_TOKEN (`openssl rand -hex 32` "
                "makes one), or listen on 127.0.0.1"
            )
        warnings.append(INSECURE_BANNER.format(where=host[:35]))
    return Exposure(host, token, names, tuple(warnings), insecure=allow_insecure)


def _refuse_unusable(token: str) -> None:
    """Raise for a token that no header can carry; the token itself is never shown."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise SettingsError(
            "INFLOOP_API_TOKEN must be visible ASCII characters without spaces; "
            "`openssl rand -hex 32` makes one"
        )


def _allowed(name: str) -> str:
    try:
        return canonical_host(name.strip())
    except EgressError as error:
        raise SettingsError(f"INFLOOP_ALLOWED_HOSTS: {error}") from None


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach that address; a name other than localhost is not."""
    if host == LOOPBACK_NAME:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# -- one request -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request says where it comes from; each header in all its occurrences."""

    method: str
    path: str
    host: Sequence[str]
    origin: Sequence[str]
    fetch: Mapping[str, str]
    arrived_at: str
    forwarded: bool = False


def refuse_host(asked: Asked, exposure: Exposure) -> str:
    """Return why the request does not mean this server, or nothing if it does."""
    if len(asked.host) != 1:
        return "a request needs exactly one Host header"
    try:
        name, loopback = _named(asked.host[0])
    except EgressError as error:
        return f"the Host header cannot be read: {error}"
    if loopback or name == asked.arrived_at or name in exposure.allowed_hosts:
        return ""
    return (
        f"this server is not called {name!r}; add the name to INFLOOP_ALLOWED_HOSTS if it should be"
    )


@lru_cache(maxsize=64)
def _named(host: str) -> tuple[str, bool]:
    """Return the name that a Host header holds, and whether it is a loopback one."""
    name, _ = parse_authority(host, 80)
    return name, is_loopback(name)


def refuse_forwarded(asked: Asked, exposure: Exposure) -> str:
    """Return why a request that somebody passed on is not answered, or nothing if it is."""
    if not asked.forwarded or not exposure.open or exposure.insecure:
        return ""
    return (
        "a proxy or a tunnel passed this on, and without a token whoever is behind it could run "
        "commands as you; set INFLOOP_API_TOKEN"
    )


def refuse_origin(asked: Asked) -> str:
    """Return why a web page may not ask this, or nothing if no foreign page is behind it."""
    if _is_navigation(asked):
        return ""
    site = asked.fetch.get("sec-fetch-site", "")
    if site not in ("", "same-origin", "none"):
        return f"a web page of another origin asked this (Sec-Fetch-Site: {site[:20]!r})"
    if not asked.origin:
        return ""
    if len(asked.origin) == 1 and _same_origin(asked.origin[0], asked.host[0]):
        return ""
    return f"a web page of another origin asked this (Origin: {asked.origin[0][:80]!r})"


def _is_navigation(asked: Asked) -> bool:
    """Say whether somebody follows a link to a page, which shows them the page and no one else."""
    return (
        asked.method in ("GET", "HEAD")
        and not asked.path.startswith("/api/")
        and not asked.origin
        and asked.fetch.get("sec-fetch-mode") == "navigate"
        and asked.fetch.get("sec-fetch-dest") == "document"
    )


def _same_origin(origin: str, host: str) -> bool:
    try:
        place = parse_url(origin)
        usual = 443 if place.scheme == "https" else 80
        return place.target == "/" and (place.host, place.port) == parse_authority(host, usual)
    except EgressError:
        return False
