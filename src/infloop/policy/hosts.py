"""Decides which hosts a connection may go to.

Rules
  * Hosts are written in their canonical form (`model.hosts`).
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

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.errors import EgressError, SettingsError
from infloop.model.hosts import (
    DEFAULT_PORTS,
    Scheme,
    authority,
    canonical_host,
    is_address,
    parse_authority,
    quoted,
)
from infloop.policy.addresses import refused_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.policy.addresses import Address


HostVerdict: TypeAlias = Literal["allowed", "refused"]


class Rule(msgspec.Struct, frozen=True):
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
        raise SettingsError(f"{quoted(text)} cannot be a rule for hosts: {error}") from None
    if subdomains and (is_address(host) or "." not in host):
        raise SettingsError(
            f"{quoted(text)} cannot be a rule for hosts: after '*.' write two labels or more"
        )
    return Rule(host, subdomains, port or None)


class HostDecision(msgspec.Struct, frozen=True):
    """A decision, the reason for people, and the rule that decided, if any."""

    verdict: HostVerdict
    reason: str
    rule: str = ""

    @property
    def allowed(self) -> bool:
        return self.verdict == "allowed"


class HostRules(msgspec.Struct, frozen=True):
    """The rules of one owner; `owner` is its name for people: `provider claude`, `the operator`."""

    owner: str
    rules: tuple[Rule, ...] = ()


def parse_rules(owner: str, entries: Iterable[str]) -> HostRules:
    """Parse a list of rules; raise SettingsError for the first invalid one."""
    return HostRules(owner, tuple(map(parse_rule, entries)))


class Allowlist(msgspec.Struct, frozen=True):
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
