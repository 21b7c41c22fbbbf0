"""The process that owns one child tree at a time, so that a tree can be ended as a whole.

A program of its own (isolated, with an empty environment and the standard library only; see
`keeping`) that the server starts, uses for one child after the other, and talks to over a socket.
It is a subreaper: whatever the child starts, however it detaches, stays below this process. Told
so, it becomes another user before anything else.

A child is started in one of three ways: `plain`; `guard`, forked, and confined by itself (see
confine) before it becomes the program; `bubble`, where the program is bubblewrap, held until its
limits and its network are in place (see bubble). Only those who use the latter two pay for them.
A plain child's limits are soft ones, which it inherits and can lift again.

What the keeper promises
  * the child is started with exactly the environment, directory and descriptors of the request,
    in its own session, with default signals;
  * should memory run out, the kernel ends the child before the keeper or the server;
  * the end of the child is reported at once; `clean` is reported only when nothing of its tree
    is left: leftovers get TERM (and CONT), then KILL after the grace;
  * `end` does the same to a living child;
  * when the server's side of the socket closes, for whatever reason, the tree is killed at once;
  * no signal goes to a process id that may have been recycled: a child that is not reaped keeps
    its id, and anything deeper is signalled through a pidfd whose start time was compared.

Messages to the keeper are frames: four bytes of length, then fields separated by NUL, which
no path, argument or variable can hold. The descriptors of a `spawn` ride on its first byte: as many
pipes as it says, which become 0, 1, 2 and so on, and then the extra ones.

    spawn  grace_ms  announce  way  pipes  limits  ports  cwd  program  argument count  arguments…
           NAME=value…
    go                             the child that was waiting for its listeners may begin
    end    grace_ms

Answers are lines.

    started <pid> <start time>     when asked to announce it, of a child that lives a moment
    listening                      with a descriptor for each port; now waiting for `go`
    failed <text>                  nothing was started, or nothing of it is left
    exited <wait status>
    clean <leftovers>              ready for the next child; how many outlived their parent
    broken <text>                  the keeper gives up and exits
"""

from __future__ import annotations

# A keeper must start fast and stay small: no typing, dataclasses, contextlib or pathlib (hence the
# `noqa: PTH…`) here, and of two modules the half that is in C.
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
    from collections.abc import Callable

    from infloop.sandbox.keepers.bubblewrap_child import Bubble
else:
    import _signal as signal
    import _socket as socket

PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_FRAME_HEAD = 4
_INT_BYTES = 4
_MAX_DESCRIPTORS = 32
_FIRST_EXTRA_FD = 4
_GUARD_DESCRIPTORS = 3
_START_PATIENCE_S = 10.0
_FIRST_TO_GO = 500
_PAGE = 4096
_A_MOMENT_S = 0.005
_LOOKS = 5
_BURIALS_S = 1.0
_KILL_PATIENCE_S = 3.0
_FIRST_TICK_S = 0.001
_LAST_TICK_S = 0.05
_ALL_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_NEEDED = {signal.SIGCHLD, signal.SIGCONT, signal.SIGTRAP}
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Ignoring:
    """Does what `contextlib.suppress` does."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


class Process:
    """One line of the process table; pid and start time together name a process for ever."""

    def __init__(self, pid: int, *, start: int, parent: int, session: int, alive: bool) -> None:
        self.pid = pid
        self.start = start
        self.parent = parent
        self.session = session
        self.alive = alive


class Request:
    """What a `spawn` frame asks for."""

    def __init__(self, fields: list[bytes], descriptors: list[int]) -> None:
        _, grace_ms, announce, way, pipes, limits, ports, cwd, program, count, *rest = fields
        pairs = (variable.partition(b"=") for variable in rest[int(count) :])
        self.grace_s = int(grace_ms) / 1000
        self.announce = announce == b"1"
        self.way, _, joins = way.partition(b"-")
        self.pipes = descriptors[: int(pipes)]
        self.extra = descriptors[int(pipes) :]
        self.groups = [self.extra.pop()] if joins else []
        self.limits = numbers(limits)
        self.ports = numbers(ports)
        self.cwd = cwd
        self.program = program
        self.arguments = rest[: int(count)]
        self.environment = {name: value for name, _, value in pairs}


def numbers(listed: bytes) -> list[int]:
    """Return what is listed with commas."""
    return [int(number) for number in listed.split(b",") if number]


class SpawnError(Exception):
    """The child could not be started; the text says why."""


class TreeAliveError(Exception):
    """Processes survived KILL, or may not be signalled by this user."""


def prctl(option: int, value: int | bytes) -> None:
    """Change one attribute of this process; raise OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    argument = ctypes.c_ulong(value) if isinstance(value, int) else value
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, argument, zero, zero, zero) != 0:
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
        alive=fields[0] not in b"ZX",
    )


