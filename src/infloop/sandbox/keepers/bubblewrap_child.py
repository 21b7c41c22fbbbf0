"""Controls a process that bubblewrap has created and holds before its start.

Imported by the keeper, so it uses the standard library only. bubblewrap writes the process id and
the exit code of its child to one descriptor (`--json-status-fd`). It reads its seccomp filter from
another (`--seccomp`), a pipe, right before it starts the program. In between the keeper sets limits
and opens listeners in the new network namespace, so that no process of infloop has to run inside.
The pipe holds the first byte of the filter from the beginning. When that was read, bubblewrap has
made its mounts, and the keeper looks whether they are the right ones.

No process outlives the keeper, at whatever moment the keeper is killed:

- Before the filter is written, the pipe ends after one byte. That is no filter, so bubblewrap fails
  by itself, and the program is never started.
- The filter is written only after the keeper has become the tracer of the first process in the
  namespace, with PTRACE_O_EXITKILL: the kernel kills that process when its tracer is gone, and
  then everything in its namespace.

`--die-with-parent` is not enough, and does harm here: bubblewrap's first process asks for it only
after it has started the program, and it waits for ever if bubblewrap's other process dies early. It
is used where the kernel does not let the keeper trace (kernel.yama.ptrace_scope).
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
    import signal
    import socket
    from collections.abc import Callable
else:
    import _signal as signal
    import _socket as socket

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_PID_MAX = "/proc/sys/kernel/pid_max"
_CLONE_NEWNET = 0x40000000
_NAMESPACES = {"net": _CLONE_NEWNET, "pid": _CLONE_NEWPID}
_NS_GET_USERNS = 0xB701
_IP_FREEBIND = 15
_BACKLOG = 128
_TIMEOUT_S = 10.0
_MOUNT_TIMEOUT_S = 30.0
_PAGE = 4096
_PTRACE_CONT = 7
_PTRACE_SEIZE = 0x4206
_PTRACE_O_EXITKILL = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class BubblewrapChild:
    """One bubblewrap process; its child joins the `cgroups` and gets the seccomp filter."""

    def __init__(self, seccomp_filter: int, cgroups: list[int], *, is_traced: bool) -> None:
        self._filter = os.pread(seccomp_filter, _PAGE + 1, 0)
        # Up to this size the rest is written in one piece, or not at all if this process is killed.
        assert len(self._filter) <= select.PIPE_BUF
        self._cgroups = [os.dup(cgroup) for cgroup in cgroups]
        self._status, status = os.pipe()
        # Also opened for reading: bubblewrap must not die of SIGPIPE between its two processes.
        self._their_status = os.open(f"/proc/self/fd/{status}", os.O_RDWR | os.O_CLOEXEC)
        os.close(status)
        self._their_filter, self._filter_pipe = os.pipe()
        # A pipe of one page is full, however little it holds, and writable when that was read.
        fcntl.fcntl(self._filter_pipe, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
        os.write(self._filter_pipe, self._filter[:1])
        self._status_text = b""
        self._child = 0
        self._pidfd = -1
        self._is_traced = is_traced

    @property
    def inherited(self) -> list[int]:
        """The descriptors for `--json-status-fd` and `--seccomp`."""
        return [self._their_status, self._their_filter]

    @property
    def ended(self) -> list[int]:
        """A descriptor that is readable when the traced process has ended: call `resume` then."""
        return [self._pidfd] if self._is_traced and self._child else []

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
        if self._is_traced:
            _trace(_PTRACE_SEIZE, self._child, _PTRACE_O_EXITKILL)
        for cgroup in self._cgroups:
            os.write(cgroup, str(self._child).encode())
        return self._child

    def check_places(self, places: list[tuple[bytes, tuple[int, int], bytes]]) -> None:
        """Wait for bubblewrap's mounts; raise OSError when one does not show what it should.

        bubblewrap mounts by name, and another child may have exchanged a directory for a link.
        """
        if not places:
            return
        root = self._mounted_root()
        if root < 0:
            return
        try:
            for kind, identity, path in places:
                if not _is_in_place(root, kind, identity, path):
                    what = os.fsdecode(path)
                    raise OSError(errno.ESTALE, f"{what!r} was exchanged for something else")
        finally:
            os.close(root)

    def _mounted_root(self) -> int:
        """Return the root of the child once all its mounts are made; -1 when bubblewrap failed."""
        mounted = select.poll()
        mounted.register(self._filter_pipe, select.POLLOUT)
        ready = mounted.poll(_MOUNT_TIMEOUT_S * 1000)
        if not ready:
            raise OSError(errno.ETIMEDOUT, "bubblewrap did not finish its mounts in time")
        if ready[0][1] & select.POLLERR:
            return -1
        try:
            root = os.open(f"/proc/{self._child}/root", os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return -1
        if not _is_of_its_own(root):
            os.close(root)
            raise OSError(errno.ESTALE, "bubblewrap has read its filter before it made its mounts")
        return root

    def limit_pids(self, most: int) -> None:
        """Bound the process ids in the new namespace; for children whose user is root.

        The kernel does not count the processes of root for RLIMIT_NPROC.
        """
        code = self._in_namespace("pid", lambda: _set_max_pids(most))
        if code:
            raise OSError(code, f"its processes cannot be limited: {os.strerror(code)}")

    def listen(self, ports: list[int], control_socket: socket.socket) -> None:
        """Open listeners in the new network; send them to the server with `listening`."""
        code = self._in_namespace("net", lambda: _listen(ports, control_socket))
        if code:
            why = os.strerror(code)
            raise OSError(errno.ENETDOWN, f"no listener could be opened in its network: {why}")

    def _in_namespace(self, name: str, act: Callable[[], None]) -> int:
        """Call a function in a namespace of the child; return its error number, 0 if it has none.

        It runs in a process of its own, because setns into a user namespace cannot be undone.
        """
        namespace = os.open(f"/proc/{self._child}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
        try:
            pid = os.fork()
            if pid == 0:
                _act_inside(owner, namespace, _NAMESPACES[name], act)
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        finally:
            os.close(owner)
            os.close(namespace)

    def release(self) -> None:
        """Let bubblewrap start the program."""
        os.write(self._filter_pipe, self._filter[1:])
        self._close_filter_pipe()

    def resume(self) -> None:
        """Let the traced process continue after a signal, or its parent know that it has ended.

        The kernel stops a traced process at each signal until its tracer answers. A child can send
        signals to the first process of its namespace; they have no effect.
        """
        if not (self._is_traced and self._child):
            return
        try:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid and os.WIFSTOPPED(status):
                _trace(_PTRACE_CONT, self._child, 0)
            elif pid:
                self._is_traced = False
        except (ChildProcessError, ProcessLookupError):
            self._is_traced = False

    def kill(self) -> None:
        """Kill the first process in the namespaces; the kernel then kills every other one."""
        if self._pidfd >= 0:
            try:  # noqa: SIM105  (a keeper does without contextlib)
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass

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
        self._close_filter_pipe()
        pidfd = () if self._pidfd < 0 else (self._pidfd,)
        for fd in (self._status, *pidfd, *self._cgroups):
            os.close(fd)
        return b'"exit-code":' in self._status_text

    def _close_filter_pipe(self) -> None:
        if self._filter_pipe >= 0:
            os.close(self._filter_pipe)
            self._filter_pipe = -1


def _trace(request: int, pid: int, data: int) -> None:
    if _libc.ptrace(request, pid, None, data) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"its first process cannot be traced: {os.strerror(code)}")


def _is_of_its_own(root: int) -> bool:
    """Return whether a root is neither this machine's nor one that bubblewrap has in between."""
    machine, found = os.stat("/"), os.fstat(root)  # noqa: PTH116
    if (found.st_dev, found.st_ino) == (machine.st_dev, machine.st_ino):
        return False
    try:
        os.stat("usr", dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_in_place(root: int, kind: bytes, identity: tuple[int, int], path: bytes) -> bool:
    """Return whether a path below `root` is what it should be; no link is followed."""
    opened = os.dup(root)
    try:
        for name in path.split(b"/"):
            if name:
                deeper = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
                os.close(opened)
                opened = deeper
        found = os.fstat(opened)
        read_only = bool(os.fstatvfs(opened).f_flag & os.ST_RDONLY)
    except OSError:
        return False
    finally:
        os.close(opened)
    is_same = (found.st_dev, found.st_ino) == identity
    if kind == b"covered":
        return not is_same
    return is_same and (read_only or kind != b"read-only")


def _act_inside(owner: int, namespace: int, kind: int, act: Callable[[], None]) -> None:
    """Enter a namespace through its owner, act there, and exit with the error number."""
    code = errno.EIO
    try:
        _enter(owner, _CLONE_NEWUSER)
        _enter(namespace, kind)
        act()
        code = 0
    except OSError as error:
        code = error.errno or errno.EIO
    finally:
        os._exit(code)


def _set_max_pids(most: int) -> None:
    # Only children of this process are in the namespace that it has entered.
    pid = os.fork()
    if pid == 0:
        code = errno.EIO
        try:
            fd = os.open(_PID_MAX, os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, str(most).encode())
            code = 0
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(os.waitstatus_to_exitcode(status), "pid_max was refused")


def _listen(ports: list[int], control_socket: socket.socket) -> None:
    listeners = [_listener(port) for port in ports]
    # Not socket.send_fds: it imports a module, which another user may not be able to read.
    descriptors = struct.pack(f"={len(ports)}i", *(each.fileno() for each in listeners))
    control_socket.sendmsg([b"listening\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


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
