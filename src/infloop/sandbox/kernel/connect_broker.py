"""Makes the connections of one child at level `guard` in place of its connect() calls.

1. The kernel blocks the calling thread and sends a notification to the listener of the child's
   seccomp filter.
2. The broker copies the address from the child's memory, once, and looks it up.
3. If it is one of the child's peers, the broker duplicates the child's socket and connects it to
   the address from its own table.
4. It answers with the result. The child's own call never runs, so changing the address in memory or
   the socket behind the descriptor has no effect.
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
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
# A newer kernel may write more fields.
_BUFFER = bytes(256)
_PIDFD_GETFD = 438
_MAX_ADDRESS = 128
_INET, _INET6 = struct.Struct("!2xH4s"), struct.Struct("!2xH4x16s")
_FAMILY = struct.Struct("=H")
_INT_BITS = 0xFFFFFFFF
_UNBLOCK_S = 0.01


class ConnectBroker:
    """Answers the notifications of one filter until `close`; belongs to the running loop.

    The child sends the filter's listener over `child_socket`. `peers` maps the addresses that it
    may connect to, as the child names them, to the real ones. All others are answered with EACCES.
    """

    def __init__(self, peers: Mapping[Peer, Peer]) -> None:
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._server_socket, self.child_socket = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        self._listener = -1
        self._poll = select.poll()
        # In a thread, because connecting a blocking socket may take minutes. One is enough: only
        # the child itself waits for it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="connect-broker")
        self._answering: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._connecting: socket.socket | None = None
        if peers:
            self._loop.add_reader(self._server_socket, self._on_listener)

    async def close(self) -> None:
        """Stop answering; connect() calls of processes that are still alive then fail."""
        self._loop.remove_reader(self._server_socket)
        self._server_socket.close()
        self.child_socket.close()
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            await self._cancel_connects()
            os.close(self._listener)

    async def _cancel_connects(self) -> None:
        while self._answering:
            with self._lock:
                if self._connecting:
                    # Ends a connect that is in progress. Repeated, because it may just begin.
                    with contextlib.suppress(OSError):
                        self._connecting.shutdown(socket.SHUT_RDWR)
            await asyncio.wait(self._answering, timeout=_UNBLOCK_S)
        self._thread.shutdown()

    def _on_listener(self) -> None:
        self._loop.remove_reader(self._server_socket)
        _, (self._listener,) = receive_descriptors(self._server_socket, 1)
        self._poll.register(self._listener, select.POLLIN)
        self._loop.add_reader(self._listener, self._on_ready)

    def _on_ready(self) -> None:
        events = self._poll.poll(0)
        if not events:
            return
        if not events[0][1] & select.POLLIN:
            # No process with this filter is left; receiving would block for ever.
            self._loop.remove_reader(self._listener)
            return
        # The notification is gone if the caller was killed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            buffer = bytearray(_BUFFER)
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
            notification = _Notification.unpack(buffer)
            answering = self._loop.run_in_executor(self._thread, self._answer, notification)
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    def _answer(self, notification: _Notification) -> None:
        try:
            error = self._connect(notification)
        except OSError as failure:
            error = failure.errno or errno.EACCES
        answer = _ANSWER.pack(notification.id, 0, -error, 0)
        # The notification is gone if the caller was killed.
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _SEND, answer)

    def _connect(self, notification: _Notification) -> int:
        """Connect the child's socket if allowed; return the error number, 0 for success."""
        caller = _Caller(notification.thread)
        try:
            # Checked after opening: what was opened belongs to the caller, and not to a process
            # that got the same id later.
            fcntl.ioctl(self._listener, _STILL_VALID, struct.pack("=Q", notification.id))
            peer = destination(caller.read(notification.address, notification.length), self._peers)
            if peer is None:
                return errno.EACCES
            with self._lock:
                self._connecting = caller.duplicate(notification.fd)
        finally:
            caller.close()
        try:
            if self._connecting.family != _family(peer):
                return errno.EAFNOSUPPORT
            return self._connecting.connect_ex(peer)
        finally:
            with self._lock:
                self._connecting.close()
                self._connecting = None


def destination(address: bytes, peers: Mapping[Peer, Peer]) -> Peer | None:
    """Return the real peer for the bytes of a socket address; None if it is not allowed."""
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


class _Notification(NamedTuple):
    """One connect() call that waits for its answer."""

    id: int
    thread: int
    fd: int
    address: int
    length: int

    @classmethod
    def unpack(cls, buffer: bytearray) -> _Notification:
        number, thread, _, _, _, _, fd, address, length, *_ = _NOTIFICATION.unpack_from(buffer)
        return cls(number, thread, fd & _INT_BITS, address, length & _INT_BITS)


class _Caller:
    """The calling process: its memory and its descriptors."""

    def __init__(self, thread: int) -> None:
        self._memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._pidfd = os.pidfd_open(_process_of(thread))
        except OSError:
            os.close(self._memory)
            raise

    def read(self, address: int, length: int) -> bytes:
        """Return a socket address from its memory, or the readable part of it."""
        if length > _MAX_ADDRESS:
            raise OSError(errno.EINVAL, "the socket address is too long")
        try:
            return os.pread(self._memory, length, address)
        except (OSError, OverflowError):
            raise OSError(errno.EFAULT, "the address is not in its memory") from None

    def duplicate(self, fd: int) -> socket.socket:
        """Return a descriptor of our own for one of its sockets."""
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
    """Return the process of a thread; older kernels have pidfds for processes only."""
    fd = os.open(f"/proc/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, _, rest = os.read(fd, 4096).partition(b"\nTgid:")
    finally:
        os.close(fd)
    return int(rest.split(maxsplit=1)[0])
