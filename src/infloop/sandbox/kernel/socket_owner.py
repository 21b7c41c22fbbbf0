"""Which user of this machine is at the other end of a TCP connection.

The kernel is asked for the peer's socket by its exact addresses (`sock_diag`); where it does not
offer that, `/proc/net/tcp` is read.

A socket counts only while a process holds it (it has an inode). Of a socket that is closed already
the kernel reports user 0, so a peer that sends a request and closes at once would pass for root.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_LISTEN = 10
_SECONDS = 1.0

_HEADER = struct.Struct("=IHHII")
# family, protocol, extensions, padding, states
_QUESTION = struct.Struct("=BBBBI")
# source port, destination port (network order), source, destination, interface, cookie
_SOCKET_ID = struct.Struct("=2s2s16s16sI8s")
_NO_COOKIE = b"\xff" * 8
# family, state, timer, retransmits; the id; expires, receive queue, send queue, user, inode
_ANSWER_HEAD = struct.Struct("=BBBB")
_ANSWER_TAIL = struct.Struct("=IIIII")


class SocketOwners:
    """Finds the user who holds the other end of a connection; one lookup takes some 20 µs."""

    def __init__(self) -> None:
        self._diag: socket.socket | None = None
        with suppress(OSError):
            self._diag = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
            self._diag.settimeout(_SECONDS)
        self._diag_works = False
        self._sequence = 0

    def find(self, peer: Address, own: Address) -> int | None:
        """Return the user id of the process at `peer`, connected to `own`; None if unknown."""
        if self._diag is not None:
            try:
                found = self._ask(self._diag, peer, own)
            except (OSError, ValueError, struct.error):
                found = None
            if found is not None:
                self._diag_works = True
                return found
        # The kernel says "no such socket" also where it cannot look for one.
        return None if self._diag_works else _in_tables(peer, own)

    def close(self) -> None:
        if self._diag is not None:
            self._diag.close()

    def _ask(self, diag: socket.socket, peer: Address, own: Address) -> int | None:
        family, source, target = _family(peer[0]), _packed(peer[0]), _packed(own[0])
        named = _SOCKET_ID.pack(
            peer[1].to_bytes(2, "big"), own[1].to_bytes(2, "big"), source, target, 0, _NO_COOKIE
        )
        body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + named
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        size = _HEADER.size + len(body)
        diag.sendto(
            _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0) + body,
            (0, 0),
        )
        while True:
            answer, (sender, _) = diag.recvfrom(8192)
            _, kind, _, sequence, _ = _HEADER.unpack_from(answer)
            if sender != 0 or sequence != self._sequence:
                continue  # not from the kernel, or to an earlier question
            return None if kind == _NLMSG_ERROR else _user(answer[_HEADER.size :], named)


def _user(answer: bytes, named: bytes) -> int | None:
    """Return the user in an answer that is about exactly the socket that was named."""
    _, state, _, _ = _ANSWER_HEAD.unpack_from(answer)
    found = answer[_ANSWER_HEAD.size :][: _SOCKET_ID.size]
    *_, user, inode = _ANSWER_TAIL.unpack_from(answer, _ANSWER_HEAD.size + _SOCKET_ID.size)
    # Ports and addresses; the kernel fills in the interface and the cookie.
    same = found[:36] == named[:36]
    return int(user) if same and inode and state != _LISTEN else None


def _in_tables(peer: Address, own: Address) -> int | None:
    """Read the kernel's tables of all TCP sockets, which takes the longer the more there are."""
    table = "tcp6" if _family(peer[0]) == socket.AF_INET6 else "tcp"
    wanted = (_table_form(peer), _table_form(own))
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if (words[1], words[2]) == wanted and words[9] != "0":
                return int(words[7])
    return None


def _table_form(address: Address) -> str:
    """Return an address as the tables write it: 32-bit words in the machine's byte order."""
    packed = ip_address(_plain(address[0])).packed
    words = struct.iter_unpack("=I", packed)
    return "".join(f"{word:08X}" for (word,) in words) + f":{address[1]:04X}"


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _packed(host: str) -> bytes:
    return ip_address(_plain(host)).packed.ljust(16, b"\0")


def _plain(host: str) -> str:
    return host.partition("%")[0]
