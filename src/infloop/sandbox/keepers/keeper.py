"""The keeper program: a process that owns one child tree at a time and can end it as a whole.

The server starts it (see connection), uses it for one child after the other, and talks to it over a
socket, the control socket. It runs isolated, with an empty environment and the standard library
only. It is a subreaper: every process that the child starts stays below it, also after a double
fork or in a new session. It can change to another user first.

A child is started in one of three modes:

- `plain`: with soft limits, which the child can raise again.
- `guard`: the keeper forks, and the forked process confines itself before exec (see guard_child).
- `bubblewrap`: the program is bubblewrap. It is held until the child's limits and network are in
  place (see bubblewrap_child). If the server answers connect() calls, it is forked as in `guard`.

What the keeper promises:

- The child starts with exactly the environment, directory and descriptors of the request, in its
  own session, with default signals.
- When memory runs out, the kernel kills the child before the keeper or the server.
- The child has a lower CPU priority than the keeper and the server.
- The end of the child is reported at once. `clean` is reported when no process of its tree is
  left: processes that remain get TERM (and CONT), then KILL after the grace.
- `end` does the same to a running child. A tree of more than 128 processes gets no grace.
- Before it is killed, a tree is stopped: a stopped process starts no others, and it leaves them no
  room where their number is limited. So a fork bomb is ended too.
- When the server's side of the control socket closes, for any reason, the tree is killed at once.
- No signal goes to a recycled process id. A child that is not reaped keeps its id; any deeper
  process is signalled through a pidfd after its start time was compared.

Messages to the keeper are frames: four bytes of length, then fields separated by NUL, which no
path, argument or variable can hold. The descriptors of a `spawn` come with its first byte: first
the pipes, which become 0, 1, 2 and so on, then the extra ones.

    spawn  grace_ms  nice  announce  mode  pipes  limits  ports  cwd  program  argument count
           place count  arguments…  places…  NAME=value…
    go                             the child that waits for its listeners may start
    end    grace_ms

Answers are lines.

    started <pid> <start time>     if asked to announce it: the child has run for some milliseconds
    placed                         the places were checked, if there were any
    listening                      with a descriptor for each port; the keeper waits for `go`
    failed <text>                  nothing was started, or nothing of it is left
    exited <wait status>
    clean <leftovers>              ready for the next child; how many processes outlived the child
    broken <text>                  the keeper exits because of an error
"""

from __future__ import annotations

# A keeper must start fast and stay small: no typing, dataclasses, contextlib or pathlib (hence the
# `noqa: PTH…`). The C halves of `signal` and `socket` save 7 of 20 ms of CPU time for each start
# and 0.9 of 4.3 MB of private memory for each keeper (medians of 240 alternating starts).
import ctypes
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterator

    from infloop.sandbox.keepers.bubblewrap_child import BubblewrapChild
else:
    import _signal as signal
    import _socket as socket

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_HEAD_BYTES = 4
_INT_BYTES = 4
_MAX_DESCRIPTORS = 32
_FIRST_EXTRA_FD = 4
_GUARD_DESCRIPTORS = 3
_START_TIMEOUT_S = 10.0
_CHILD_OOM_SCORE = 500
_KEEPER_NICE = -10
_PAGE = 4096
_CONFINED_TOO_SLOWLY = b"the child could not be confined in time"
_ANNOUNCE_AFTER_S = 0.005
_MAX_SCANS = 5
_MAX_GRACEFUL = 128
_REAP_INTERVAL_S = 1.0
_AUTOGROUP_INTERVAL_S = 0.1
_KILL_TIMEOUT_S = 3.0
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
_ALL_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_NEEDED_SIGNALS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGTRAP}
_FAULT_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

# Looked up here, because a forked process would need 0.3 of 1.5 ms of CPU time for it.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _set_signal = _libc.prctl, _libc.signal


class Suppress:
    """`contextlib.suppress`, without its imports."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


class Process:
    """One entry of the process table; pid and start time together identify a process."""

    def __init__(
        self, pid: int, *, start: int, parent: int, session: int, threads: int, alive: bool
    ) -> None:
        self.pid = pid
        self.threads = threads
        self.start = start
        self.parent = parent
        self.session = session
        self.alive = alive


class SpawnMessage:
    """A decoded `spawn` message."""

    def __init__(self, fields: list[bytes], descriptors: list[int]) -> None:
        _, grace_ms, nice, announce, mode, pipes, limits, ports, cwd, program, *rest = fields
        arguments, places, rest = int(rest[0]), int(rest[1]), rest[2:]
        pairs = (variable.partition(b"=") for variable in rest[arguments + places :])
        self.grace_s = int(grace_ms) / 1000
        self.nice = int(nice)
        self.announce = announce == b"1"
        self.mode, *self.options = mode.split(b"-")
        self.pipes = descriptors[: int(pipes)]
        self.extra = descriptors[int(pipes) :]
        self.cgroups = [self.extra.pop()] if b"cgroup" in self.options else []
        self.broker = [self.extra.pop(-2), self.extra.pop()] if b"brokered" in self.options else []
        self.max_pids = [int(each[5:]) for each in self.options if each.startswith(b"pids=")]
        self.limits = parse_numbers(limits)
        self.ports = parse_numbers(ports)
        self.cwd = cwd
        self.program = program
        self.arguments = rest[:arguments]
        self.places = [parse_place(field) for field in rest[arguments : arguments + places]]
        self.environment = {name: value for name, _, value in pairs}


def parse_place(field: bytes) -> tuple[bytes, tuple[int, int], bytes]:
    """Return the kind of a place, the device and inode that it is about, and its path."""
    kind, device, inode, path = field.split(b" ", 3)
    return kind, (int(device), int(inode)), path


def parse_numbers(listed: bytes) -> list[int]:
    """Return the numbers of a list separated by commas."""
    return [int(number) for number in listed.split(b",") if number]


class SpawnError(Exception):
    """The child could not be started; the text says why."""


class TreeAliveError(Exception):
    """Processes survived KILL, or may not be signalled by this user."""


def prctl(option: int, value: int | bytes) -> None:
    """Call prctl(2); raise OSError when the kernel refuses."""
    argument = ctypes.c_ulong(value) if isinstance(value, int) else value
    zero = ctypes.c_ulong(0)
    if _prctl(option, argument, zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")


def read_process(pid: int) -> Process | None:
    """Return the process with this id, or None when there is none."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    # The name in brackets is chosen by the process and may hold anything, brackets included.
    fields = line[line.rindex(b")") + 2 :].split()
    return Process(
        pid,
        start=int(fields[19]),
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        alive=fields[0] not in b"ZX",
    )


def all_processes() -> list[Process]:
    """Return the process table as this user sees it."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return [process for pid in pids if (process := read_process(pid))]


def descendants(roots: set[int], table: list[Process]) -> list[Process]:
    """Return every process of `table` that descends from one of the `roots`, parents first."""
    children: dict[int, list[Process]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = list(roots)
    for pid in pending:
        own = children.pop(pid, [])
        found += own
        pending += [process.pid for process in own]
    return found


def children_of(process: Process) -> list[int]:
    """Return the direct children of a process from the kernel's lists, one for each thread."""
    task = f"/proc/{process.pid}/task"
    try:
        threads = os.listdir(task) if process.threads > 1 else [str(process.pid)]  # noqa: PTH208
        return [pid for each in threads for pid in _listed_children(f"{task}/{each}/children")]
    except OSError:
        return []


