"""Decides which IP addresses a connection may go to.

Only global unicast addresses are allowed. Loopback, private, cloud metadata and other special
ranges are refused by name, as are IPv4 addresses embedded in IPv6.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Address: TypeAlias = IPv4Address | IPv6Address

LOOPBACK, PRIVATE = "loopback", "private"

# The first matching range gives the name, so narrow ranges come before wide ones.
_RANGES = (
    ("cloud metadata", "169.254.169.254/32 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32"),
    ("cloud metadata", "fd00:ec2::254/128 fd20:ce::254/128"),
    (LOOPBACK, "127.0.0.0/8 ::1/128"),
    (PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
    ("carrier-grade NAT", "100.64.0.0/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("site-local", "fec0::/10"),
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("benchmarking", "198.18.0.0/15 2001:2::/48"),
    ("IPv4 inside IPv6", "::/96 ::ffff:0:0/96 ::ffff:0:0:0/96"),
    ("NAT64", "64:ff9b::/96 64:ff9b:1::/48"),
    ("6to4", "192.88.99.0/24 2002::/16"),
    ("Teredo", "2001::/32"),
    ("ORCHID", "2001:10::/28 2001:20::/28"),
    ("reserved", "192.0.0.0/24 240.0.0.0/4 2001::/23 3ffe::/16"),
    ("reserved", "::/3 4000::/2 8000::/1"),  # all of IPv6 that is not 2000::/3
)


@cache
def _bounds(version: int) -> tuple[tuple[int, int, str], ...]:
    networks = ((ip_network(text), name) for name, texts in _RANGES for text in texts.split())
    return tuple(
        (int(network.network_address), int(network.broadcast_address), name)
        for network, name in networks
        if network.version == version
    )


def refused_range(address: Address) -> str:
    """Return the name of the range that forbids `address`, or an empty string."""
    number = int(address)
    for first, last, name in _bounds(address.version):
        if first <= number <= last:
            return name
    return ""


def refuse_answer(answer: Sequence[str], refuse: Callable[[Address], str]) -> str:
    """Return why a DNS answer is refused as a whole, or an empty string.

    One address for which `refuse` returns a reason is enough.
    """
    for text in answer:
        try:
            address = ip_address(text)
        except ValueError:
            return "an invalid address"
        if why := refuse(address):
            return why
    return "" if answer else "no address"