def all_processes() -> list[Process]:
    """Return the process table as far as this user may see it."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return [process for pid in pids if (process := read_process(pid))]


def below(roots: set[int], table: list[Process]) -> list[Process]:
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


def send_signal(process: Process, number: int) -> None:
    """Signal exactly this process; one that is gone, replaced or not ours is left alone."""
    with Ignoring(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(process.pid)
        try:
            now = read_process(process.pid)
            if now is not None and now.start == process.start:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


class OwnChildren:
    """The direct children of this process, dead ones included until they are reaped."""

    def __init__(self) -> None:
        # Held open: looking the file up again for every child costs more than reading it.
        try:
            self._fd = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1

    def pids(self) -> list[int]:
        """Return their ids as they are now."""
        if self._fd < 0:
            return [process.pid for process in all_processes() if process.parent == os.getpid()]
        listed = b""
        while part := os.pread(self._fd, _PAGE, len(listed)):
            listed += part
        return [int(pid) for pid in listed.split()]


class FirstToGo:
    """While it lasts, those are born whom the kernel ends first when there is no memory left."""

    def __init__(self) -> None:
        # Held open: once this process is hidden, or another user, it may not open its own.
        try:
            self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._fd = -1
        self._own = b""

    def __enter__(self) -> None:
        if self._fd >= 0:
            self._own = os.pread(self._fd, _PAGE, 0)
            os.pwrite(self._fd, str(max(int(self._own), _FIRST_TO_GO)).encode(), 0)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, self._own, 0)


class Keeper:
    """Looks after one child at a time until the door closes."""

    def __init__(self, door: socket.socket, first_to_go: FirstToGo) -> None:
        self._door = door
        self._first_to_go = first_to_go
        self._children = OwnChildren()
        self._poll = select.poll()
        self._poll.register(door, select.POLLIN)
        self._target = 0
        self._exited = False
        self._announce = False
        self._bubble: Bubble | None = None

    def serve(self) -> None:
        """Take requests until the server closes its side."""
        while (message := self._receive()) is not None:
            fields, descriptors = message
            # An `end` that crossed the last `clean` on its way has nothing left to end.
            if fields[0] == b"spawn":
                self._look_after(Request(fields, descriptors), descriptors)
                os.chdir("/")

    def _receive(self) -> tuple[list[bytes], list[int]] | None:
        """Return the next message and its descriptors, or None when the door is closed."""
        try:
            head, descriptors = receive_descriptors(self._door, _FRAME_HEAD)
            body = self._read_exactly(int.from_bytes(head, "big"))
        except ConnectionError:
            return None
        return (body.split(b"\0"), descriptors) if body else None

    def _read_exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._door.recv(size)
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def tell(self, text: str) -> None:
        """Send a line to the server."""
        # A server that is gone needs no answer; the closed door is noticed where it matters.
        with Ignoring(OSError):
            self._door.sendall(f"{text}\n".encode("utf-8", "backslashreplace"))

    def _look_after(self, request: Request, descriptors: list[int]) -> None:
        self._exited = False
        self._announce = request.announce
        try:
            with self._first_to_go:
                self._target = self._start(request)
        except SpawnError as failure:
            if self._bubble:
                self._bubble.close()
            self.tell(f"failed {failure}")
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        if self._bubble:
            self._look_after_bubble(request, self._bubble)
            return
        leftovers = self._see_it_end(request.grace_s)
        # Only now may the id, and with it the number of the process group, be used again.
        _, status = os.waitpid(self._target, 0)
        self.tell(f"clean {leftovers}" if self._exited else f"exited {status}\nclean 0")

    def _start(self, request: Request) -> int:
        self._bubble = None
        enter(request.cwd)
        if request.way == b"bubble":
            self._bubble = sys.modules["bubblewrap_child"].Bubble(request.groups)
        if request.way == b"guard":
            return start_confined(request)
        if self._bubble is None:
            return start_limited(request)
        try:
            return start(request, request.extra + self._bubble.inherited)
        finally:
            self._bubble.hand_over()

    def _see_it_end(self, grace_s: float) -> int:
        """Return how many processes outlived the child's own end."""
        asked = self._wait_for(b"end")
        if asked is None and self._children.pids() == [self._target]:
            return 0
        told = self._end_tree(grace_s if asked is None else int(asked[1]) / 1000)
        return told if asked is None else 0

    def _look_after_bubble(self, request: Request, bubble: Bubble) -> None:
        """See to a child that bubblewrap holds: its limits, its network, its life and its end."""
        problem = ""
        asked: list[bytes] | None = None
        try:
            limit(bubble.find_child(), request.limits)
            asked = self._hold(request, bubble)
            if asked is None:
                bubble.release()
                asked = self._wait_for(b"end")
            if asked is None:
                # With bubblewrap gone the kernel ends what it made.
                bubble.wait_for_end(_KILL_PATIENCE_S)
        except (OSError, ValueError) as error:
            problem = f"the sandbox could not be set up: {error}"
        grace_s = int(asked[1]) / 1000 if asked else 0.0
        self._end_tree(grace_s, spared=bubble.own_processes(self._target))
        _, status = os.waitpid(self._target, 0)
        began = bubble.close()
        if not (problem or began or asked or os.WIFSIGNALED(status)):
            problem = "the sandbox could not be set up"
        self.tell(f"failed {problem}" if problem else f"exited {status}\nclean 0")

    def _hold(self, request: Request, bubble: Bubble) -> list[bytes] | None:
        """Hold the child until its listeners have an owner; return the server's `end`, if any."""
        if not request.ports:
            return None
        bubble.listen(request.ports, self._door)
        word = self._wait_for(b"go", b"end")
        return word if word and word[0] == b"end" else None

    def _wait_for(self, *words: bytes) -> list[bytes] | None:
        """Return the first message that begins with one of the words; None at the child's end."""
        pidfd = os.pidfd_open(self._target)
        self._poll.register(pidfd, select.POLLIN)
        try:
            while True:
                patience_s = _A_MOMENT_S if self._announce else _BURIALS_S
                ready = [fd for fd, _ in self._poll.poll(patience_s * 1000)]
                if pidfd in ready:
                    return None
                if not ready and self._announce:
                    self._tell_it_lives()
                elif not ready:
                    self._bury_others()
                elif (message := self._hear())[0] in words:
                    return message
        finally:
            self._poll.unregister(pidfd)
            os.close(pidfd)

    def _tell_it_lives(self) -> None:
        # Not sooner: of most children nobody needs to know, and to ask holds them up.
        self._announce = False
        process = read_process(self._target)
        self.tell(f"started {self._target} {process.start if process else 0}")

    def _hear(self) -> list[bytes]:
        """Read one message; a closed door is an `end` without grace."""
        message = self._receive()
        if message is None:
            self._poll.unregister(self._door)
            return [b"end", b"0"]
        return message[0]

    def _end_tree(self, grace_s: float, spared: frozenset[int] = frozenset()) -> int:
        """End everything below; return how many processes were told to go.

        The `spared` are not asked, only killed: they end by themselves when the others have.
        """
        told: set[tuple[int, int]] = set()
        kill_at = time.monotonic() + grace_s
        tick_s = _FIRST_TICK_S
        while self._anyone_left():
            now = time.monotonic()
            if now > kill_at + _KILL_PATIENCE_S:
                raise TreeAliveError(f"processes {self._children.pids()} could not be ended")
            tree = [process for process in below({os.getpid()}, all_processes()) if process.alive]
            if now >= kill_at:
                self._kill(tree)
            else:
                tree = [process for process in tree if process.pid not in spared]
                ask_to_end([p for p in tree if (p.pid, p.start) not in told])
            told.update((process.pid, process.start) for process in tree)
            if self._poll.poll(tick_s * 1000):
                word, *grace_ms = self._hear()
                grace_s = int(grace_ms[0]) / 1000 if word == b"end" else 0.0
                kill_at = min(kill_at, time.monotonic() + grace_s)
            tick_s = min(tick_s * 2, _LAST_TICK_S)
        return len(told)

    def _bury_others(self) -> bool:
        """Reap the dead except the child itself; return whether others may live."""
        # Whoever died may have left us its children since we looked. Some never stop doing so.
        for _ in range(_LOOKS):
            others = [pid for pid in self._children.pids() if pid != self._target]
            if not others:
                return False
            alive = [pid for pid in others if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            if alive:
                return True
        return True

    def _anyone_left(self) -> bool:
        """Return whether anyone may live; the child's own end is told when it is first seen."""
        # First the child itself: with its end, others may fall to us.
        if not self._exited:
            peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, self._target, peek)
            if ended is not None:
                self._exited = True
                # What bubblewrap's own end means is known only when all is over.
                if not self._bubble:
                    self.tell(f"exited {wait_status(ended)}")
        return self._bury_others() or not self._exited

    def _kill(self, tree: list[Process]) -> None:
        # The group first: one call that no amount of forking outruns. Then the direct children,
        # among them those that fork and exit faster than the process table can be read.
        with Ignoring(ProcessLookupError, PermissionError):
            os.killpg(self._target, signal.SIGKILL)
        for pid in self._children.pids():
            with Ignoring(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for process in tree:
            send_signal(process, signal.SIGKILL)


def receive_descriptors(door: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Return up to `size` bytes and the descriptors that came with them."""
    # Not socket.recv_fds: it drops the flag that keeps descriptors out of the child.
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT_BYTES)
    data, control, _, _ = door.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    packed = b"".join([part for _, _, part in control])
    cuts = range(0, len(packed), _INT_BYTES)
    return data, [int.from_bytes(packed[at : at + _INT_BYTES], sys.byteorder) for at in cuts]


def ask_to_end(processes: list[Process]) -> None:
    """Send TERM, and CONT so that a stopped process can act on it."""
    for process in processes:
        send_signal(process, signal.SIGTERM)
    for process in processes:
        send_signal(process, signal.SIGCONT)


def wait_status(ended: os.waitid_result) -> int:
    """Return what waitpid would have said."""
    return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status


def enter(directory: bytes) -> None:
    """Go where the child is to begin."""
    cwd = os.fsdecode(directory)
    try:
        os.chdir(directory)
    except FileNotFoundError:
        raise SpawnError(f"cwd {cwd!r} does not exist") from None
    except NotADirectoryError:
        raise SpawnError(f"cwd {cwd!r} is not a directory") from None
    except OSError as error:
        raise SpawnError(f"cwd {cwd!r} cannot be entered: {error.strerror}") from None


def start_limited(request: Request) -> int:
    """Start the child within limits that it inherits from us, and return its id."""
    own = [(kind, resource.getrlimit(kind)) for kind in request.limits[::2]]
    try:
        for (kind, (soft, hard)), value in zip(own, request.limits[1::2], strict=True):
            resource.setrlimit(kind, (lower(value, soft), hard))
        return start(request, request.extra)
    finally:
        for kind, before in own:
            resource.setrlimit(kind, before)


def start(request: Request, extra: list[int]) -> int:
    """Start the child and return its id; it gets the pipes as 0, 1, 2 and so on, then the extra."""
    # In this order, as descriptors are received and opened, none is overwritten before its turn.
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


def start_confined(request: Request) -> int:
    """Fork the child, which confines itself and becomes the program; return its id."""
    confine = sys.modules["guard_child"].confine
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(request, confine)
        except OSError as error:
            os.write(say, why_not_started(os.fsdecode(request.program), error).encode())
        except Exception as error:  # noqa: BLE001  (the edge of a process: it must say why it ends)
            os.write(say, f"the child could not be confined: {error}".encode())
        finally:
            os._exit(1)
    os.close(say)
    try:
        # Closed by the kernel, with nothing said, the moment the program takes over.
        ready, _, _ = select.select([said], [], [], _START_PATIENCE_S)
        why = os.read(said, _PAGE) if ready else b"the child could not be confined in time"
    finally:
        os.close(said)
    if why:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise SpawnError(why.decode(errors="replace"))
    return pid


def become(request: Request, confine: Callable[[list[int]], None]) -> None:
    """Be the program from here on, confined."""
    os.setsid()
    # Not signal.signal: sixty times, it takes as long as the fork.
    set_signal = ctypes.CDLL(None).signal
    for each in _ALL_SIGNALS:
        set_signal(each, None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number, fd in enumerate(request.pipes):
        os.dup2(fd, number)
    limit(0, request.limits)
    try:
        confine(request.extra[:_GUARD_DESCRIPTORS])
    except OSError as error:
        raise RuntimeError(error.strerror or str(error)) from error
    for number, fd in enumerate(request.extra[_GUARD_DESCRIPTORS:], _FIRST_EXTRA_FD):
        os.dup2(fd, number)
    os.execve(request.program, request.arguments, request.environment)  # noqa: S606  (our purpose)


def limit(pid: int, limits: list[int]) -> None:
    """Bound what a process (0: this one) may use; `limits` alternates resources and values."""
    for kind, value in zip(limits[::2], limits[1::2], strict=True):
        _, most = resource.prlimit(pid, kind)
        least = lower(value, most)
        resource.prlimit(pid, kind, (least, least))


def lower(one: int, other: int) -> int:
    """Return the lower of two limits."""
    return min(one, other) if other != resource.RLIM_INFINITY else one


def why_not_started(program: str, error: OSError) -> str:
    """Return a sentence about a program that the kernel would not run."""
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


def main(door_fd: int, user: str) -> None:
    """Be a keeper until the server is done with it."""
    os.closerange(door_fd + 1, os.sysconf("SC_OPEN_MAX"))
    first_to_go = FirstToGo()
    if user:
        become_user(user)
    for number in _ALL_SIGNALS - _NEEDED - _FAULTS:
        signal.signal(number, signal.SIG_IGN)
    # Ignored, as some parents hand it down, it would reap children behind our back.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(door_fd, False)  # noqa: FBT003  (positional only)
    os.chdir("/")
    prctl(PR_SET_NAME, b"infloop-keeper")
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper(socket.socket(fileno=door_fd), first_to_go)
    try:
        keeper.serve()
    except Exception as error:  # noqa: BLE001  (the edge: the server must learn the reason)
        keeper.tell(f"broken {error!r}")
        os._exit(1)
    os._exit(0)
