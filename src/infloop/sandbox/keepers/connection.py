"""The server's side of one keeper: starting it, talking to it, and its burial."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infloop.sandbox.keepers import keeper as program
from infloop.sandbox.keepers.orphans import KEEPERS, end_strays

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.sandbox.base import ChildRequest
    from infloop.sandbox.keepers.child import Child
    from infloop.sandbox.keepers.fd_watcher import Readiness
    from infloop.sandbox.keepers.passed_listeners import Listeners
    from infloop.sandbox.launch import Launch

_DOOR_FD = 3
_HEAD_BYTES = 4
_MAX_ANSWER = 1 << 12
# Longer than a keeper's own patience with a tree that will not go.
_PATIENCE_S = 4.0


class Keeper:
    """A running keeper process; `on_free` and `on_lost` tell its owner what became of it."""

    def __init__(
        self,
        readiness: Readiness,
        on_free: Callable[[Keeper], None],
        on_lost: Callable[[Keeper], None],
        outfit: Outfit,
    ) -> None:
        self.child: Child | None = None
        self._listeners: Listeners | None = None
        self._readiness = readiness
        self._on_free = on_free
        self._on_lost = on_lost
        self._unsent = bytearray()
        self._unread = b""
        self._received: list[int] = []
        self._reason = ""
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._pid = _start_program(theirs.fileno(), outfit)
                self._pidfd = os.pidfd_open(self._pid)
            except OSError:
                self._door.close()
                raise
        KEEPERS.add(self._pid)
        self._door.setblocking(False)  # noqa: FBT003  (positional only)
        readiness.watch(self._door.fileno(), self._on_ready)

    def take(self, child: Child, order: Order) -> bool:
        """Start the child; return False when this keeper is dead and nothing was sent."""
        frame = order.frame
        try:
            descriptors = [*child.pipes.child_ends, *order.descriptors]
            sent = socket.send_fds(self._door, [frame], descriptors)
        except OSError:
            return False
        child.pipes.hand_over()
        child.end = partial(self._end, child)
        self.child = child
        self._listeners = order.listeners
        if sent < len(frame):
            self._send(frame[sent:])
        if child.request.timeout_ms:
            child.after(child.request.timeout_ms / 1000, self._time_out)
        return True

    def let_begin(self, child: Child) -> None:
        """Let a child begin that was held until its listeners had an owner."""
        if self.child is child and not self._is_shut:
            self._send(_frame("go"))

    def shut(self) -> None:
        """Close the door, which makes the keeper kill its tree and exit; then `bury` it."""
        if not self._is_shut:
            self._readiness.forget(self._door.fileno())
            self._door.close()

    async def bury(self) -> None:
        """Wait for the keeper process to be gone, and end what it should have ended."""
        code = await self._gone()
        KEEPERS.discard(self._pid)
        remaining = await end_strays() if code != 0 else 0
        if self.child:
            self.child.error = self.child.error or self._why_lost(code, remaining)
            self._let_go(self.child)
        os.close(self._pidfd)

    async def _gone(self) -> int | None:
        """Return the exit code of the process; None when it is not known."""
        if not await self._readiness.readable(self._pidfd, _PATIENCE_S):
            self._kill()
            await self._readiness.readable(self._pidfd, _PATIENCE_S)
        try:
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222
        except ChildProcessError:
            return None  # where SIGCHLD is ignored the kernel keeps no exit codes
        return os.waitstatus_to_exitcode(program.wait_status(ended)) if ended else None

    @property
    def _is_shut(self) -> bool:
        return self._door.fileno() < 0

    def _end(self, child: Child) -> None:
        """End the child's tree, with its grace, unless it is gone or being ended the hard way."""
        if self.child is not child or self._is_shut:
            return
        child.ended_by_us = child.ended_by_us or child.running
        self._send(_frame("end", str(child.grace_ms)))
        self._expect_clean(child)

    def _time_out(self) -> None:
        if self.child:
            self.child.timed_out = True
            self._end(self.child)

    def _expect_clean(self, child: Child) -> None:
        child.after(child.grace_ms / 1000 + _PATIENCE_S, self._kill)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self._flush()
        if self._unsent:
            self._readiness.also_write(self._door.fileno(), wanted=True)

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._door.send(self._unsent)]
        except BlockingIOError:
            return
        except ConnectionError:
            # A closed door is dealt with when it is read.
            self._unsent.clear()

    def _on_ready(self) -> None:
        if self._unsent:
            self._flush()
            if not self._unsent:
                self._readiness.also_write(self._door.fileno(), wanted=False)
        try:
            data, received = program.receive_descriptors(self._door, _MAX_ANSWER)
        except BlockingIOError:
            return
        except ConnectionError:
            data, received = b"", []
        self._received += received
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._hear(line)
        if not data:
            self._on_lost(self)
        elif self.child and not self.child.running:
            self._expect_clean(self.child)

    def _hear(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        child = self.child
        if word == b"broken":
            self._reason = rest.decode()
        elif child is None:
            return
        elif word == b"exited":
            child.exited(int(rest))
        elif word == b"clean":
            child.leftovers = int(rest)
            self._release(child)
        elif word == b"started":
            pid, start_time = rest.split()
            child.started(int(pid), int(start_time))
        elif word == b"listening" and self._listeners:
            self._listeners.arrive(self._received)
            self._received = []
        elif word == b"failed":
            child.error = rest.decode()
            self._release(child)

    def _release(self, child: Child) -> None:
        self._let_go(child)
        self._on_free(self)

    def _let_go(self, child: Child) -> None:
        """Be done with a child of which nothing is left."""
        self.child = None
        if self._listeners:
            self._listeners.give_up()
        child.tree_gone()

    def _why_lost(self, code: int | None, remaining: int) -> str:
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        what = f"{remaining} processes of it live on" if remaining else "the child was ended"
        return f"the keeper of the child was lost ({self._reason or how}); {what}"


class Outfit(NamedTuple):
    """How keepers of one pool are started: as which user, with which modules loaded."""

    user: tuple[int, int] | None = None
    modules: tuple[str, ...] = ()


class Order(NamedTuple):
    """What a keeper is sent to start a child, and who waits for the child's listeners."""

    frame: bytes
    descriptors: tuple[int, ...]
    listeners: Listeners | None


def spawn_frame(request: ChildRequest, launch: Launch, *, pipes: int, announce: bool) -> bytes:
    """Return the message that starts a child; raise ValueError for what no program can be given."""
    if "" in launch.env or "=" in "".join(launch.env):
        name = next(name for name in launch.env if not name or "=" in name)
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    fields = [
        "spawn",
        str(request.grace_ms),
        "1" if announce else "0",
        _way(launch),
        str(pipes),
        ",".join([f"{kind},{value}" for kind, value in launch.limits]),
        ",".join(map(str, launch.bubble.ports)) if launch.bubble else "",
        launch.cwd,
        launch.program,
        str(len(launch.argv)),
        *launch.argv,
        *map("=".join, launch.env.items()),
    ]
    frame = _frame(*fields)
    if frame.count(b"\0", _HEAD_BYTES) != len(fields) - 1:
        field = next(field for field in fields if "\0" in field)
        raise ValueError(f"{field!r} holds a NUL character")
    return frame


def _way(launch: Launch) -> str:
    if launch.guard:
        return "guard"
    if launch.bubble:
        return "bubble-joins" if launch.bubble.joins else "bubble"
    return "plain"


def _frame(*fields: str) -> bytes:
    body = os.fsencode("\0".join(fields))
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


# Imported, it is compiled once for all keepers, which saves each a quarter of its memory.
_BEGIN = """\
import sys
_, file, door, user, *modules = sys.argv
sys.path.append(file.rpartition("/")[0])
import keeper
for name in modules:
    __import__(name)
sys.path.pop()
keeper.main(int(door), user)
"""


def _start_program(door: int, outfit: Outfit) -> int:
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    user = ":".join(map(str, outfit.user or ()))
    return os.posix_spawn(
        sys.executable,
        [
            *(sys.executable, "-I", "-S", "-c", _BEGIN, program.__file__),
            *(str(_DOOR_FD), user, *outfit.modules),
        ],
        {},
        # The door first: where the server runs without standard streams it may be one of 0 to 2.
        file_actions=[
            (os.POSIX_SPAWN_DUP2, door, _DOOR_FD),
            null,
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )
