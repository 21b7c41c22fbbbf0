"""Decides where a browser may connect, by the egress rules of its tools.

Rules
  * The proxy of a browser sees the host and port of an encrypted connection, and nothing more. So
    it allows a host that any rule allows. Paths and methods are compared for each request before
    the browser sends it (`tools.browser.request_guard`).
  * A WebSocket is no such request. WebSockets are open only if every rule of the browser allows
    them on its whole host, because then the host says everything.
  * A private address is refused, unless its host and port were permitted for this browser. That is
    forgotten with the first page on another host. The addresses of cloud metadata and the like are
    always refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.model.hosts import authority
from infloop.policy.addresses import LOOPBACK, PRIVATE, refused_range
from infloop.policy.egress_rules import decide_request
from infloop.policy.hosts import HostDecision

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infloop.model.agent_config import EgressRule
    from infloop.model.hosts import Scheme
    from infloop.policy.addresses import Address
    from infloop.policy.hosts import Allowlist

RULE_NAME = "browser_navigate"
"""The tool that a rule names to hold for all requests of a browser."""


class BrowserHosts:
    """The hosts that one browser may reach; `hosts` are those of its run, None for all."""

    def __init__(self, rules: Sequence[EgressRule], hosts: Allowlist | None = None) -> None:
        self._rules = tuple(replace(rule, path_prefix="", methods=()) for rule in rules)
        self._hosts = hosts
        self._private: set[tuple[str, int]] = set()

    def permit_private(self, host: str, port: int) -> None:
        """Allow private addresses of a host and port."""
        self._private.add((host, port))

    def entered(self, host: str, port: int) -> None:
        """Forget what was permitted, unless the page is now on a permitted host.

        The page of a stranger must not use what was permitted for a page before it.
        """
        if (host, port) not in self._private:
            self._private.clear()

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Decide about a canonical host before its name is resolved."""
        place = f"{authority(host, port)}/"
        # Encrypted HTTP and encrypted WebSockets look the same to a proxy.
        schemes = ("http",) if scheme == "http" else ("https", "wss")
        decisions = [self._decide(f"{each}://{place}") for each in schemes]
        return next((each for each in decisions if each.allowed), decisions[0])

    def _decide(self, url: str) -> HostDecision:
        decision = decide_request(self._rules, RULE_NAME, "GET", url, self._hosts)
        return HostDecision("allowed" if decision.allowed else "refused", decision.reason)

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address of an allowed host is not connected to, or an empty string."""
        found = refused_range(address)
        permitted = (host, port) in self._private and found in (LOOPBACK, PRIVATE)
        if found and not permitted:
            return f"{host} has a {found} address"
        return self._hosts.refuse_address(host, port, address) if self._hosts else ""


def rules_of_pages(rules: Iterable[EgressRule]) -> tuple[EgressRule, ...]:
    """Return the rules for the address of a page that is open: with any method."""
    return tuple(replace(rule, methods=()) for rule in rules)


def websockets_are_open(rules: Iterable[EgressRule]) -> bool:
    """Tell whether the host alone decides about every WebSocket of a browser."""
    return all(
        not rule.path_prefix
        and (not rule.methods or "GET" in map(str.upper, rule.methods))
        and (not rule.schemes or "wss" in rule.schemes)
        for rule in rules
        if rule.tool in ("*", RULE_NAME)
    )
