"""The proxy of a run: all connections of its children pass through it.

Rules:

- What is not allowed, not understood or fails is refused.
- `serve` raises when the proxy cannot continue, and when a decision cannot be reported. Its
  connections end with it, so the run that waits for it fails and no connection bypasses it.
- When there are too many connections, new ones are rejected. If that continues, the proxy is
  overloaded and ends.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.egress.child_connection import ChildConnection, ProxyContext
from infloop.egress.limits import ProxyLimits, UploadBudget
from infloop.egress.peekable_stream import PeekableStream
from infloop.egress.protocol import Refusal, refusal_response
from infloop.egress.reports import ConnectionEnded, Decision
from infloop.egress.resolve import SystemLookup
from infloop.errors import EgressError
from infloop.model.hosts import authority

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from infloop.egress.broker import Broker
    from infloop.egress.reports import RefusalCause
    from infloop.egress.resolve import HostPolicy, Lookup

_ACCEPTED_AT_ONCE = 64
_RETRY_S = 0.1
_TEMPORARY = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO)
)
_TOO_MANY = "there are too many connections at once"


class Proxy:
    """Connects the children of one run to the hosts they may reach; reports every decision."""

    def __init__(
        self,
        allowed: HostPolicy,
        *,
        token: str,
        on_decision: Callable[[Decision], None],
        on_ended: Callable[[ConnectionEnded], None] = lambda _: None,
        limits: ProxyLimits | None = None,
        lookup: Lookup | None = None,
        broker: Broker | None = None,
        uploads: UploadBudget | None = None,
        port: int = 0,
        hidden_names_allowed: bool = False,
    ) -> None:
        """Create a proxy; `serve` starts it.

        - `token`: what children must send. Empty if only the run's children can reach the listener.
        - `uploads`: shared by all proxies of a run.
        - `port`: the port that children use, if it is not the listener's own.
        - `hidden_names_allowed`: whether TLS may encrypt a name besides the visible one.
        """
        self._allowed = allowed
        self._token = token
        self._on_decision = on_decision
        self._on_ended = on_ended
        self._limits = limits or ProxyLimits()
        self._lookup = lookup or SystemLookup()
        self._broker = broker
        self._uploads = uploads or UploadBudget(self._limits)
        self._port = port
        self._hidden_names_allowed = hidden_names_allowed
        self._numbers = 0
        self._open = 0
        self._rejected = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept on a listening socket until cancelled, then close it; EgressError on failure."""
        try:
            listener.settimeout(0)
            context = self._context(listener)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._end_idle_tunnels(context))
                await self._accept(listener, context, tasks)
        except (OSError, ExceptionGroup) as error:
            reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            message = f"the proxy of this run stopped: {reason}"
            raise EgressError(message, "broken") from reason
        finally:
            if listener.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            if isinstance(self._lookup, SystemLookup):
                self._lookup.close()

    def _context(self, listener: socket.socket) -> ProxyContext:
        host, port = listener.getsockname()[:2]
        port = self._port or port
        return ProxyContext(
            allowed=self._allowed,
            limits=self._limits,
            uploads=self._uploads,
            lookup=self._lookup,
            token=self._token,
            own_names=frozenset((authority(host, port), authority("localhost", port))),
            broker=self._broker,
            on_decision=self._on_decision,
            on_ended=self._on_ended,
            deadline=asyncio.get_running_loop().time() + self._limits.run_s,
            hidden_names_allowed=self._hidden_names_allowed,
        )

    def _accept(
        self, listener: socket.socket, context: ProxyContext, tasks: asyncio.TaskGroup
    ) -> asyncio.Future[None]:
        """Accept connections; return a future that gets the error which stops that."""
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[None] = loop.create_future()

        def start() -> None:
            if not failure.done():
                loop.add_reader(listener, accept)

        def accept() -> None:
            if failure.done():  # the proxy is ending
                loop.remove_reader(listener)
                return
            try:
                for _ in range(_ACCEPTED_AT_ONCE):
                    self._start_connection(listener.accept()[0], context, tasks)
            except BlockingIOError:
                pass
            except Exception as error:  # noqa: BLE001  (the edge of a callback: the proxy ends)
                loop.remove_reader(listener)
                if isinstance(error, OSError) and error.errno in _TEMPORARY:
                    loop.call_later(_RETRY_S, start)
                else:
                    failure.set_exception(error)

        start()
        return failure

    def _start_connection(
        self, child: socket.socket, context: ProxyContext, tasks: asyncio.TaskGroup
    ) -> None:
        if self._open >= self._limits.connections:
            self._reject(child)
            return
        child.settimeout(0)
        self._rejected = 0
        self._open += 1
        self._numbers += 1
        task = tasks.create_task(self._serve_connection(child, self._numbers, context))
        task.add_done_callback(lambda _: child.close())  # the task may end before its first step

    def _reject(self, child: socket.socket) -> None:
        with child, suppress(OSError):
            child.send(refusal_response(Refusal(503, _TOO_MANY)))
        self._refuse(self._numbers, _TOO_MANY, "overload")
        self._rejected += 1
        if self._rejected > self._limits.max_rejected:
            raise EgressError(f"it is overloaded: {_TOO_MANY}")

    def _refuse(self, number: int, reason: str, cause: RefusalCause) -> None:
        self._on_decision(Decision(number, "unknown", "", 0, "refused", reason, cause=cause))

    async def _serve_connection(
        self, child: socket.socket, number: int, context: ProxyContext
    ) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, stream = await loop.connect_accepted_socket(PeekableStream, child)
            await ChildConnection(number, stream, context).serve()
        except Exception as error:  # noqa: BLE001  (the edge of a task: this connection ends)
            self._refuse(number, f"the proxy failed: {error!r}", "failure")
        finally:
            self._open -= 1

    async def _end_idle_tunnels(self, context: ProxyContext) -> None:
        """End tunnels that carried nothing since the last check."""
        idle_s = self._limits.idle_s
        while True:
            await asyncio.sleep(idle_s)
            for relay in tuple(context.relays):
                if not relay.was_active():
                    relay.end(f"it was idle for {idle_s:g} s")
