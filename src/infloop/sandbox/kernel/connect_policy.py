"""Decides where a confined child may connect, from the bytes of its socket address.

A policy returns the address that the connect broker uses, or raises ConnectRefused.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import msgspec

from infloop.lowlevel.own_ports import is_own_port

if TYPE_CHECKING:
    from collections.abc import Mapping

Peer: TypeAlias = tuple[str, int]
"""An IP address and a port."""

OWN_PORT = "a server of infloop listens there"
NOT_A_PEER = "it is neither the proxy of this child nor a local port that its workflow allows"

_FAMILY = struct.Struct("=H")
_INET, _INET6, _SCOPE = struct.Struct("!2xH4s"), struct.Struct("!2xH4x16s"), struct.Struct("=24xI")
_NETLINK = struct.Struct("=4xII")
_INET_BYTES, _INET6_BYTES = 16, 24
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class ConnectRefused(OSError):
    """A connection that the child may not make."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(errno.EACCES, reason)
        self.errno: int = errno.EACCES
        self.host = host
        self.port = port
        self.reason = reason


class ConnectPolicy(Protocol):
    """Where a child may connect."""

    def check(self, address: bytes, family: int, kind: int) -> bytes:
        """Return the socket address to connect a socket of this family and kind to.

        Raises ConnectRefused for one that is not allowed, OSError for one that makes no sense.
        """


class OpenNetwork(msgspec.Struct, frozen=True):
    """Everywhere, except to the ports of infloop's own servers.

    `users` are those whose announcements of ports count besides our own.
    """

    users: tuple[int, ...] = ()

    def check(self, address: bytes, family: int, kind: int) -> bytes:
        """Return the address as it is."""
        named = _family(address)
        if family == socket.AF_NETLINK:
            return _kernel_only(address)
        if family not in _INTERNET or named not in (*_INTERNET, socket.AF_UNSPEC):
            raise OSError(errno.EAFNOSUPPORT, "not an internet address")
        if kind == socket.SOCK_STREAM and named != socket.AF_UNSPEC:
            destination = Destination.parse(address)
            _refuse_own_port(destination, self.users)
        return address


class ClosedNetwork(msgspec.Struct, frozen=True):
    """Only to peers. They map addresses, as the child names them, to the real ones."""

    peers: Mapping[Peer, Peer]
    users: tuple[int, ...] = ()

    def check(self, address: bytes, family: int, kind: int) -> bytes:
        """Return the real address of a peer."""
        if family not in _INTERNET or kind != socket.SOCK_STREAM or _family(address) != family:
            raise OSError(errno.EAFNOSUPPORT, "not an address of this kind of socket")
        named = Destination.parse(address)
        host, port = named.peer
        if (host, port) not in self.peers:
            raise ConnectRefused(host, port, NOT_A_PEER)
        real_host, real_port = self.peers[host, port]
        real = Destination(ipaddress.ip_address(real_host), real_port)
        _refuse_own_port(real, self.users)
        return real.for_family(family)


class Destination(NamedTuple):
    """An internet address, a port, and the interface of a link-local address."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    scope: int = 0

    @classmethod
    def parse(cls, address: bytes) -> Destination:
        """Return what the bytes of an internet address mean; OSError if they are too few."""
        if _family(address) == socket.AF_INET and len(address) >= _INET_BYTES:
            port, packed = _INET.unpack_from(address)
            return cls(ipaddress.IPv4Address(packed), port)
        if _family(address) == socket.AF_INET6 and len(address) >= _INET6_BYTES:
            port, packed = _INET6.unpack_from(address)
            scope = _SCOPE.unpack_from(address)[0] if len(address) >= _SCOPE.size else 0
            six = ipaddress.IPv6Address(packed)
            return cls(six.ipv4_mapped or six, port, scope)
        raise OSError(errno.EINVAL, "the socket address is too short")

    @property
    def peer(self) -> Peer:
        return str(self.address), self.port

    def for_family(self, family: int) -> bytes:
        """Return the bytes of this address for a socket of that family."""
        if family == socket.AF_INET6:
            packed = self.address.packed
            if self.address.version == 4:
                packed = bytes(10) + b"\xff\xff" + packed
            head = _FAMILY.pack(family) + struct.pack("!H4x16s", self.port, packed)
            return head + struct.pack("=I", self.scope)
        if self.address.version == 6:
            raise OSError(errno.EAFNOSUPPORT, "the socket is for IPv4 only")
        return _FAMILY.pack(family) + struct.pack("!H4s8x", self.port, self.address.packed)


def _refuse_own_port(destination: Destination, users: tuple[int, ...]) -> None:
    address, port, scope = destination
    if is_own_port(address, port, scope=scope, users=users):
        raise ConnectRefused(str(address), port, OWN_PORT)


def _family(address: bytes) -> int:
    if len(address) < _FAMILY.size:
        raise OSError(errno.EINVAL, "the socket address is too short")
    return int(_FAMILY.unpack_from(address)[0])


def _kernel_only(address: bytes) -> bytes:
    """Return a netlink address if it names the kernel.

    The broker may have more rights than the child: root can connect to other processes' sockets.
    """
    if _family(address) != socket.AF_NETLINK or len(address) < _NETLINK.size:
        raise OSError(errno.EINVAL, "not a netlink address")
    if any(_NETLINK.unpack_from(address)):
        raise OSError(errno.EPERM, "only the kernel may be the peer of a netlink socket")
    return address
