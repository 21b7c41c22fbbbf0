"""The one way out of a run: its own proxy, which accepts on a socket that it is given.

Rules
  * What is not allowed is refused; what is not understood is refused; what goes wrong is refused.
  * `serve` raises when the proxy cannot go on, and when a decision cannot be reported. Its
    connections end with it, so the run that waits for it fails and nothing goes round it.
  * When there are too many connections, further ones are turned away; when that goes on, the proxy
    is overloaded and ends.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.egress.child_connection import Conversation, Terms
from infloop.egress.limits import Limits, Uploads
from infloop.egress.protocol import Refusal, refusal_answer
from infloop.egress.reports import Decision, Ended
from infloop.egress.resolve import SystemLookup
from infloop.egress.wire import Wire
from infloop.errors import EgressError
from infloop.policy.hosts import authority

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from infloop.egress.broker import Broker
    from infloop.egress.reports import Why
    from infloop.egress.resolve import Lookup
    from infloop.policy.hosts import Allowlist

_AT_ONCE = 64
_BREATH_S = 0.1
_PASSING = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO)
)
_TOO_MANY = "there are too many connections at once"


class Proxy:
    """Lets the children of one run reach what they may, and tells about every decision."""

    def __init__(
        self,
        allowed: Allowlist,
        *,
        token: str,
        on_decision: Callable[[Decision], None],
        on_ended: Callable[[Ended], None] = lambda _: None,
        limits: Limits | None = None,
        lookup: Lookup | None = None,
        broker: Broker | None = None,
        uploads: Uploads | None = None,
        port: int = 0,
    ) -> None:
        """Take the rules. An empty `token` is for a listener that only the run's children reach.

        `uploads` is what several proxies of a run share. `port` is the one that children know it
        by, where that is not the listener's own.
        """
        self._allowed = allowed
        self._token = token
        self._on_decision = on_decision
        self._on_ended = on_ended
        self._limits = limits or Limits()
        self._lookup = lookup or SystemLookup()
        self._broker = broker
        self._uploads = uploads or Uploads(self._limits)
        self._port = port
        self._numbers = 0
        self._open = 0
        self._turned_away = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept on a listening socket until cancelled, then close it; EgressError on failure."""
        try:
            listener.settimeout(0)
            terms = self._terms(listener)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep(terms))
                await self._accept(listener, terms, tasks)
        except (OSError, ExceptionGroup) as error:
            reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            said = f"the proxy of this run stopped: {reason}"
            raise EgressError(said, "broken") from reason
        finally:
            if listener.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            if isinstance(self._lookup, SystemLookup):
                self._lookup.close()

    def _terms(self, listener: socket.socket) -> Terms:
        host, port = listener.getsockname()[:2]
        port = self._port or port
        return Terms(
            allowed=self._allowed,
            limits=self._limits,
            uploads=self._uploads,
            lookup=self._lookup,
            token=self._token,
            own_names=frozenset((authority(host, port), authority("localhost", port))),
            broker=self._broker,
            on_decision=self._on_decision,
            on_ended=self._on_ended,
            until=asyncio.get_running_loop().time() + self._limits.run_s,
        )

    def _accept(
        self, listener: socket.socket, terms: Terms, tasks: asyncio.TaskGroup
    ) -> asyncio.Future[None]:
        """Accept whenever somebody knocks; return what ends with the error that prevents it."""
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[None] = loop.create_future()

        def begin() -> None:
            if not failure.done():
                loop.add_reader(listener, knock)

        def knock() -> None:
            if failure.done():  # the proxy is ending: nobody is let in any more
                loop.remove_reader(listener)
                return
            try:
                for _ in range(_AT_ONCE):
                    self._welcome(listener.accept()[0], terms, tasks)
            except BlockingIOError:
                pass
            except Exception as error:  # noqa: BLE001  the edge of a callback: the proxy ends with it
                loop.remove_reader(listener)
                if isinstance(error, OSError) and error.errno in _PASSING:
                    loop.call_later(_BREATH_S, begin)
                else:
                    failure.set_exception(error)

        begin()
        return failure

    def _welcome(self, child: socket.socket, terms: Terms, tasks: asyncio.TaskGroup) -> None:
        if self._open >= self._limits.connections:
            self._turn_away(child)
            return
        child.settimeout(0)
        self._turned_away = 0
        self._open += 1
        self._numbers += 1
        task = tasks.create_task(self._converse(child, self._numbers, terms))
        task.add_done_callback(lambda _: child.close())  # it may end before it has begun

    def _turn_away(self, child: socket.socket) -> None:
        with child, suppress(OSError):
            child.send(refusal_answer(Refusal(503, _TOO_MANY)))
        self._refuse(self._numbers, _TOO_MANY, "overload")
        self._turned_away += 1
        if self._turned_away > self._limits.turned_away:
            raise EgressError(f"it is overloaded: {_TOO_MANY}, and they do not end")

    def _refuse(self, number: int, reason: str, why: Why) -> None:
        self._on_decision(Decision(number, "unknown", "", 0, "refused", reason, why=why))

    async def _converse(self, child: socket.socket, number: int, terms: Terms) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, wire = await loop.connect_accepted_socket(Wire, child)
            await Conversation(number, wire, terms).hold()
        except Exception as error:  # noqa: BLE001  the edge of a task: this connection ends
            self._refuse(number, f"the proxy failed: {error!r}", "failure")
        finally:
            self._open -= 1

    async def _sweep(self, terms: Terms) -> None:
        """End tunnels through which nothing went since the last time."""
        idle_s = self._limits.idle_s
        while True:
            await asyncio.sleep(idle_s)
            for relay in tuple(terms.relays):
                if not relay.was_active():
                    relay.end(f"nothing went through it for {idle_s:g} s")
