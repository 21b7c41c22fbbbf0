"""The TCP ports of infloop's own servers, which confined children must not connect to.

A process that listens on a port announces it: while it serves, it holds an abstract Unix socket
whose name contains the port. Such names belong to a network namespace, as TCP ports do, and are
gone when their process is. So every other infloop on this machine knows the port, whichever of them
started first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Self, TypeAlias

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    Address: TypeAlias = IPv4Address | IPv6Address

_BACKLOG = 256
_ACCEPTED_AT_ONCE = 64
_CREDENTIALS = struct.Struct("=3i")
_ROOT = 0


class OwnPorts:
    """The ports that this process announces, until it is closed; belongs to the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []

    def announce(self, port: int) -> None:
        """Announce a port; call this before listening on it.

        Raises OSError with EADDRINUSE when another process has announced it.
        """
        announcement = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            announcement.bind(_name(port))
            announcement.listen(_BACKLOG)
        except OSError:
            announcement.close()
            raise
        announcement.setblocking(False)  # noqa: FBT003  (positional only)
        self._sockets.append(announcement)
        self._loop.add_reader(announcement, _accept, announcement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Withdraw all announcements."""
        for announcement in self._sockets:
            self._loop.remove_reader(announcement)
            announcement.close()


def is_own_port(
    address: Address, port: int, *, scope: int = 0, users: tuple[int, ...] = ()
) -> bool:
    """Return whether a TCP connection to this address and port may reach a server of infloop.

    Announcements count if they come from root, from our own user or from one of the `users`, the
    users of children: nobody else can make ports unreachable for them. If root is one of these,
    all announcements count, because every server lets root in. `scope` is the interface of a
    link-local address.
    """
    counted = () if _ROOT in users else (_ROOT, os.geteuid(), *users)
    return _is_announced(port, counted) and _is_local(address, scope)


def _is_announced(port: int, users: tuple[int, ...]) -> bool:
    """Return whether one of the users has announced a port; without users, whether anybody has."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.setblocking(False)  # noqa: FBT003  (positional only)
            asking.connect(_name(port))
            credentials = asking.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
    except ConnectionRefusedError:
        return False
    except OSError:
        # Its queue is full, or we have no descriptor left: there may be an announcement.
        return True
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return not users or uid in users


def _is_local(address: Address, scope: int) -> bool:
    """Return whether packets to this address stay on this machine."""
    if address.version == 6 and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return True
    try:
        # Only an address of this machine can be bound.
        if address.version == 6:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
                probe.bind((str(address), 0, 0, scope))
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind((str(address), 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _name(port: int) -> str:
    return f"\0infloop-port/{port}"


def _accept(announcement: socket.socket) -> None:
    """Close what has connected, so that the queue stays empty."""
    for _ in range(_ACCEPTED_AT_ONCE):
        try:
            announcement.accept()[0].close()
        except OSError:
            return
