"""Controls a process that bubblewrap has created and holds before its start.

Imported by the keeper, so it uses the standard library only. bubblewrap writes the process id and
the exit code of its child to one descriptor (`--json-status-fd`) and waits for a byte on another
(`--block-fd`) before it starts the program. In between the keeper sets limits and opens listeners
in the new network namespace, so that no process of infloop has to run inside.
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
_TIMEOUT_S = 10.0
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class BubblewrapChild:
    """One bubblewrap process; its child joins the `cgroups`."""

    def __init__(self, cgroups: list[int]) -> None:
        self._cgroups = [os.dup(cgroup) for cgroup in cgroups]
        self._status, self._their_status = os.pipe()
        block, self._block = os.pipe()
        # Also opened for writing: it never reaches its end, so if this process dies the child is
        # not started.
        self._their_block = os.open(f"/proc/self/fd/{block}", os.O_RDWR | os.O_CLOEXEC)
        os.close(block)
        self._status_text = b""
        self._child = 0
        self._pidfd = -1

    @property
    def inherited(self) -> list[int]:
        """The descriptors for `--json-status-fd` and `--block-fd`."""
        return [self._their_status, self._their_block]

    def hand_over(self) -> None:
        """Close the descriptors that bubblewrap has inherited."""
        for fd in self.inherited:
            os.close(fd)

    def find_child(self) -> int:
        """Return the process that bubblewrap has created, the first in its namespaces."""
        while b"}" not in self._status_text:
            ready, _, _ = select.select([self._status], [], [], _TIMEOUT_S)
            part = os.read(self._status, _PAGE) if ready else b""
            if not part:
                raise OSError(errno.ECHILD, "bubblewrap created no process")
            self._status_text += part
        _, _, rest = self._status_text.partition(b'"child-pid":')
        self._child = int(rest.split(b",")[0].strip(b" }\n"))
        self._pidfd = os.pidfd_open(self._child)
        for cgroup in self._cgroups:
            os.write(cgroup, str(self._child).encode())
        return self._child

    def listen(self, ports: list[int], control_socket: socket.socket) -> None:
        """Open listeners in the new network; send them to the server with `listening`."""
        network = os.open(f"/proc/{self._child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        try:
            # In a process of its own, because setns into a user namespace cannot be undone.
            pid = os.fork()
            if pid == 0:
                _listen_inside(owner, network, ports, control_socket)
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(owner)
            os.close(network)
        if status:
            why = os.strerror(os.waitstatus_to_exitcode(status))
            raise OSError(errno.ENETDOWN, f"no listener could be opened in its network: {why}")

    def release(self) -> None:
        """Let bubblewrap start the program."""
        os.write(self._block, b"1")

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the first process in the namespaces, and so every other one, is gone."""
        select.select([self._pidfd], [], [], seconds)

    def own_processes(self, outer: int) -> frozenset[int]:
        """Return bubblewrap's own processes; TERM to one of them would end all others at once."""
        return frozenset((outer, self._child))

    def close(self) -> bool:
        """Close everything; return whether the program was started. All processes are gone."""
        while part := os.read(self._status, _PAGE):
            self._status_text += part
        pidfd = () if self._pidfd < 0 else (self._pidfd,)
        for fd in (self._status, self._block, *pidfd, *self._cgroups):
            os.close(fd)
        return b'"exit-code":' in self._status_text


def _listen_inside(
    owner: int, network: int, ports: list[int], control_socket: socket.socket
) -> None:
    code = errno.EIO
    try:
        _enter(owner, _CLONE_NEWUSER)
        _enter(network, _CLONE_NEWNET)
        listeners = [_listener(port) for port in ports]
        # Not socket.send_fds: it imports a module, which another user may not be able to read.
        descriptors = struct.pack(f"={len(ports)}i", *(each.fileno() for each in listeners))
        control_socket.sendmsg(
            [b"listening\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        )
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
