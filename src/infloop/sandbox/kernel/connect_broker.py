"""Answers the connect() calls of one child at level `guard`.

The kernel holds the calling thread and sends a question to the listener of the child's filter. The
broker copies the address out of the child's memory, once, and looks it up; if it is one of the
child's peers, the broker connects the child's socket itself, by its own duplicate of it and to the
address from its own table, and answers with what came of it. The child's call never runs, so
changing the address in memory, or the socket under the descriptor, gains nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.sandbox.keepers.keeper import receive_descriptors

if TYPE_CHECKING:
    from collections.abc import Mapping

Peer: TypeAlias = tuple[str, int]
"""An IP address and a port."""

_RECEIVE, _SEND, _STILL_VALID = 0xC0502100, 0xC0182101, 0x40082102
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
# The kernel may write more than we know of.
_ROOM = bytes(256)
_PIDFD_GETFD = 438
_MAX_ADDRESS = 128
_INET, _INET6 = struct.Struct("!2xH4s"), struct.Struct("!2xH4x16s")
_FAMILY = struct.Struct("=H")
_INT_BITS = 0xFFFFFFFF
_UNBLOCK_S = 0.01


class ConnectBroker:
    """Owns a filter's listener from construction to `close`; belongs to the running loop.

    The child sends the listener over `report`. `peers` says which addresses may be connected to,
    as the child names them, and where each of them really is. Everything else is answered with
    EACCES.
    """

    def __init__(self, peers: Mapping[Peer, Peer]) -> None:
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._hearing, self.report = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener = -1
        self._poll = select.poll()
        # A thread, because a connect on a socket that is or becomes blocking may take minutes; and
        # only one, because it is the child's own time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="connect-broker")
        self._unanswered: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._connecting: socket.socket | None = None
        if peers:
            self._loop.add_reader(self._hearing, self._on_report)

    async def close(self) -> None:
        """Answer no more; the child's processes must be gone, or their calls fail."""
        self._loop.remove_reader(self._hearing)
        self._hearing.close()
        self.report.close()
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            await self._finish_answers()
            os.close(self._listener)

    async def _finish_answers(self) -> None:
        while self._unanswered:
            with self._lock:
                if self._connecting:
                    # Ends a connect under way; again, should it have been about to begin.
                    with contextlib.suppress(OSError):
                        self._connecting.shutdown(socket.SHUT_RDWR)
            await asyncio.wait(self._unanswered, timeout=_UNBLOCK_S)
        self._thread.shutdown()

    def _on_report(self) -> None:
        self._loop.remove_reader(self._hearing)
        _, (self._listener,) = receive_descriptors(self._hearing, 1)
        self._poll.register(self._listener, select.POLLIN)
        self._loop.add_reader(self._listener, self._on_ready)

    def _on_ready(self) -> None:
        events = self._poll.poll(0)
        if not events:
            return
        if not events[0][1] & select.POLLIN:
            # Nobody is left who could ask; to receive now would wait for ever.
            self._loop.remove_reader(self._listener)
            return
        # Gone again if the asker was killed in between.
        with contextlib.suppress(FileNotFoundError):
            buffer = bytearray(_ROOM)
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
            question = _Question.unpack(buffer)
            answering = self._loop.run_in_executor(self._thread, self._settle, question)
            self._unanswered.add(answering)
            answering.add_done_callback(self._unanswered.discard)

    def _settle(self, question: _Question) -> None:
        try:
            error = self._connect(question)
        except OSError as failure:
            error = failure.errno or errno.EACCES
        answer = _ANSWER.pack(question.id, 0, -error, 0)
        # Gone if the asker was killed.
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _SEND, answer)

    def _connect(self, question: _Question) -> int:
        """Do what the child asked for, if it may; return the error number, 0 for success."""
        asker = _Asker(question.thread)
        try:
            # Only now is it certain that what was opened belongs to the asker, and not to a
            # process that was given its number.
            fcntl.ioctl(self._listener, _STILL_VALID, struct.pack("=Q", question.id))
            peer = destination(asker.read(question.address, question.length), self._peers)
            if peer is None:
                return errno.EACCES
            with self._lock:
                self._connecting = asker.duplicate(question.fd)
        finally:
            asker.close()
        try:
            if self._connecting.family != _family(peer):
                return errno.EAFNOSUPPORT
            return self._connecting.connect_ex(peer)
        finally:
            with self._lock:
                self._connecting.close()
                self._connecting = None


def destination(address: bytes, peers: Mapping[Peer, Peer]) -> Peer | None:
    """Return where a connect() to these bytes of a socket address really goes; None: nowhere."""
    family = _FAMILY.unpack_from(address)[0] if len(address) >= _FAMILY.size else None
    if family == socket.AF_INET and len(address) >= _INET.size:
        port, packed = _INET.unpack_from(address)
        return peers.get((str(ipaddress.IPv4Address(packed)), port))
    if family == socket.AF_INET6 and len(address) >= _INET6.size:
        port, packed = _INET6.unpack_from(address)
        six = ipaddress.IPv6Address(packed)
        if not six.ipv4_mapped:
            return peers.get((str(six), port))
        mapped = peers.get((str(six.ipv4_mapped), port))
        return (f"::ffff:{mapped[0]}", mapped[1]) if mapped else None
    return None


def _family(peer: Peer) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in peer[0] else socket.AF_INET


class _Question(NamedTuple):
    """One connect() that waits for its answer."""

    id: int
    thread: int
    fd: int
    address: int
    length: int

    @classmethod
    def unpack(cls, buffer: bytearray) -> _Question:
        number, thread, _, _, _, _, fd, address, length, *_ = _QUESTION.unpack_from(buffer)
        return cls(number, thread, fd & _INT_BITS, address, length & _INT_BITS)


class _Asker:
    """Holds on to a waiting process: its memory and its descriptors."""

    def __init__(self, thread: int) -> None:
        self._memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._pidfd = os.pidfd_open(_process_of(thread))
        except OSError:
            os.close(self._memory)
            raise

    def read(self, address: int, length: int) -> bytes:
        """Return a socket address from its memory, or as much of it as there is."""
        if length > _MAX_ADDRESS:
            raise OSError(errno.EINVAL, "a socket address is never so long")
        try:
            return os.pread(self._memory, length, address)
        except (OSError, OverflowError):
            raise OSError(errno.EFAULT, "the address is not in its memory") from None

    def duplicate(self, fd: int) -> socket.socket:
        """Return our own descriptor of one of its sockets."""
        libc = ctypes.CDLL(None, use_errno=True)
        ours = libc.syscall(
            ctypes.c_long(_PIDFD_GETFD),
            ctypes.c_int(self._pidfd),
            ctypes.c_int(fd),
            ctypes.c_uint(0),
        )
        if ours < 0:
            raise OSError(ctypes.get_errno(), "the descriptor cannot be duplicated")
        try:
            return socket.socket(fileno=ours)
        except OSError:
            os.close(ours)
            raise

    def close(self) -> None:
        os.close(self._memory)
        os.close(self._pidfd)


def _process_of(thread: int) -> int:
    """Return the process that a thread belongs to; only processes have pidfds everywhere."""
    fd = os.open(f"/proc/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, _, rest = os.read(fd, 4096).partition(b"\nTgid:")
    finally:
        os.close(fd)
    return int(rest.split(maxsplit=1)[0])