def _listed_children(path: str) -> list[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        listed = b""
        while part := os.read(fd, _PAGE):
            listed += part
        return [int(pid) for pid in listed.split()]
    finally:
        os.close(fd)


def send_signal(process: Process, *numbers: int) -> None:
    """Signal this process and no other; do nothing if it is gone, replaced or not ours."""
    with Suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(process.pid)
        try:
            now = read_process(process.pid)
            if now is not None and now.start == process.start:
                for number in numbers:
                    signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


class DirectChildren:
    """The direct children of this process, dead ones included until they are reaped."""

    def __init__(self) -> None:
        # Kept open: opening the file for every child costs more than reading it.
        try:
            self._fd = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1

    def pids(self) -> list[int]:
        if self._fd < 0:
            return [process.pid for process in all_processes() if process.parent == os.getpid()]
        listed = b""
        while part := os.pread(self._fd, _PAGE, len(listed)):
            listed += part
        return [int(pid) for pid in listed.split()]

    def tree(self) -> Iterator[Process]:
        """Return every living process below this one, parents first.

        The children of a process are looked up after the caller has got the process itself.
        """
        if self._fd < 0:
            yield from descendants({os.getpid()}, all_processes())
            return
        pending = [(os.getpid(), self.pids())]
        for parent, pids in pending:
            for pid in pids:
                process = read_process(pid)
                # It may have lost its parent meanwhile, which makes it a child of ours.
                if process and process.alive and process.parent in (parent, os.getpid()):
                    yield process
                    pending.append((pid, children_of(process)))


class HighOomScore:
    """Children started inside this context have a high `oom_score_adj`."""

    def __init__(self) -> None:
        # Kept open: after PR_SET_DUMPABLE or a change of user it cannot be opened any more.
        try:
            self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._fd = -1
        self._own = b""

    def __enter__(self) -> None:
        if self._fd >= 0:
            self._own = os.pread(self._fd, _PAGE, 0)
            os.pwrite(self._fd, str(max(int(self._own), _CHILD_OOM_SCORE)).encode(), 0)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, self._own, 0)


