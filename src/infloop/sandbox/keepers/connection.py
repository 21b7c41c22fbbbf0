"""The server's side of one keeper: starts it, talks to it, and reaps it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infloop.sandbox.keepers import keeper as program
from infloop.sandbox.keepers.orphans import KEEPER_PIDS, end_orphans

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.sandbox.base import ChildRequest
    from infloop.sandbox.keepers.child import Child
    from infloop.sandbox.keepers.fd_watcher import FdWatcher
    from infloop.sandbox.keepers.passed_listeners import PassedListeners
    from infloop.sandbox.spawn_request import SpawnRequest

_CONTROL_FD = 3
_HEAD_BYTES = 4
_MAX_ANSWER = 1 << 12
# Longer than a keeper waits for a tree that survives KILL.
_TIMEOUT_S = 4.0


class KeeperConnection:
    """The connection to a running keeper process.

    `on_free` is called when the keeper can run the next child, `on_lost` when it has ended.
    """

    def __init__(
        self,
        watcher: FdWatcher,
        on_free: Callable[[KeeperConnection], None],
        on_lost: Callable[[KeeperConnection], None],
        options: KeeperOptions,
    ) -> None:
        self.child: Child | None = None
        self._listeners: PassedListeners | None = None
        self._watcher = watcher
        self._on_free = on_free
        self._on_lost = on_lost
        self._unsent = bytearray()
        self._unread = b""
        self._received: list[int] = []
        self._broken_reason = ""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._pid = _start_program(theirs.fileno(), options)
                self._pidfd = os.pidfd_open(self._pid)
            except OSError:
                self._socket.close()
                raise
        KEEPER_PIDS.add(self._pid)
        self._socket.setblocking(False)  # noqa: FBT003  (positional only)
        watcher.watch(self._socket.fileno(), self._on_ready)

    def spawn(self, child: Child, message: EncodedSpawn) -> bool:
        """Start the child; return False when this keeper is dead, so that nothing was sent."""
        frame = message.frame
        try:
            descriptors = [*child.pipes.child_ends, *message.descriptors]
            sent = socket.send_fds(self._socket, [frame], descriptors)
        except OSError:
            return False
        child.pipes.hand_over()
        child.end = partial(self._end, child)
        self.child = child
        self._listeners = message.listeners
        self._on_placed = message.on_placed
        if sent < len(frame):
            self._send(frame[sent:])
        if child.request.timeout_ms:
            child.after(child.request.timeout_ms / 1000, self._time_out)
        return True

    def release_child(self, child: Child) -> None:
        """Start a child that was held until its listeners had an owner."""
        if self.child is child and not self._is_disconnected:
            self._send(_frame("go"))

    def disconnect(self) -> None:
        """Close the socket, so that the keeper kills its tree and exits; then call `reap`."""
        if not self._is_disconnected:
            self._watcher.forget(self._socket.fileno())
            self._socket.close()

    async def reap(self) -> None:
        """Wait until the keeper process has exited; end the processes that it left behind."""
        code = await self._wait_for_exit()
        KEEPER_PIDS.discard(self._pid)
        remaining = await end_orphans() if code != 0 else 0
        if self.child:
            self.child.error = self.child.error or self._describe_loss(code, remaining)
            self._tree_gone(self.child)
        os.close(self._pidfd)

    async def _wait_for_exit(self) -> int | None:
        """Return the exit code of the process; None when it is unknown."""
        if not await self._watcher.readable(self._pidfd, _TIMEOUT_S):
            self._kill()
            await self._watcher.readable(self._pidfd, _TIMEOUT_S)
        try:
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222
        except ChildProcessError:
            return None  # where SIGCHLD is ignored, the kernel keeps no exit codes
        return os.waitstatus_to_exitcode(program.wait_status(ended)) if ended else None

    @property
    def _is_disconnected(self) -> bool:
        return self._socket.fileno() < 0

    def _end(self, child: Child) -> None:
        """End the child's tree with its grace, unless it is gone or is being killed."""
        if self.child is not child or self._is_disconnected:
            return
        child.ended_by_us = child.ended_by_us or child.running
        self._send(_frame("end", str(child.grace_ms)))
        self._expect_clean(child)

    def _time_out(self) -> None:
        if self.child:
            self.child.timed_out = True
            self._end(self.child)

    def _expect_clean(self, child: Child) -> None:
        child.after(child.grace_ms / 1000 + _TIMEOUT_S, self._kill)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self._flush()
        if self._unsent:
            self._watcher.watch_writing(self._socket.fileno(), wanted=True)

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except ConnectionError:
            # `_on_ready` handles the closed socket when it reads from it.
            self._unsent.clear()

    def _on_ready(self) -> None:
        if self._unsent:
            self._flush()
            if not self._unsent:
                self._watcher.watch_writing(self._socket.fileno(), wanted=False)
        try:
            data, received = program.receive_descriptors(self._socket, _MAX_ANSWER)
        except BlockingIOError:
            return
        except ConnectionError:
            data, received = b"", []
        self._received += received
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._handle_line(line)
        if not data:
            self._on_lost(self)
        elif self.child and not self.child.running:
            self._expect_clean(self.child)

    def _handle_line(self, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        child = self.child
        if kind == b"broken":
            self._broken_reason = rest.decode()
        elif child is None:
            return
        elif kind == b"exited":
            child.exited(int(rest))
        elif kind == b"clean":
            child.leftovers = int(rest)
            self._finish(child)
        elif kind == b"started":
            pid, start_time = rest.split()
            child.started(int(pid), int(start_time))
        elif kind == b"placed":
            self._on_placed()
        elif kind == b"listening" and self._listeners:
            self._listeners.receive(self._received)
            self._received = []
        elif kind == b"failed":
            child.error = rest.decode()
            self._finish(child)

    def _finish(self, child: Child) -> None:
        self._tree_gone(child)
        self._on_free(self)

    def _tree_gone(self, child: Child) -> None:
        """Release a child of which no process is left."""
        self.child = None
        if self._listeners:
            self._listeners.child_ended()
        child.tree_gone()

    def _describe_loss(self, code: int | None, remaining: int) -> str:
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        what = f"{remaining} of its processes are alive" if remaining else "the child was ended"
        return f"the keeper of the child was lost ({self._broken_reason or how}); {what}"


class KeeperOptions(NamedTuple):
    """How the keepers of a pool are started: as which user (uid, gid), with which modules."""

    user: tuple[int, int] | None = None
    modules: tuple[str, ...] = ()


class EncodedSpawn(NamedTuple):
    """A spawn message with its descriptors, and what receives the child's listeners.

    `on_placed` is called when the child's places were checked.
    """

    frame: bytes
    descriptors: tuple[int, ...]
    listeners: PassedListeners | None
    on_placed: Callable[[], None]


def spawn_frame(
    request: ChildRequest, spawn: SpawnRequest, *, pipes: int, announce: bool, nice: int
) -> bytes:
    """Return the message that starts a child; raise ValueError for values that exec cannot pass."""
    if "" in spawn.env or "=" in "".join(spawn.env):
        name = next(name for name in spawn.env if not name or "=" in name)
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    fields = [
        "spawn",
        str(request.grace_ms),
        str(nice),
        "1" if announce else "0",
        _mode(spawn),
        str(pipes),
        ",".join([f"{kind},{value}" for kind, value in spawn.limits]),
        ",".join(map(str, spawn.bubblewrap.ports)) if spawn.bubblewrap else "",
        spawn.cwd,
        spawn.program,
        str(len(spawn.argv)),
        str(len(spawn.places)),
        *spawn.argv,
        *(" ".join(map(str, place)) for place in spawn.places),
        *map("=".join, spawn.env.items()),
    ]
    frame = _frame(*fields)
    if frame.count(b"\0", _HEAD_BYTES) != len(fields) - 1:
        field = next(field for field in fields if "\0" in field)
        raise ValueError(f"{field!r} holds a NUL character")
    return frame


def _mode(spawn: SpawnRequest) -> str:
    if spawn.guard:
        return "guard"
    if spawn.bubblewrap:
        brokered = "-brokered" if spawn.bubblewrap.brokered else ""
        cgroup = "-cgroup" if spawn.bubblewrap.joins_cgroup else ""
        untraced = "" if spawn.bubblewrap.traced else "-untraced"
        pids = f"-pids={spawn.bubblewrap.max_pids}" if spawn.bubblewrap.max_pids else ""
        return f"bubblewrap{brokered}{cgroup}{untraced}{pids}"
    return "plain"


def _frame(*fields: str) -> bytes:
    body = os.fsencode("\0".join(fields))
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


# Imported, not run as a script: the compiled module is cached, which saves each keeper a quarter of
# its memory.
_START_CODE = """\
import sys
_, file, control_fd, user, *modules = sys.argv
sys.path.append(file.rpartition("/")[0])
import keeper
for name in modules:
    __import__(name)
sys.path.pop()
keeper.main(int(control_fd), user)
"""


def _start_program(control_fd: int, options: KeeperOptions) -> int:
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    user = ":".join(map(str, options.user or ()))
    return os.posix_spawn(
        sys.executable,
        [
            *(sys.executable, "-I", "-S", "-c", _START_CODE, program.__file__),
            *(str(_CONTROL_FD), user, *options.modules),
        ],
        {},
        # The control socket first: if the server has no standard streams, its number may be 0 to 2.
        file_actions=[
            (os.POSIX_SPAWN_DUP2, control_fd, _CONTROL_FD),
            null,
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )
