"""Stamps a run's events, keeps their order, makes them durable, then publishes them.

- Listeners see an event only when it is durable.
- Output is published at once, unless an event before it is not durable yet: all listeners see the
  same order.
- Output is written in batches. A crash can lose the output of the last moment, never an event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from infloop.model.events import Event, Output, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.clock import Clock
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.feed import Feed
    from infloop.store.interfaces.run_log import RunLog

BATCH_ITEMS = 512
BATCH_CHARS = 64 << 10
BATCH_SECONDS = 0.05
MAX_IN_FLIGHT = 8 * BATCH_ITEMS


class Recorder:
    """The only writer of one run."""

    def __init__(
        self,
        *,
        run_log: RunLog,
        feed: Feed,
        clock: Clock,
        run_id: str,
        correlation_id: str,
        epoch: int,
        seq: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._run_log = run_log
        self._feed = feed
        self._clock = clock
        self.run_id = run_id
        self._correlation_id = correlation_id
        self.epoch = epoch
        self.seq = seq
        self._on_failure = on_failure
        self._unwritten: list[Recorded] = []
        self._unwritten_chars = 0
        self._unpublished: deque[Recorded] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_write: asyncio.Future[None] | None = None
        self._in_flight = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def event(self, event: Event) -> int:
        """Record an event; return its time."""
        now = self._clock.now_ms()
        self.seq += 1
        recorded = Recorded(self.run_id, self.seq, now, self._correlation_id, event)
        self._unwritten.append(recorded)
        self._unpublished.append(recorded)
        return now

    def output(self, output: Output) -> None:
        """Record a piece of output; it is written within `BATCH_SECONDS`."""
        self.seq += 1
        recorded = Recorded(
            self.run_id, self.seq, self._clock.now_ms(), self._correlation_id, output
        )
        self._unwritten.append(recorded)
        self._unwritten_chars += len(output.text)
        if self._unpublished:
            self._unpublished.append(recorded)
        else:
            self._feed.publish(recorded)
        if len(self._unwritten) >= BATCH_ITEMS or self._unwritten_chars >= BATCH_CHARS:
            self.write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._write_later)

    def _write_later(self) -> None:
        self._timer = None
        if self._unwritten:
            self.write()

    def write(self, scope: JsonObject | None = None) -> asyncio.Future[None]:
        """Write what is unwritten to the journal; the future is done when it is durable.

        `scope` goes with the event that finishes the run.
        """
        items, self._unwritten, self._unwritten_chars = self._unwritten, [], 0
        if not items and self._last_write is not None:
            return self._last_write
        future = self._run_log.append(self.run_id, self.epoch, items, scope=scope)
        last = items[-1].seq if items else self.seq
        self._in_flight += len(items)
        self._last_write = future
        if future.done():  # the journal can commit before it returns
            self._written(future, last, len(items))
        else:
            future.add_done_callback(lambda done: self._written(done, last, len(items)))
        return future

    def _written(self, future: asyncio.Future[None], last: int, count: int) -> None:
        self._in_flight -= count
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._on_failure(error)
            return
        unpublished = self._unpublished
        while unpublished and (
            unpublished[0].seq <= last or isinstance(unpublished[0].event, Output)
        ):
            self._feed.publish(unpublished.popleft())

    async def drain(self) -> None:
        """Yield to the event loop, and wait while too much is unwritten: this is backpressure."""
        await asyncio.sleep(0)
        while self._in_flight > MAX_IN_FLIGHT and self._last_write is not None:
            await asyncio.shield(self._last_write)

    async def durable(self) -> None:
        """Return when everything recorded so far is durable."""
        await asyncio.shield(self.write())
