"""The server's ends of one child's pipes.

Output is read as it comes, while nobody holds it back, and input is written as it is taken; a
child that never reads or never stops writing costs bounded memory.
"""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from infloop.sandbox.keepers.capture import Capture
from infloop.sandbox.keepers.stdin import feed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from infloop.sandbox.base import ChildRequest, OnOutput, Valve
    from infloop.sandbox.keepers.fd_watcher import Readiness

_CHUNK = 1 << 16
_LAST_CHUNKS = 32


class Pipes:
    """Opens the pipes, holds the child's ends until they are handed over, and reads ours."""

    def __init__(
        self,
        request: ChildRequest,
        readiness: Readiness,
        on_output: OnOutput | None,
        on_end: Callable[[], None],
    ) -> None:
        limit, valve = request.max_output_bytes, request.valve
        self.stdout = Capture("stdout", limit, on_output, show_all=valve is not None)
        self.stderr = Capture("stderr", limit, on_output, show_all=valve is not None)
        self.result = _Result(request.max_result_bytes) if request.want_result else None
        self._readiness = readiness
        self._on_end = on_end
        self._readers: dict[int, Callable[[bytes], None]] = {}
        self._stdin_fd: int | None = None
        self._unwritten = memoryview(b"")
        self.child_ends: list[int] = []
        self.feeding: asyncio.Task[None] | None = None
        try:
            self._open(request)
        except OSError:
            self.close()
            raise
        if valve is not None:
            valve.watch(partial(self._on_turn, valve))
            self._on_turn(valve)

    @property
    def ended(self) -> bool:
        """Whether every output has reached its end."""
        return not self._readers

    def give_to(self, user: tuple[int, int]) -> None:
        """Make a user (uid and gid) the owner of the child's ends, to open them by name.

        Else `/dev/stdout` and its like would be closed to a child that is not of our user.
        """
        for fd in self.child_ends:
            # Its input may be the null device, which belongs to everyone.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.fchown(fd, *user)

    def hand_over(self) -> None:
        """Close the child's ends, which the child has by now."""
        while self.child_ends:
            os.close(self.child_ends.pop())

    def read_the_rest(self) -> None:
        """Read what the pipes still hold once nobody should be writing to them."""
        for fd in list(self._readers):
            for _ in range(_LAST_CHUNKS):
                if not self._read(fd):
                    break

    def close(self) -> None:
        """Close everything; what was not read is lost. `feeding` has ended a little later."""
        self.hand_over()
        self._close_stdin()
        if self.feeding is not None:
            # Not before its first step, from which on the pieces are in its care.
            self.feeding.get_loop().call_soon(self.feeding.cancel)
        while self._readers:
            fd, _ = self._readers.popitem()
            self._readiness.close_fd(fd)

    def _open(self, request: ChildRequest) -> None:
        if request.stdin is None:
            self.child_ends.append(os.open(os.devnull, os.O_RDONLY))
        else:
            child_end, self._stdin_fd = os.pipe()
            self.child_ends.append(child_end)
            os.set_blocking(self._stdin_fd, False)
        self._open_output(self.stdout.feed)
        self._open_output(self.stderr.feed)
        if self.result:
            self._open_output(self.result.feed)
        if isinstance(request.stdin, bytes):
            self._give(request.stdin)
        elif request.stdin is not None:
            self._give_in_pieces(request.stdin)

    def _open_output(self, feed: Callable[[bytes], None]) -> None:
        fd, child_end = os.pipe()
        self.child_ends.append(child_end)
        self._readers[fd] = feed
        os.set_blocking(fd, False)
        self._readiness.watch(fd, partial(self._read, fd))

    def _give(self, data: bytes) -> None:
        # Most input fits into the pipe before there is a child, and then needs no watching.
        self._unwritten = memoryview(data)
        self._write()
        if self._stdin_fd is not None:
            self._readiness.watch(self._stdin_fd, self._write, write=True)

    def _give_in_pieces(self, pieces: AsyncIterable[bytes]) -> None:
        assert self._stdin_fd is not None
        fd, self._stdin_fd = self._stdin_fd, None
        self.feeding = asyncio.create_task(feed(fd, pieces, self._readiness))

    def _on_turn(self, valve: Valve) -> None:
        for fd in self._readers:
            self._readiness.also_read(fd, wanted=not valve.closed)

    def _read(self, fd: int) -> bool:
        """Take one piece of output; return whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._readers[fd](data)
            return True
        del self._readers[fd]
        self._readiness.close_fd(fd)
        if not self._readers:
            self._on_end()
        return False

    def _write(self) -> None:
        assert self._stdin_fd is not None
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._stdin_fd, self._unwritten) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Not reading its input is the child's own business.
            pass
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_fd is not None:
            self._readiness.close_fd(self._stdin_fd)
            self._stdin_fd = None
            self._unwritten = memoryview(b"")


class _Result:
    """The bytes of the result descriptor, or the fact that there were too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.too_large = False

    def feed(self, data: bytes) -> None:
        if not self.too_large:
            self._data += data
        if len(self._data) > self._limit:
            self.too_large = True
            self._data.clear()

    @property
    def data(self) -> bytes | None:
        return None if self.too_large else bytes(self._data)
