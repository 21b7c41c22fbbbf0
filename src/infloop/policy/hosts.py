"""Decides which hosts a connection may go to: the canonical form of a host, and rules for hosts.

Rules
  * A host is a DNS name in lower case or an IP address in its shortest form. Forms that two
    programs could read differently are refused: a trailing dot, brackets except around IPv6, a
    zone, an address written as a number, a user, escapes, characters outside ASCII. Write an
    internationalised name in punycode.
  * A rule is a host, or `*.name` for all names below `name` but not `name` itself. `name` has at
    least two labels.
  * A rule without a port means 443, and 80 for plain HTTP. `host:8443` means that port.
  * An IP address is allowed only by a rule for that address.
  * The lists of provider, workflow and operator are combined. What the operator denies stays
    denied. A denial without a port covers all ports. A denied address covers names that resolve
    to it.
  * Without a matching rule there is no connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.errors import EgressError, SettingsError
from infloop.policy.addresses import refused_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.policy.addresses import Address

Scheme: TypeAlias = Literal["http", "https"]
HostVerdict: TypeAlias = Literal["allowed", "refused"]

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
        raise EgressError(f"{_quoted(text)} is not a host: write a DNS name or an IP address")
    return lowered


def _canonical_address(text: str, lowered: str) -> Address:
    try:
        address = ip_address(lowered)
    except ValueError:
        address = None
    if address is None or (isinstance(address, IPv6Address) and not _is_plain(address, lowered)):
        raise EgressError(f"{_quoted(text)} is not an IP address in its shortest usual form")
    return address


def _is_plain(address: IPv6Address, lowered: str) -> bool:
    return address.ipv4_mapped is None and str(address) == lowered and "%" not in lowered


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse `host:port`; raise EgressError for anything else.

    Only IPv6 addresses may be in brackets. The port is optional only with a `default_port`.
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise EgressError(f"{_quoted(text)} is not host:port")
    host, port = match[1], match[2]
    bracketed = host.startswith("[")
    name = canonical_host(host[1:-1] if bracketed else host)
    if bracketed is not (":" in name):
        raise EgressError(f"{_quoted(text)} has brackets around something else than IPv6")
    if port is None and default_port is not None:
        return name, default_port
    return name, _port(port or "", text)


def _port(digits: str, text: str) -> int:
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise EgressError(f"{_quoted(text)} has no port from 1 to 65535 in plain digits")
    return int(digits)


@dataclass(frozen=True, slots=True)
class HttpUrl:
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
        raise EgressError(f"{_quoted(text)} is not a plain http(s) URL without user and fragment")
    scheme: Scheme = "https" if match[1].lower() == "https" else "http"
    host, port = parse_authority(match[2], DEFAULT_PORTS[scheme])
    target = match[3] or "/"
    return HttpUrl(scheme, host, port, target if target.startswith("/") else f"/{target}")


def authority(host: str, port: int, usual: int | None = None) -> str:
    """Return `host:port`, without the port if it is the usual one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == usual else f"{name}:{port}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a host or all its subdomains, and a port; without a port, the default one."""

    host: str
    subdomains: bool = False
    port: int | None = None

    def __str__(self) -> str:
        host = f"*.{self.host}" if self.subdomains else self.host
        return host if self.port is None else authority(host, self.port)

    def names(self, host: str) -> bool:
        """Tell whether the rule covers this canonical host."""
        return host.endswith(f".{self.host}") if self.subdomains else host == self.host

    def allows(self, host: str, port: int, scheme: Scheme) -> bool:
        """Tell whether the rule allows this port of the host."""
        wanted = DEFAULT_PORTS[scheme] if self.port is None else self.port
        return port == wanted and self.names(host)

    def denies(self, host: str, port: int) -> bool:
        """Tell whether the rule, as a denial, covers this port of the host."""
        return self.port in (None, port) and self.names(host)


def parse_rule(text: str) -> Rule:
    """Parse a rule; raise SettingsError if it is invalid."""
    subdomains = text.startswith("*.")
    rest = text[2:] if subdomains else text
    try:
        if rest.count(":") > 1 and not rest.startswith("["):
            host, port = canonical_host(rest), None
        else:
            host, port = parse_authority(rest, 0)
    except EgressError as error:
        raise SettingsError(f"{_quoted(text)} cannot be a rule for hosts: {error}") from None
    if subdomains and (is_address(host) or "." not in host):
        raise SettingsError(
            f"{_quoted(text)} cannot be a rule for hosts: after '*.' write two labels or more"
        )
    return Rule(host, subdomains, port or None)


def is_address(host: str) -> bool:
    """Tell whether a canonical host is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


@dataclass(frozen=True, slots=True)
class HostDecision:
    """A decision, the reason for people, and the rule that decided, if any."""

    verdict: HostVerdict
    reason: str
    rule: str = ""

    @property
    def allowed(self) -> bool:
        return self.verdict == "allowed"


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules of one owner; `owner` is its name for people: `provider claude`, `the operator`."""

    owner: str
    rules: tuple[Rule, ...] = ()


def parse_rules(owner: str, entries: Iterable[str]) -> HostRules:
    """Parse a list of rules; raise SettingsError for the first invalid one."""
    return HostRules(owner, tuple(map(parse_rule, entries)))


@dataclass(frozen=True, slots=True)
class Allowlist:
    """The hosts that a run may reach: the combined lists, minus the denied hosts."""

    lists: tuple[HostRules, ...] = ()
    denied: HostRules = HostRules("the operator")

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Decide about a canonical host before its name is resolved."""
        for rule in self.denied.rules:
            if rule.denies(host, port):
                return HostDecision("refused", f"denied by {self.denied.owner}", str(rule))
        for entries in self.lists:
            for rule in entries.rules:
                if rule.allows(host, port, scheme):
                    return HostDecision(
                        "allowed", f"in the allowlist of {entries.owner}", str(rule)
                    )
        owners = " or ".join(entries.owner for entries in self.lists if entries.rules)
        return HostDecision(
            "refused", f"not in the allowlist of {owners}" if owners else "no host is listed"
        )

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address of an allowed host is not connected to, or an empty string."""
        text = str(address)
        if any(rule.denies(text, port) for rule in self.denied.rules):
            return f"{host} has an address denied by {self.denied.owner}"
        found = refused_range(address)
        if not found or self._lists_address(text, port):
            return ""
        return f"{host} has a {found} address"

    def _lists_address(self, address: str, port: int) -> bool:
        return any(
            rule.allows(address, port, scheme)
            for entries in self.lists
            for rule in entries.rules
            for scheme in DEFAULT_PORTS
        )


def _quoted(text: str) -> str:
    """Return a short, printable form of untrusted text."""
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