class Keeper:
    """Runs one child at a time until the control socket closes."""

    def __init__(self, control_socket: socket.socket, high_oom_score: HighOomScore) -> None:
        self._control_socket = control_socket
        self._high_oom_score = high_oom_score
        self._children = DirectChildren()
        self._poll = select.poll()
        self._poll.register(control_socket, select.POLLIN)
        self._child_pid = 0
        self._exited = False
        self._announce = False
        self._fast_session = 0
        self._nice = 0
        self._bubblewrap: BubblewrapChild | None = None

    def serve(self) -> None:
        """Handle messages until the server closes its side."""
        while (message := self._receive()) is not None:
            fields, descriptors = message
            # An `end` that the server sent before it got `clean` has nothing left to end.
            if fields[0] == b"spawn":
                self._run_child(SpawnMessage(fields, descriptors), descriptors)
                os.chdir("/")

    def _receive(self) -> tuple[list[bytes], list[int]] | None:
        """Return the next message and its descriptors, None when the socket is closed."""
        try:
            head, descriptors = receive_descriptors(self._control_socket, _HEAD_BYTES)
            body = self._read_exactly(int.from_bytes(head, "big"))
        except ConnectionError:
            return None
        return (body.split(b"\0"), descriptors) if body else None

    def _read_exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._control_socket.recv(size)
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send_line(self, text: str) -> None:
        """Send a line to the server."""
        # A server that is gone needs no answer; `_read_message` notices the closed socket.
        with Suppress(OSError):
            self._control_socket.sendall(f"{text}\n".encode("utf-8", "backslashreplace"))

    def _run_child(self, request: SpawnMessage, descriptors: list[int]) -> None:
        self._exited = False
        self._nice = request.nice
        self._announce = request.announce
        try:
            with self._high_oom_score:
                self._child_pid = self._start(request)
        except SpawnError as failure:
            if self._bubblewrap:
                self._bubblewrap.close()
            self.send_line(f"failed {failure}")
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        if self._bubblewrap:
            self._run_bubblewrap(request, self._bubblewrap)
            return
        self._fast_session = self._child_pid
        leftovers = self._wait_and_clean_up(request.grace_s)
        # Reaped last: until then its process id and process group cannot be reused.
        _, status = os.waitpid(self._child_pid, 0)
        self.send_line(f"clean {leftovers}" if self._exited else f"exited {status}\nclean 0")

    def _start(self, request: SpawnMessage) -> int:
        self._bubblewrap = None
        change_directory(request.cwd)
        check_directory(request)
        if request.mode == b"bubblewrap":
            self._bubblewrap = sys.modules["bubblewrap_child"].BubblewrapChild(
                request.extra.pop(), request.cgroups, is_traced=b"untraced" not in request.options
            )
        if request.mode == b"guard":
            own, extra = request.extra[:_GUARD_DESCRIPTORS], request.extra[_GUARD_DESCRIPTORS:]
            confine = sys.modules["guard_child"].confine
            return start_confined(request, lambda: confine(own), extra, request.limits)
        if self._bubblewrap is None:
            return start_limited(request)
        try:
            extra = request.extra + self._bubblewrap.inherited
            if not request.broker:
                return start(request, extra)
            broker_connects = sys.modules["guard_child"].broker_connects
            return start_confined(request, lambda: broker_connects(request.broker), extra, [])
        finally:
            self._bubblewrap.hand_over()

    def _wait_and_clean_up(self, grace_s: float) -> int:
        """Wait until the child ends or must end; return how many processes outlived it."""
        end = self._wait_for(b"end")
        if end is None and self._children.pids() == [self._child_pid]:
            return 0
        signalled = self._end_tree(grace_s if end is None else int(end[1]) / 1000)
        return signalled if end is None else 0

    def _run_bubblewrap(self, request: SpawnMessage, bubblewrap: BubblewrapChild) -> None:
        """Set limits and network of a child that bubblewrap holds, run it, and end its tree."""
        problem = ""
        end: list[bytes] | None = None
        try:
            first = bubblewrap.find_child()
            set_limits(first, request.limits)
            for most in request.max_pids:
                bubblewrap.limit_pids(most)
            self._fast_session = 0
            # Before the mounts are waited for: the server serves the listeners meanwhile.
            if request.ports:
                bubblewrap.listen(request.ports, self._control_socket)
            bubblewrap.check_places(request.places)
            if request.places:
                self.send_line("placed")
            end = self._wait_for_go() if request.ports else None
            if end is None:
                lower_priority(os.PRIO_PROCESS, first, request.nice)
                bubblewrap.release()
                self._fast_session = first
                end = self._wait_for(b"end")
            if end is None:
                bubblewrap.kill()
                bubblewrap.wait_for_end(_KILL_TIMEOUT_S)
        except (OSError, ValueError) as error:
            problem = f"the sandbox could not be set up: {error}"
        grace_s = int(end[1]) / 1000 if end else 0.0
        self._end_tree(grace_s, kill_only=bubblewrap.own_processes(self._child_pid))
        _, status = os.waitpid(self._child_pid, 0)
        started = bubblewrap.close()
        if not (problem or started or end or os.WIFSIGNALED(status)):
            problem = "the sandbox could not be set up"
        self.send_line(f"failed {problem}" if problem else f"exited {status}\nclean 0")

    def _wait_for_go(self) -> list[bytes] | None:
        """Hold the child until its listeners have an owner; return the server's `end`, if any."""
        message = self._wait_for(b"go", b"end")
        return message if message and message[0] == b"end" else None

    def _wait_for(self, *kinds: bytes) -> list[bytes] | None:
        """Return the next message of these kinds; None when the child ends first."""
        pidfd = os.pidfd_open(self._child_pid)
        watched = [pidfd, *(self._bubblewrap.ended if self._bubblewrap else ())]
        for fd in watched:
            self._poll.register(fd, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(self._idle_s() * 1000)]
                if pidfd in ready:
                    return None
                if not ready:
                    self._on_idle()
                elif watched[-1] in ready:
                    self._poll.unregister(watched.pop())
                    self._reap_others()
                elif (message := self._read_message())[0] in kinds:
                    return message
        finally:
            for fd in watched:
                self._poll.unregister(fd)
            os.close(pidfd)

    def _idle_s(self) -> float:
        """Return how long to wait for the next event before `_on_idle` has work to do."""
        if self._announce:
            return _ANNOUNCE_AFTER_S
        return _AUTOGROUP_INTERVAL_S if self._fast_session else _REAP_INTERVAL_S

    def _on_idle(self) -> None:
        # Not sooner: most children end before, and reading and writing /proc would delay them.
        if self._announce:
            self._announce_start()
            return
        if self._fast_session and lower_autogroup(self._fast_session, self._nice):
            self._fast_session = 0
        self._reap_others()

    def _announce_start(self) -> None:
        self._announce = False
        process = read_process(self._child_pid)
        self.send_line(f"started {self._child_pid} {process.start if process else 0}")

    def _read_message(self) -> list[bytes]:
        """Read one message; a closed socket is an `end` without grace."""
        message = self._receive()
        if message is None:
            self._poll.unregister(self._control_socket)
            return [b"end", b"0"]
        return message[0]

    def _end_tree(self, grace_s: float, kill_only: frozenset[int] = frozenset()) -> int:
        """End all processes below this one; return how many were signalled.

        Those in `kill_only` get no TERM: they end by themselves after the others.
        """
        signalled: set[tuple[int, int]] = set()
        kill_at = time.monotonic() + grace_s
        pause_s = _FIRST_PAUSE_S
        if grace_s > 0 and self._tree_is_alive():
            self._terminate(signalled, kill_only)
        while self._tree_is_alive():
            if time.monotonic() > kill_at + _KILL_TIMEOUT_S:
                raise TreeAliveError(f"processes {self._children.pids()} could not be ended")
            if time.monotonic() >= kill_at or len(signalled) > _MAX_GRACEFUL:
                self._kill(signalled)
            if self._poll.poll(pause_s * 1000):
                kind, *grace_ms = self._read_message()
                grace_s = int(grace_ms[0]) / 1000 if kind == b"end" else 0.0
                kill_at = min(kill_at, time.monotonic() + grace_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return len(signalled)

    def _terminate(self, signalled: set[tuple[int, int]], kill_only: frozenset[int]) -> None:
        """Send TERM once to every process below this one.

        All are stopped meanwhile. So what one of them starts after TERM, to clean up, gets none.
        """
        stopped = self._stop(kill_only)
        signalled.update(stopped)
        if len(stopped) <= _MAX_GRACEFUL:
            for process in stopped.values():
                send_signal(process, signal.SIGTERM, signal.SIGCONT)

    def _stop(self, spared: frozenset[int] = frozenset()) -> dict[tuple[int, int], Process]:
        """Stop every process below this one; return those found."""
        stopped: dict[tuple[int, int], Process] = {}
        for _ in range(_MAX_SCANS):
            known = len(stopped)
            for process in self._children.tree():
                if process.pid in spared:
                    continue
                if stopped.setdefault((process.pid, process.start), process) is process:
                    send_signal(process, signal.SIGSTOP)
            if len(stopped) == known:
                break
        return stopped

    def _reap_others(self) -> bool:
        """Reap dead processes except the child itself; return whether others may be alive."""
        if self._bubblewrap:
            self._bubblewrap.resume()
        # Scan again: a process that died may have left its children to us after the scan. The
        # number of scans is bounded, because a tree can do that without end.
        for _ in range(_MAX_SCANS):
            others = [pid for pid in self._children.pids() if pid != self._child_pid]
            if not others:
                return False
            alive = [pid for pid in others if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            if alive:
                return True
        return True

    def _tree_is_alive(self) -> bool:
        """Return whether any process may be alive; report the child's own end once."""
        # The child first: when it ends, its children become ours.
        if not self._exited:
            peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, self._child_pid, peek)
            if ended is not None:
                self._exited = True
                # The meaning of bubblewrap's exit status is known only at the very end.
                if self._bubblewrap:
                    self._bubblewrap.kill()
                else:
                    self.send_line(f"exited {wait_status(ended)}")
        return self._reap_others() or not self._exited

    def _kill(self, signalled: set[tuple[int, int]]) -> None:
        """Stop every process below this one, then kill them."""
        # One call for a whole namespace or process group, which a fork bomb cannot outrun.
        if self._bubblewrap:
            self._bubblewrap.kill()
        with Suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child_pid, signal.SIGKILL)
        stopped = self._stop()
        for process in stopped.values():
            send_signal(process, signal.SIGKILL)
        signalled.update(stopped)
        # Some fork and exit faster than they can be looked up.
        for pid in self._children.pids():
            with Suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def receive_descriptors(control_socket: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Return up to `size` bytes and the descriptors that came with them."""
    # Not socket.recv_fds: it does not set MSG_CMSG_CLOEXEC, so the child would inherit them.
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT_BYTES)
    data, control, _, _ = control_socket.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    packed = b"".join([part for _, _, part in control])
    cuts = range(0, len(packed), _INT_BYTES)
    return data, [int.from_bytes(packed[at : at + _INT_BYTES], sys.byteorder) for at in cuts]


def wait_status(ended: os.waitid_result) -> int:
    """Return the result of waitid as the status that waitpid returns."""
    return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status


def change_directory(directory: bytes) -> None:
    """Enter the child's working directory; raise SpawnError when that is not possible."""
    cwd = os.fsdecode(directory)
    try:
        os.chdir(directory)
    except FileNotFoundError:
        raise SpawnError(f"cwd {cwd!r} does not exist") from None
    except NotADirectoryError:
        raise SpawnError(f"cwd {cwd!r} is not a directory") from None
    except OSError as error:
        raise SpawnError(f"cwd {cwd!r} cannot be entered: {error.strerror}") from None


def check_directory(request: SpawnMessage) -> None:
    """Raise SpawnError when the working directory is not the one that the server has checked."""
    found = os.stat(".")  # noqa: PTH116
    for kind, identity, path in request.places:
        if kind == b"cwd" and identity != (found.st_dev, found.st_ino):
            raise SpawnError(f"cwd {os.fsdecode(path)!r} was exchanged for something else")


def start_limited(request: SpawnMessage) -> int:
    """Start the child with limits that it inherits from this process; return its id."""
    own = [(kind, resource.getrlimit(kind)) for kind in request.limits[::2]]
    try:
        for (kind, (soft, hard)), value in zip(own, request.limits[1::2], strict=True):
            resource.setrlimit(kind, (lower_limit(value, soft), hard))
        pid = start(request, request.extra)
    finally:
        for kind, before in own:
            resource.setrlimit(kind, before)
    # Its whole process group: it may have started others already.
    lower_priority(os.PRIO_PGRP, pid, request.nice)
    return pid


def start(request: SpawnMessage, extra: list[int]) -> int:
    """Start the child with the pipes as 0, 1, 2, …, then the extra descriptors; return its id."""
    # In the order in which they were received, no dup2 overwrites a descriptor still needed.
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(request.pipes)]
    if extra:
        actions += [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(extra, _FIRST_EXTRA_FD)]
    try:
        return os.posix_spawn(
            request.program,
            request.arguments,
            request.environment,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=_ALL_SIGNALS,
        )
    except OSError as error:
        raise SpawnError(why_not_started(os.fsdecode(request.program), error)) from None


