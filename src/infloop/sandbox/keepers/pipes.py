"""The server's ends of one child's pipes.

Output is read as it comes, unless flow control pauses it. Input is written as the child reads it. A
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

    from infloop.sandbox.base import ChildRequest, FlowControl, OnOutput
    from infloop.sandbox.keepers.fd_watcher import FdWatcher

_CHUNK = 1 << 16
_LAST_CHUNKS = 32


class Pipes:
    """Opens the pipes, keeps the child's ends until a keeper has them, and reads ours."""

    def __init__(
        self,
        request: ChildRequest,
        watcher: FdWatcher,
        on_output: OnOutput | None,
        on_end: Callable[[], None],
    ) -> None:
        limit, flow_control = request.max_output_bytes, request.flow_control
        self.stdout = Capture("stdout", limit, on_output, pass_all=flow_control is not None)
        self.stderr = Capture("stderr", limit, on_output, pass_all=flow_control is not None)
        self.result = _Result(request.max_result_bytes) if request.want_result else None
        self._watcher = watcher
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
        if flow_control is not None:
            flow_control.watch(partial(self._on_flow_change, flow_control))
            self._on_flow_change(flow_control)

    @property
    def ended(self) -> bool:
        """Whether every output has reached its end."""
        return not self._readers

    def change_owner(self, user: tuple[int, int]) -> None:
        """Make a user (uid and gid) the owner of the child's ends.

        A child of another user could otherwise not open `/dev/stdout` and the like.
        """
        for fd in self.child_ends:
            # Standard input may be the null device, which everyone can open.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.fchown(fd, *user)

    def hand_over(self) -> None:
        """Close the child's ends, after a keeper has received them."""
        while self.child_ends:
            os.close(self.child_ends.pop())

    def read_remaining(self) -> None:
        """Read what is left in the pipes when no process writes to them any more."""
        for fd in list(self._readers):
            for _ in range(_LAST_CHUNKS):
                if not self._read(fd):
                    break

    def close(self) -> None:
        """Close everything; unread output is lost. `feeding` ends soon after."""
        self.hand_over()
        self._close_stdin()
        if self.feeding is not None:
            # Not before its first step: only a task that has started closes the iterator.
            self.feeding.get_loop().call_soon(self.feeding.cancel)
        while self._readers:
            fd, _ = self._readers.popitem()
            self._watcher.close_fd(fd)

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
            self._write_stdin(request.stdin)
        elif request.stdin is not None:
            self._write_stdin_in_pieces(request.stdin)

    def _open_output(self, feed: Callable[[bytes], None]) -> None:
        fd, child_end = os.pipe()
        self.child_ends.append(child_end)
        self._readers[fd] = feed
        os.set_blocking(fd, False)
        self._watcher.watch(fd, partial(self._read, fd))

    def _write_stdin(self, data: bytes) -> None:
        # Most input fits into the pipe before the child starts, and then needs no watching.
        self._unwritten = memoryview(data)
        self._write()
        if self._stdin_fd is not None:
            self._watcher.watch(self._stdin_fd, self._write, write=True)

    def _write_stdin_in_pieces(self, pieces: AsyncIterable[bytes]) -> None:
        assert self._stdin_fd is not None
        fd, self._stdin_fd = self._stdin_fd, None
        self.feeding = asyncio.create_task(feed(fd, pieces, self._watcher))

    def _on_flow_change(self, flow_control: FlowControl) -> None:
        for fd in self._readers:
            self._watcher.watch_reading(fd, wanted=not flow_control.paused)

    def _read(self, fd: int) -> bool:
        """Read one piece of output; return whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._readers[fd](data)
            return True
        del self._readers[fd]
        self._watcher.close_fd(fd)
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
            # A child need not read its input.
            pass
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_fd is not None:
            self._watcher.close_fd(self._stdin_fd)
            self._stdin_fd = None
            self._unwritten = memoryview(b"")


class _Result:
    """The bytes written to the result descriptor, unless there were too many."""

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
