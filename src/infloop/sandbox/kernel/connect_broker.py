"""Makes the connections of confined children in place of their connect() calls.

1. The kernel blocks the calling thread and sends a notification to the listener of the child's
   seccomp filter.
2. The broker copies the address from the child's memory, once, and decides (see connect_policy).
3. If the address is allowed, the broker duplicates the child's socket and connects it to that copy.
4. It answers with the result. The child's own call never runs, so changing the address in memory or
   the socket behind the descriptor has no effect.

One thread does this for all children of a sandbox. It never waits for one connection: a blocking
socket is made non-blocking while it connects, and its caller is answered when it is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import queue
import select
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import MissingPart
from infloop.sandbox.keepers.keeper import receive_descriptors
from infloop.sandbox.kernel.connect_policy import ConnectRefused
from infloop.sandbox.kernel.seccomp import connect_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.sandbox.access import OnRefused
    from infloop.sandbox.kernel.connect_policy import ConnectPolicy, Peer

_RECEIVE, _SEND, _STILL_VALID = 0xC0502100, 0xC0182101, 0x40082102
_SET_FLAGS, _WAKE_UP_IN_TURN = 0x40082104, 1
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_TIME, _LINGER = struct.Struct("=qq"), struct.Struct("=ii")
# A newer kernel may write more fields.
_BUFFER = bytes(256)
_PIDFD_GETFD = 438
_MAX_ADDRESS = 128
_INT_BITS = 0xFFFFFFFF
_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY)
_RESTART = 512
"""ERESTARTSYS: the kernel runs the signal handler, then repeats the call or returns EINTR."""

_CHECK_INTERVAL_S = 0.1
_MAX_WAITING = 64
"""How many blocking calls of one child can be in progress; more wait in the kernel."""

_MAX_REPORTED = 51
"""How many different refused addresses of one child are reported."""

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_STATUS = Path("/proc/self/status")
_PTRACE_OF_CHILDREN, _PTRACE_OF_NOBODY = 1, 3
_CAP_SYS_PTRACE = 19


def missing_part(*, other_user: bool = False) -> str:
    """Return what this machine lacks for a connect broker, if anything.

    `other_user` says whether the children run as another user than this process.
    """
    try:
        connect_filter()
    except MissingPart as missing:
        return f"a seccomp filter: {missing}"
    if "user_notif" not in _read(_ACTIONS).split():
        return "seccomp with user notifications, which this kernel does not offer"
    scope = int(_read(_PTRACE_SCOPE) or 0)
    may_trace = _has_capability(_CAP_SYS_PTRACE)
    if scope == _PTRACE_OF_NOBODY or (scope > _PTRACE_OF_CHILDREN and not may_trace):
        return "access to the memory of its children (kernel.yama.ptrace_scope must be 0 or 1)"
    if other_user and not may_trace:
        return "the capability CAP_SYS_PTRACE, to see where children of another user connect"
    return ""


class ConnectBroker:
    """Answers the connect() calls of all children of a sandbox, in a thread of its own."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._waiting: set[_WaitingCall] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def open(self, policy: ConnectPolicy, on_refused: OnRefused | None) -> BrokeredChild:
        """Return the broker's side of one child; `on_refused` is called in the running loop."""
        if self._thread is None:
            self._epoll = select.epoll()
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.watch(self._wake, select.EPOLLIN, self._run_commands)
            self._thread = threading.Thread(target=self._serve, name="connect-broker", daemon=True)
            self._thread.start()
        return BrokeredChild(self, policy, on_refused)

    async def close(self) -> None:
        """End the thread; all children are closed."""
        if self._thread is not None:
            await self.call(self._stop)
            self._thread.join()
            self._thread = None
            self._epoll.close()
            os.close(self._wake)

    async def call(self, command: Callable[[], None]) -> None:
        """Run a command in the thread and wait for it."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def run() -> None:
            try:
                command()
            finally:
                loop.call_soon_threadsafe(done.set)

        self.send(run)
        await done.wait()

    def send(self, command: Callable[[], None]) -> None:
        """Run a command in the thread."""
        self._commands.put(command)
        os.eventfd_write(self._wake, 1)

    # The rest runs in the thread.

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back with the events of a descriptor."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def forget(self, fd: int) -> None:
        """Stop calling back for a descriptor; its owner closes it next."""
        if self._callbacks.pop(fd, None):
            self._epoll.unregister(fd)

    def add_waiting(self, call: _WaitingCall) -> None:
        """Check this call from time to time until it is discarded."""
        self._waiting.add(call)

    def discard_waiting(self, call: _WaitingCall) -> None:
        self._waiting.discard(call)

    def _serve(self) -> None:
        # Otherwise a signal for this process could interrupt a system call here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        check_at = time.monotonic()
        while not self._stopping:
            # One event at a time: its callback may close a descriptor and get its number again.
            for fd, events in self._epoll.poll(_CHECK_INTERVAL_S if self._waiting else None, 1):
                if not _succeeds(functools.partial(self._callbacks[fd], events)):
                    # What is not answered does not connect: the child waits until it is ended.
                    self.forget(fd)
            if self._waiting and time.monotonic() >= check_at:
                check_at = time.monotonic() + _CHECK_INTERVAL_S
                for call in tuple(self._waiting):
                    _succeeds(call.check)

    def _run_commands(self, _: int) -> None:
        os.eventfd_read(self._wake)
        with contextlib.suppress(queue.Empty):
            while True:
                _succeeds(self._commands.get_nowait())

    def _stop(self) -> None:
        self._stopping = True


def _succeeds(work: Callable[[], None]) -> bool:
    """Do work for one child; the other children go on although it fails."""
    try:
        work()
    except Exception:  # noqa: BLE001  (the edge of the thread)
        return False
    return True


class BrokeredChild:
    """One child of a broker, until `close`; its first process sends the listener of its filter.

    It does so over `child_socket`.
    """

    def __init__(
        self, broker: ConnectBroker, policy: ConnectPolicy, on_refused: OnRefused | None
    ) -> None:
        self._broker = broker
        self._policy = policy
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._server_socket, self.child_socket = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        self._listener = -1
        self._waiting: set[_WaitingCall] = set()
        self._reported: set[Peer] = set()
        # Not in the thread, which would have to wake up for it: nothing can arrive before.
        broker.watch(self._server_socket.fileno(), select.EPOLLIN, self._on_listener)

    async def close(self) -> None:
        """Stop answering; connect() calls of processes that are still alive then fail."""
        await self._broker.call(self._close)
        self.child_socket.close()

    def _close(self) -> None:
        self._broker.forget(self._server_socket.fileno())
        self._server_socket.close()
        for call in tuple(self._waiting):
            self.settle(call, None)
        if self._listener >= 0:
            self._broker.forget(self._listener)
            os.close(self._listener)

    def _on_listener(self, _: int) -> None:
        self._broker.forget(self._server_socket.fileno())
        _data, descriptors = receive_descriptors(self._server_socket, 1)
        if descriptors:
            (self._listener,) = descriptors
            # Caller and broker wait for each other, so they share a processor. Since Linux 6.6.
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._listener, _SET_FLAGS, _WAKE_UP_IN_TURN)
            self._listen()

    def _listen(self) -> None:
        self._broker.watch(self._listener, select.EPOLLIN, self._on_notification)

    def _on_notification(self, events: int) -> None:
        if not events & select.EPOLLIN:
            # No process with this filter is left; receiving would block for ever.
            self._broker.forget(self._listener)
            return
        # The notification is gone if the caller was killed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            buffer = bytearray(_BUFFER)
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
            self._handle(_Notification.unpack(buffer))

    def _handle(self, notification: _Notification) -> None:
        try:
            error = self._connect(notification)
        except ConnectRefused as refused:
            self._report(refused)
            error = refused.errno
        except OSError as failure:
            error = failure.errno or errno.EACCES
        except (IndexError, ValueError):  # its status in /proc is not as expected
            error = errno.EACCES
        if error is not None:
            self.answer(notification, error)

    def _connect(self, notification: _Notification) -> int | None:
        """Connect the child's socket; return the error number, or None if that takes time."""
        caller = _Caller(notification.thread)
        try:
            # Checked after opening: what was opened belongs to the caller, and not to a process
            # that got the same id later.
            if not self.is_waiting(notification):
                return None
            address = caller.read(notification.address, notification.length)
            sock = caller.duplicate(notification.fd)
        finally:
            caller.close()
        with contextlib.ExitStack() as stack:
            stack.callback(_close, sock)
            checked = self._policy.check(address, sock.family, sock.type)
            if not os.get_blocking(sock.fileno()):
                return _connect(sock, checked)
            os.set_blocking(sock.fileno(), False)
            stack.callback(os.set_blocking, sock.fileno(), True)  # noqa: FBT003
            error = _connect(sock, checked)
            if error in _IN_PROGRESS:
                error = _connect(sock, checked)  # a local connection is complete by now
            if error not in _IN_PROGRESS:
                return error
            call = _WaitingCall(self, notification, sock, checked)
            self._waiting.add(call)
            self._broker.add_waiting(call)
            self._broker.watch(sock.fileno(), select.EPOLLOUT, call.on_ready)
            if len(self._waiting) >= _MAX_WAITING:
                self._broker.forget(self._listener)
            stack.pop_all()
        return None

    def _report(self, refused: ConnectRefused) -> None:
        peer = (refused.host, refused.port)
        if self._on_refused and peer not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(peer)
            self._loop.call_soon_threadsafe(self._on_refused, *peer, refused.reason)

    def is_waiting(self, notification: _Notification) -> bool:
        """Return whether the caller still waits for its answer."""
        try:
            fcntl.ioctl(self._listener, _STILL_VALID, struct.pack("=Q", notification.id))
        except FileNotFoundError:
            return False
        return True

    def answer(self, notification: _Notification, error: int) -> None:
        """Let the caller's connect() return."""
        # The notification is gone if the caller was killed.
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(notification.id, 0, -error, 0))

    def settle(self, call: _WaitingCall, error: int | None) -> None:
        """Answer a call that took time, if its caller still waits."""
        self._broker.forget(call.sock.fileno())
        call.drop()
        self._broker.discard_waiting(call)
        self._waiting.discard(call)
        if error is not None:
            self.answer(call.notification, error)
        if len(self._waiting) == _MAX_WAITING - 1:
            self._listen()


