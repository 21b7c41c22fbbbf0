"""A tunnel that is open: bytes go both ways until both sides have said all, or one is gone.

Nothing is kept here. When one side does not take what is for it, the other side is not read; when
one has said all, the other is told so and can still answer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.egress.wire import Wire


class Relay:
    """Carries bytes between a child and the host it asked for, from the moment it is made."""

    def __init__(self, child: Wire, upstream: Wire, refuse: Callable[[int, int], str]) -> None:
        """Join two open wires; `refuse` is asked about bytes to be sent and those sent before."""
        self.sent = 0
        self.received = 0
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._refuse = refuse
        self._active = True
        self._reason = ""
        self._open = 2
        self._up = _Half(upstream.transport, self._may_send, self)
        self._down = _Half(child.transport, self._may_receive, self)
        self._up.begin(child)
        self._down.begin(upstream)

    def was_active(self) -> bool:
        """Say whether anything went through since the last time this was asked."""
        active, self._active = self._active, False
        return active

    def end(self, reason: str = "") -> None:
        """Cut both sides off."""
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

    def said_all(self) -> bool:
        """Close both sides if neither will say more; what is on its way still arrives."""
        if not (self._up.said_all and self._down.said_all):
            return False
        self._up.target.close()
        self._down.target.close()
        return True

    def lost(self) -> None:
        """Close the other side too when one is gone; it still gets what is on its way."""
        self._open -= 1
        self._up.target.close()
        self._down.target.close()
        if not self._open and not self.over.done():
            self.over.set_result(self._reason)


class _Half(asyncio.Protocol):
    """Listens to one side and passes on what it says to the other, its `target`."""

    def __init__(
        self, target: asyncio.Transport, may_pass: Callable[[int], bool], relay: Relay
    ) -> None:
        self.target = target
        self.said_all = False
        self._may_pass = may_pass
        self._relay = relay

    def begin(self, source: Wire) -> None:
        """Take over a wire, with what it has heard already."""
        if waiting := source.take():
            self.data_received(waiting)
        source.transport.set_protocol(self)
        if source.ended:
            self.eof_received()
        else:
            source.go_on()

    def data_received(self, data: bytes) -> None:
        if self._may_pass(len(data)):
            self.target.write(data)

    def eof_received(self) -> bool:
        self.said_all = True
        if not self._relay.said_all() and not self.target.is_closing():
            with suppress(OSError):  # it may have gone, and we not been told yet
                self.target.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.lost()

    def pause_writing(self) -> None:
        """Our side does not take what is for it: do not read the other one, which is our target."""
        if not self.target.is_closing():
            self.target.pause_reading()

    def resume_writing(self) -> None:
        if not self.target.is_closing():
            self.target.resume_reading()