def start_confined(
    request: SpawnMessage, confine: Callable[[], None], extra: list[int], limits: list[int]
) -> int:
    """Fork the child, which confines itself and executes the program; return its id."""
    error_reader, error_writer = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            # Until exec, because it cannot be found by the name of its record before.
            die_with(keeper)
            execute_confined(request, confine, extra, limits)
        except OSError as error:
            message = why_not_started(os.fsdecode(request.program), error)
            os.write(error_writer, message.encode())
        except Exception as error:  # noqa: BLE001  (the edge of a process: it must say why it ends)
            os.write(error_writer, f"the child could not be confined: {error}".encode())
        finally:
            os._exit(1)
    os.close(error_writer)
    try:
        # exec closes the other end, without an error in it.
        ready, _, _ = select.select([error_reader], [], [], _START_TIMEOUT_S)
        failure = os.read(error_reader, _PAGE) if ready else _CONFINED_TOO_SLOWLY
    finally:
        os.close(error_reader)
    if failure:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise SpawnError(failure.decode(errors="replace"))
    return pid


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent is gone."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SpawnError("the keeper is gone")


def execute_confined(
    request: SpawnMessage, confine: Callable[[], None], extra: list[int], limits: list[int]
) -> None:
    """Confine this process and execute the program in it."""
    os.setsid()
    # Not signal.signal: sixty calls of it take as long as the fork.
    for each in _ALL_SIGNALS:
        _set_signal(each, None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number, fd in enumerate(request.pipes):
        os.dup2(fd, number)
    set_limits(0, limits)
    lower_priority(os.PRIO_PROCESS, 0, request.nice)
    try:
        confine()
    except OSError as error:
        raise RuntimeError(error.strerror or str(error)) from error
    for number, fd in enumerate(extra, _FIRST_EXTRA_FD):
        os.dup2(fd, number)
    prctl(PR_SET_PDEATHSIG, 0)
    os.execve(request.program, request.arguments, request.environment)  # noqa: S606  (its purpose)


def lower_priority(kind: int, who: int, nice: int) -> None:
    """Give a process (0: this one) or a process group a lower priority."""
    with Suppress(ProcessLookupError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(kind, who, max(own, nice))


def lower_autogroup(leader: int, nice: int) -> bool:
    """Make the session of this leader nicer; return False if that must be tried again."""
    process = read_process(leader)
    if process is None or process.session != leader:
        return process is None  # bubblewrap has not made the session yet
    return set_autogroup(leader, nice)


def set_autogroup(leader: int, nice: int) -> bool:
    """Set the priority of a session, if that is possible; return False if it may be soon.

    Where the kernel groups processes by session (kernel.sched_autogroup_enabled), the `nice` of a
    process counts only inside its session. Without privileges the priority of a session can only
    be lowered, and only ten times a second on a machine.
    """
    try:
        fd = os.open(f"/proc/{leader}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        os.write(fd, str(nice).encode())
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
    return True


def set_limits(pid: int, limits: list[int]) -> None:
    """Set hard limits of a process (0: this one); `limits` alternates resources and values."""
    for kind, value in zip(limits[::2], limits[1::2], strict=True):
        _, hard = resource.prlimit(pid, kind)
        lowest = lower_limit(value, hard)
        resource.prlimit(pid, kind, (lowest, lowest))


def lower_limit(one: int, other: int) -> int:
    """Return the lower of two limits."""
    return min(one, other) if other != resource.RLIM_INFINITY else one


def why_not_started(program: str, error: OSError) -> str:
    """Return why the kernel did not run a program."""
    if isinstance(error, FileNotFoundError):
        if os.path.exists(program):  # noqa: PTH110
            return f"program {program!r} names an interpreter that does not exist (first line)"
        return f"program {program!r} does not exist"
    return f"program {program!r} could not be started: {error.strerror}"


def become_user(name: str) -> None:
    """Give up being root for good; `name` is `uid:gid`."""
    uid, gid = (int(number) for number in name.split(":"))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def main(control_fd: int, user: str) -> None:
    """Run a keeper until the server closes the control socket."""
    os.closerange(control_fd + 1, os.sysconf("SC_OPEN_MAX"))
    high_oom_score = HighOomScore()
    # Only root can do this. It helps a keeper against a child with many sessions.
    set_autogroup(os.getpid(), _KEEPER_NICE)
    if user:
        become_user(user)
    for number in _ALL_SIGNALS - _NEEDED_SIGNALS - _FAULT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Some parents pass on an ignored SIGCHLD; the kernel would then reap our children itself.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(control_fd, False)  # noqa: FBT003  (positional only)
    os.chdir("/")
    prctl(PR_SET_NAME, b"infloop-keeper")
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper(socket.socket(fileno=control_fd), high_oom_score)
    try:
        keeper.serve()
    except Exception as error:  # noqa: BLE001  (the edge of a process: the server needs the reason)
        keeper.send_line(f"broken {error!r}")
        os._exit(1)
    os._exit(0)