class _WaitingCall:
    """A connect() on a blocking socket that is in progress."""

    def __init__(
        self, child: BrokeredChild, notification: _Notification, sock: socket.socket, address: bytes
    ) -> None:
        self._child = child
        self.notification = notification
        self.sock = sock
        self._address = address
        timeout_s = _send_timeout_s(sock)
        self._deadline = time.monotonic() + timeout_s if timeout_s else None

    def on_ready(self, _: int) -> None:
        # Asking again completes the call: the result is that of a blocking connect().
        error = _connect(self.sock, self._address)
        if error not in _IN_PROGRESS:
            self._child.settle(self, error)

    def check(self) -> None:
        """Settle the call if the kernel would end it before it is connected."""
        if not self._child.is_waiting(self.notification):
            self._child.settle(self, None)
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self._child.settle(self, errno.EINPROGRESS)
        elif _has_signal_to_handle(self.notification.thread):
            self._child.settle(self, _RESTART)

    def drop(self) -> None:
        """Give the socket back as it was; a connection in progress ends with its last holder."""
        os.set_blocking(self.sock.fileno(), True)
        _close(self.sock)


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
            self._pidfd = _open_process(thread)
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
        ours = _libc().syscall(
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


def _connect(sock: socket.socket, address: bytes) -> int:
    """Connect a socket to exactly these bytes; return the error number, 0 for success."""
    failed = _libc().connect(sock.fileno(), address, len(address))
    return ctypes.get_errno() if failed else 0


def _close(sock: socket.socket) -> None:
    """Close our copy of a socket without waiting.

    If the child is gone it is the last copy, and closing that waits for the time in SO_LINGER.
    """
    lingers, seconds = _LINGER.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size)
    )
    if lingers and seconds:
        threading.Thread(target=sock.close, name="connect-broker-close", daemon=True).start()
    else:
        sock.close()


