"""The policy of a client for tools: every public address, and one private place if permitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.lowlevel.own_ports import is_own_port
from infloop.policy.addresses import LOOPBACK, PRIVATE, refused_range
from infloop.policy.hosts import HostDecision

if TYPE_CHECKING:
    from infloop.model.hosts import Scheme
    from infloop.policy.addresses import Address
    from infloop.policy.hosts import Allowlist


class PublicHosts:
    """Allows public addresses. Which hosts a tool may ask is decided by `policy.egress_rules`.

    `hosts` are those of the run, None for all; addresses that are refused there are refused here.

    `private` is a host and port that may be on this machine or network; not a metadata service, and
    not a server of infloop, which would take our requests for those of its user.
    """

    def __init__(
        self, private: tuple[str, int] | None = None, hosts: Allowlist | None = None
    ) -> None:
        self._private = private
        self._hosts = hosts

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Allow every host: its addresses decide."""
        return HostDecision("allowed", "every public host")

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address is refused; empty if it is allowed."""
        found = refused_range(address)
        is_permitted = (host, port) == self._private and found in (LOOPBACK, PRIVATE)
        if found and not is_permitted:
            return f"{host} has a {found} address"
        if is_own_port(address, port):
            return f"{host} is a server of infloop"
        return self._hosts.refuse_address(host, port, address) if self._hosts else ""
