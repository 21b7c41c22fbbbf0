"""Which hosts a connection may go to: the one way to write a host, and the rules over it.

Rules
  * A host is a plain DNS name in lower case or an IP address in its shortest form. Everything that
    two programs could read differently is refused: no trailing dot, no brackets but around IPv6, no
    zone, no number that is an address in disguise, no user, no escape, nothing but ASCII. An
    internationalised name is written in punycode.
  * A rule is a host, or `*.name` for every name below it and not itself; `name` has two labels.
  * A rule without a port means 443, and 80 for plain HTTP. `:8443` behind it means that port.
  * An address is allowed only by its own rule.
  * The lists of provider, workflow and operator add up; what the operator denies stays denied. A
    denial without a port is for all ports; one of an address binds names that resolve to it too.
  * No rule, no connection.
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
Verdict: TypeAlias = Literal["allowed", "refused"]

DEFAULT_PORTS: dict[Scheme, int] = {"https": 443, "http": 80}

_MAX_NAME = 253

# Our own fixed patterns: no nested repeats over the same characters.
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)  # noqa: TID251
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # noqa: TID251
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)  # noqa: TID251
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::([^:]*))?", re.ASCII | re.IGNORECASE)  # noqa: TID251
_URL = re.compile(r"(https?)://([^/?#]*)([/?][!-~]*)?", re.ASCII | re.IGNORECASE)  # noqa: TID251


def canonical_host(text: str) -> str:
    """Return the one way to write a host; raise EgressError for what is not plainly one."""
    lowered = text.lower() if text.isascii() else ""
    if ":" in lowered or _NUMBER.fullmatch(lowered.rpartition(".")[2]):
        return str(_canonical_address(text, lowered))
    if len(lowered) > _MAX_NAME or not all(map(_LABEL.fullmatch, lowered.split("."))):
        raise EgressError(f"{_shown(text)} is not a host: write a DNS name or an IP address")
    return lowered


def _canonical_address(text: str, lowered: str) -> Address:
    try:
        address = ip_address(lowered)
    except ValueError:
        address = None
    if address is None or (isinstance(address, IPv6Address) and not _is_plain(address, lowered)):
        raise EgressError(f"{_shown(text)} is not an IP address in its shortest usual form")
    return address


def _is_plain(address: IPv6Address, lowered: str) -> bool:
    return address.ipv4_mapped is None and str(address) == lowered and "%" not in lowered


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Return host and port of `host:port`; raise EgressError for anything else.

    Only IPv6 addresses stand in brackets, and only a `default_port` makes the port optional.
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise EgressError(f"{_shown(text)} is not host:port")
    host, port = match[1], match[2]
    bracketed = host.startswith("[")
    name = canonical_host(host[1:-1] if bracketed else host)
    if bracketed is not (":" in name):
        raise EgressError(f"{_shown(text)} has brackets around something else than IPv6")
    if port is None and default_port is not None:
        return name, default_port
    return name, _port(port or "", text)


def _port(digits: str, text: str) -> int:
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise EgressError(f"{_shown(text)} has no port from 1 to 65535 in plain digits")
    return int(digits)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a URL leads: whom to ask, and for what."""

    scheme: Scheme
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host and, unless it is the scheme's own, the port: what a Host header says."""
        return authority(self.host, self.port, DEFAULT_PORTS[self.scheme])


def parse_url(text: str) -> Place:
    """Return where an absolute http(s) URL leads; raise EgressError for anything doubtful.

    It has no user, no fragment, no backslash, no blank and no control character.
    """
    match = _URL.fullmatch(text)
    if match is None or "\\" in text or "#" in text:
        raise EgressError(f"{_shown(text)} is not a plain http(s) URL without user and fragment")
    scheme: Scheme = "https" if match[1].lower() == "https" else "http"
    host, port = parse_authority(match[2], DEFAULT_PORTS[scheme])
    target = match[3] or "/"
    return Place(scheme, host, port, target if target.startswith("/") else f"/{target}")


def authority(host: str, port: int, usual: int | None = None) -> str:
    """Return `host:port` as it is written, without the port if it is the usual one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == usual else f"{name}:{port}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of a list: a host, or all names below it; a port, or the usual one."""

    host: str
    below: bool = False
    port: int | None = None

    def __str__(self) -> str:
        host = f"*.{self.host}" if self.below else self.host
        return host if self.port is None else authority(host, self.port)

    def names(self, host: str) -> bool:
        """Say whether the rule is about this canonical host."""
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def allows(self, host: str, port: int, scheme: Scheme) -> bool:
        """Say whether the rule opens this port of the host."""
        wanted = DEFAULT_PORTS[scheme] if self.port is None else self.port
        return port == wanted and self.names(host)

    def denies(self, host: str, port: int) -> bool:
        """Say whether the rule, as a denial, closes this port of the host."""
        return self.port in (None, port) and self.names(host)


def parse_rule(text: str) -> Rule:
    """Read one entry of a list; raise SettingsError for one that is not exactly a rule."""
    below = text.startswith("*.")
    rest = text[2:] if below else text
    try:
        if rest.count(":") > 1 and not rest.startswith("["):
            host, port = canonical_host(rest), None
        else:
            host, port = parse_authority(rest, 0)
    except EgressError as error:
        raise SettingsError(f"{_shown(text)} cannot be a rule for hosts: {error}") from None
    if below and (is_address(host) or "." not in host):
        raise SettingsError(
            f"{_shown(text)} cannot be a rule for hosts: after '*.' write two labels or more"
        )
    return Rule(host, below, port or None)


def is_address(host: str) -> bool:
    """Say whether a canonical host is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


@dataclass(frozen=True, slots=True)
class Ruling:
    """An answer and why: the reason is for people, the rule is the entry that decided, if any."""

    verdict: Verdict
    reason: str
    rule: str = ""

    @property
    def allowed(self) -> bool:
        """Whether to go on."""
        return self.verdict == "allowed"


@dataclass(frozen=True, slots=True)
class RuleList:
    """Somebody's rules. `owner` is how people call them: `provider claude`, `the operator`."""

    owner: str
    rules: tuple[Rule, ...] = ()


def rule_list(owner: str, entries: Iterable[str]) -> RuleList:
    """Read somebody's list; raise SettingsError for the first entry that is not a rule."""
    return RuleList(owner, tuple(map(parse_rule, entries)))


@dataclass(frozen=True, slots=True)
class Allowlist:
    """What a run may reach: everybody's lists together, less what is denied."""

    lists: tuple[RuleList, ...] = ()
    denied: RuleList = RuleList("the operator")

    def judge(self, host: str, port: int, scheme: Scheme) -> Ruling:
        """Decide about a canonical host before its name is resolved."""
        for rule in self.denied.rules:
            if rule.denies(host, port):
                return Ruling("refused", f"denied by {self.denied.owner}", str(rule))
        for entries in self.lists:
            for rule in entries.rules:
                if rule.allows(host, port, scheme):
                    return Ruling("allowed", f"in the allowlist of {entries.owner}", str(rule))
        owners = " or ".join(entries.owner for entries in self.lists if entries.rules)
        return Ruling(
            "refused", f"not in the allowlist of {owners}" if owners else "no host is listed"
        )

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address of an allowed host is not dialled, or nothing."""
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


def _shown(text: str) -> str:
    """Return a short, printable form of what somebody sent."""
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