def _send_timeout_s(sock: socket.socket) -> float:
    """Return how long a blocking connect() may take, 0 for as long as it takes."""
    seconds, microseconds = _TIME.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.size)
    )
    return float(seconds + microseconds / 1e6)


def _has_signal_to_handle(thread: int) -> bool:
    """Return whether a thread would run a signal handler now if it were not waiting for us."""
    try:
        status = _status(thread)
    except OSError:
        return False
    own, shared, blocked, handled = (
        int(_field(status, name), 16) for name in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigCgt")
    )
    # The kernel gives a signal for the whole process to its first thread.
    pending = own | shared if int(_field(status, b"Tgid")) == thread else own
    return bool(pending & handled & ~blocked)


def _open_process(thread: int) -> int:
    """Return a pidfd of the process to which a thread belongs."""
    try:
        return os.pidfd_open(thread)  # the first thread of a process has its id
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
    return os.pidfd_open(int(_field(_status(thread), b"Tgid")))


def _status(thread: int) -> bytes:
    fd = os.open(f"/proc/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def _field(status: bytes, name: bytes) -> bytes:
    # The first line is the thread's name, which it chooses; it cannot hold a newline.
    _, _, rest = status.partition(b"\n" + name + b":")
    return rest.split(maxsplit=1)[0]


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _has_capability(number: int) -> bool:
    return bool(int(_field(_STATUS.read_bytes(), b"CapEff"), 16) >> number & 1)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
