"""An open tunnel: copies bytes both ways until both sides have finished or one is gone.

Nothing is buffered here. When one side does not read, the other side is not read either. When one
side sends end-of-file, it is passed on, and the other side can still send.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.egress.peekable_stream import PeekableStream


class Relay:
    """Copies bytes between a child and its host, from its construction on."""

    def __init__(
        self, child: PeekableStream, upstream: PeekableStream, refuse: Callable[[int, int], str]
    ) -> None:
        """Join two open streams; `refuse(size, sent_before)` can stop the upload."""
        self.sent = 0
        self.received = 0
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._refuse = refuse
        self._active = True
        self._reason = ""
        self._open = 2
        self._up = _Half(upstream.transport, self._may_send, self)
        self._down = _Half(child.transport, self._may_receive, self)
        self._up.start(child)
        self._down.start(upstream)

    def was_active(self) -> bool:
        """Return whether anything was copied since the last call."""
        active, self._active = self._active, False
        return active

    def end(self, reason: str = "") -> None:
        """Abort both sides."""
        self._reason = self._reason or reason
        self._up.target.abort()
        self._down.target.abort()

    def _may_send(self, size: int) -> bool:
        self._active = True
        if reason := self._refuse(size, self.sent):
            self.end(reason)
            return False
        self.sent += size
        return True

    def _may_receive(self, size: int) -> bool:
        self._active = True
        self.received += size
        return True

    def close_if_finished(self) -> bool:
        """Close both sides if both have finished; buffered data is still sent."""
        if not (self._up.finished and self._down.finished):
            return False
        self._up.target.close()
        self._down.target.close()
        return True

    def side_lost(self) -> None:
        """Close both sides; the remaining one still gets its buffered data."""
        self._open -= 1
        self._up.target.close()
        self._down.target.close()
        if not self._open and not self.result.done():
            self.result.set_result(self._reason)


class _Half(asyncio.Protocol):
    """Reads from one side and writes to the other, its `target`."""

    def __init__(
        self, target: asyncio.Transport, may_pass: Callable[[int], bool], relay: Relay
    ) -> None:
        self.target = target
        self.finished = False
        self._may_pass = may_pass
        self._relay = relay

    def start(self, source: PeekableStream) -> None:
        """Take over a stream with the data that it has received."""
        if waiting := source.take():
            self.data_received(waiting)
        source.transport.set_protocol(self)
        if source.ended:
            self.eof_received()
        else:
            source.resume()

    def data_received(self, data: bytes) -> None:
        if self._may_pass(len(data)):
            self.target.write(data)

    def eof_received(self) -> bool:
        self.finished = True
        if not self._relay.close_if_finished() and not self.target.is_closing():
            with suppress(OSError):  # it may already be closed
                self.target.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.side_lost()

    def pause_writing(self) -> None:
        """Pause reading the target: this side does not read fast enough what comes from there."""
        if not self.target.is_closing():
            self.target.pause_reading()

    def resume_writing(self) -> None:
        if not self.target.is_closing():
            self.target.resume_reading()
