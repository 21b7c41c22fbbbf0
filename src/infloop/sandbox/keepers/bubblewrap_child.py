"""What a keeper does with a process that bubblewrap has made and holds.

Imported by a keeper, so the standard library only. bubblewrap says on one descriptor whom it made,
and how that ended, and waits for a byte on another before it lets the program begin. In between the
keeper sets limits, and opens listeners inside the new network, so that nothing of ours has to run
in there.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_IP_FREEBIND = 15
_BACKLOG = 128
_PATIENCE_S = 10.0
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class Bubble:
    """One bubblewrap, from its start to its end; its process joins the control `groups`."""

    def __init__(self, groups: list[int]) -> None:
        self._groups = [os.dup(group) for group in groups]
        self._status, self._their_status = os.pipe()
        gate, self._gate = os.pipe()
        # Opened for writing too, theirs never ends: should this process die, nothing is let go.
        self._their_gate = os.open(f"/proc/self/fd/{gate}", os.O_RDWR | os.O_CLOEXEC)
        os.close(gate)
        self._said = b""
        self._child = 0
        self._pidfd = -1

    @property
    def inherited(self) -> list[int]:
        """What bubblewrap inherits for `--json-status-fd` and `--block-fd`."""
        return [self._their_status, self._their_gate]

    def hand_over(self) -> None:
        """Close what bubblewrap has by now."""
        for fd in self.inherited:
            os.close(fd)

    def find_child(self) -> int:
        """Return the process that bubblewrap has made, the first of its namespaces."""
        while b"}" not in self._said:
            ready, _, _ = select.select([self._status], [], [], _PATIENCE_S)
            part = os.read(self._status, _PAGE) if ready else b""
            if not part:
                raise OSError(errno.ECHILD, "bubblewrap made no process")
            self._said += part
        _, _, rest = self._said.partition(b'"child-pid":')
        self._child = int(rest.split(b",")[0].strip(b" }\n"))
        self._pidfd = os.pidfd_open(self._child)
        for group in self._groups:
            os.write(group, str(self._child).encode())
        return self._child

    def listen(self, ports: list[int], door: socket.socket) -> None:
        """Open listeners inside the new network; `listening` goes to the server with them."""
        network = os.open(f"/proc/{self._child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        try:
            # Nobody leaves a user namespace again, hence a process for it.
            pid = os.fork()
            if pid == 0:
                _go_inside_and_listen(owner, network, ports, door)
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(owner)
            os.close(network)
        if status:
            why = os.strerror(os.waitstatus_to_exitcode(status))
            raise OSError(errno.ENETDOWN, f"no listener could be opened in its network: {why}")

    def release(self) -> None:
        """Let the program begin."""
        os.write(self._gate, b"1")

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the first process of the namespaces, and with it every other, is gone."""
        select.select([self._pidfd], [], [], seconds)

    def own_processes(self, outer: int) -> frozenset[int]:
        """Return those that are bubblewrap itself; asked to end, they would end all at once."""
        return frozenset((outer, self._child))

    def close(self) -> bool:
        """Return whether the program began and ended; all processes are gone."""
        while part := os.read(self._status, _PAGE):
            self._said += part
        pidfd = () if self._pidfd < 0 else (self._pidfd,)
        for fd in (self._status, self._gate, *pidfd, *self._groups):
            os.close(fd)
        return b'"exit-code":' in self._said


def _go_inside_and_listen(owner: int, network: int, ports: list[int], door: socket.socket) -> None:
    code = errno.EIO
    try:
        _enter(owner, _CLONE_NEWUSER)
        _enter(network, _CLONE_NEWNET)
        listeners = [_listener(port) for port in ports]
        # Not socket.send_fds: it imports, and another user may not read our library.
        descriptors = struct.pack(f"={len(ports)}i", *(each.fileno() for each in listeners))
        door.sendmsg([b"listening\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        code = 0
    except OSError as error:
        code = error.errno or errno.EIO
    finally:
        os._exit(code)


def _enter(namespace: int, kind: int) -> None:
    if _libc.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns was refused")


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # bubblewrap may not have brought the loopback interface up yet.
    listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    return listener
