"""One child from request to result, as the server sees it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ParamSpec

from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.pipes import Pipes

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted, Stream
    from infloop.sandbox.keepers.fd_watcher import FdWatcher

P = ParamSpec("P")

_DRAIN_S = 0.25


class Child:
    """Collects what is known about a child; `settled` is set when no more can come."""

    def __init__(
        self,
        request: ChildRequest,
        watcher: FdWatcher,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.request = request
        self.end: Callable[[], None] = lambda: None
        self._on_output = on_output
        self._on_started = on_started
        live = self._pass_output if on_output else None
        self.pipes = Pipes(request, watcher, live, self._on_pipes_ended)
        if self.pipes.feeding is not None:
            self.pipes.feeding.add_done_callback(self._on_stdin_done)
        self.settled = asyncio.Event()
        self.timed_out = False
        self.ended_by_us = False
        self.leftovers = 0
        self.error = ""
        self._failure: BaseException | None = None
        self._status: int | None = None
        self._tree_is_gone = False
        self._settling = False
        self._began = self._finished = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether the child itself is not known to have ended."""
        return self._status is None and not self._tree_is_gone

    @property
    def grace_ms(self) -> int:
        """The time between TERM and KILL."""
        no_grace = self.request.no_grace is not None and self.request.no_grace()
        return 0 if no_grace else self.request.grace_ms

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back later; replaces an earlier timer."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, callback)

    def not_started(self, why: str) -> None:
        """Record that the child could not be started."""
        self.error = f"the child could not be started: {why}"
        self.pipes.hand_over()
        self.tree_gone()

    def started(self, pid: int, start_time: int) -> None:
        if self._on_started:
            self._call(self._on_started, pid, start_time)

    def exited(self, status: int) -> None:
        """Record that the child itself has ended; other processes of its tree may be alive."""
        self._status = status
        self._finished = self._loop.time()

    def tree_gone(self) -> None:
        """Record that no process is left that could write; read the rest of the pipes."""
        if self._status is None:
            self._finished = self._loop.time()
        self._tree_is_gone = True
        self.pipes.read_remaining()
        if self.pipes.ended:
            self._settle()
        else:
            # A process outside the tree holds a pipe open; its output is not waited for.
            self.after(_DRAIN_S, self._settle)

    def outcome(self) -> ChildResult:
        """Return the result, or raise what a callback raised; the child has settled."""
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        stdout, stderr = self.pipes.stdout.finish(), self.pipes.stderr.finish()
        result = self.pipes.result
        if self._failure:
            raise self._failure
        return ChildResult(
            exit_code=None if code is None or code < 0 or self.ended_by_us else code,
            signal=-code if code is not None and code < 0 else None,
            timed_out=self.timed_out,
            duration_ms=round((self._finished - self._began) * 1000),
            stdout=stdout.text,
            stderr=stderr.text,
            stdout_omitted=stdout.omitted,
            stderr_omitted=stderr.omitted,
            result=result.data if result else None,
            result_too_large=bool(result and result.too_large),
            leftovers=self.leftovers,
            error=self.error,
        )

    def _pass_output(self, stream: Stream, text: str) -> None:
        if self._on_output:
            self._call(self._on_output, stream, text)

    def _call(self, callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the caller's callback; the first exception ends the child and is raised later."""
        if self._failure:
            return
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (it is raised to the caller)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.end()

    def _on_stdin_done(self, feeding: asyncio.Task[None]) -> None:
        error = None if feeding.cancelled() else feeding.exception()
        if error is not None:
            self._fail(error)
        if self._settling:
            self._settle()

    def _on_pipes_ended(self) -> None:
        if self._tree_is_gone:
            self._settle()

    def _settle(self) -> None:
        if self._timer:
            self._timer.cancel()
        self.pipes.close()
        self._settling = True
        fed = self.pipes.feeding is None or self.pipes.feeding.done()
        if fed:
            self.settled.set()
