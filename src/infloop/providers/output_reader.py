"""Listening to a program: text in as it comes, parts out, and for how long to wait for more.

What nobody has taken is kept, in bounded memory: a program that says more has to wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from infloop.providers.base import Done, Notice, Part, Stderr, Text
from infloop.providers.lines import MAX_LINE_CHARS, Line, Lines
from infloop.sandbox.base import FlowControl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infloop.sandbox.base import ChildResult, Stream

MOST_CHARS, MOST_PARTS = 1 << 20, 1_000
"""How much may wait to be taken before the program is made to wait."""


class Reader(Protocol):
    """An output format: lines in, parts out, with a `Done` without exit code at the end."""

    @property
    def is_owed(self) -> bool:
        """Whether what was read makes no sense without a result that has not come."""

    def read(self, line: Line) -> Sequence[Part] | None:
        """Return what a line of output says; None when it is no more than a sign of life."""

    def diagnose(self, line: Line) -> Sequence[Part]:
        """Return what a line of diagnostics gives reason for, beside itself."""


class Hearing:
    """What the program has said and nobody has taken yet, and how long to wait for more.

    While `is_excused` says so the program's silence is not its own: it waits for a person.
    """

    def __init__(
        self,
        reader: Reader,
        idle_ms: int,
        after_ms: int,
        is_excused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.flow_control = FlowControl()
        self.news = asyncio.Event()
        self.ending: Done | None = None
        self.anything = False
        self._reader = reader
        self._idle_s = idle_ms / 1000
        self._after_s = after_ms / 1000
        self._is_excused = is_excused
        self._out, self._err = Lines(), Lines()
        self._cut = False
        self._parts: deque[Part] = deque()
        self._waiting = 0
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()

    def hear(self, stream: Stream, text: str) -> None:
        """Take text from the sandbox."""
        self.anything = True
        if stream == "stderr":
            self._parts.append(Stderr(text))
            self._diagnose(self._err.feed(text))
            self._heard_from()
        else:
            self._read(self._out.feed(text))
        if self._parts:
            self.news.set()
            self._waiting += len(text)
            if self._waiting > MOST_CHARS or len(self._parts) > MOST_PARTS:
                self.flow_control.pause()

    def tell(self, part: Part) -> None:
        """Take a part that the program did not say itself; its silence counts anew."""
        self._heard_from()
        self._add([part])
        self.news.set()

    def take(self) -> Iterator[Part]:
        """Return what has been said since the last time."""
        while self._parts:
            yield self._parts.popleft()
        self._waiting = 0
        if self.flow_control.paused:
            self._heard_from()  # it was not the program that kept silent
            self.flow_control.resume()

    @property
    def has_patience(self) -> bool:
        """Whether more is worth waiting for."""
        left = self._patience()
        return left is None or left > 0

    async def something(self) -> None:
        """Wait for something new, but not beyond our patience."""
        try:
            async with asyncio.timeout(self._patience()):
                await self.news.wait()
        except TimeoutError:
            return
        self.news.clear()

    def finish(self, result: ChildResult | None) -> None:
        """Take the last lines; the program has ended."""
        self._read(self._out.finish())
        self._diagnose(self._err.finish())
        if result is None:
            return
        if result.leftovers:
            told = f"[processes] {result.leftovers} outlived the agent and were ended"
            self._parts.append(Notice(told))

    def conclusion(self, result: ChildResult | None) -> Done:
        """Return how it went, by the agent's own word and by how its program ended.

        Without a result it was ended by us, for want of patience.
        """
        if result is None and self.ending is None:
            return Done(None, error=f"stalled: no output for {self._idle_s * 1000:.0f} ms")
        done = self.ending or Done()
        if result is None:
            return replace(done, exit_code=None if done.error else 0)
        error = done.error or _failure(result)
        if not error and self._reader.is_owed:
            error = "the agent's output broke off before its result"
        return replace(done, exit_code=result.exit_code, error=error)

    def _patience(self) -> float | None:
        """Return how many seconds to wait from now on; None is for ever."""
        if self.ending is not None:
            return max(0.0, self._since + self._after_s - self._clock())
        if self._idle_s and not self.flow_control.paused and not self._is_excused():
            return max(0.0, self._since + self._idle_s - self._clock())
        return None

    def _heard_from(self) -> None:
        if self.ending is None:
            self._since = self._clock()

    def _read(self, lines: list[Line]) -> None:
        alive = not lines
        parts: list[Part] = []
        for line in lines:
            self._note_cut(line)
            read = self._reader.read(line)
            alive = alive or read is not None
            parts.extend(read or ())
        self._add(parts)
        if alive:
            self._heard_from()

    def _add(self, parts: list[Part]) -> None:
        for part in joined(parts):
            if isinstance(part, Done):
                self.ending = self.ending or part
                self._since = self._clock()
                self.news.set()
            else:
                self._parts.append(part)

    def _diagnose(self, lines: list[Line]) -> None:
        for line in lines:
            self._parts.extend(self._reader.diagnose(line))

    def _note_cut(self, line: Line) -> None:
        if line.cut and not self._cut:
            self._cut = True
            self._parts.append(Notice(f"[output] a line was cut after {MAX_LINE_CHARS} characters"))


def joined(parts: list[Part]) -> Iterator[Part]:
    """Return what came at once, its text in one: a flood of lines is not one of objects."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
            continue
        if texts:
            yield Text("".join(texts))
            texts = []
        yield part
    if texts:
        yield Text("".join(texts))


def _failure(result: ChildResult) -> str:
    if result.error:
        return result.error
    if result.signal is not None:
        return f"the agent was ended by signal {result.signal}{result.hint_suffix}"
    if result.exit_code:
        return f"the agent left with exit code {result.exit_code}{result.hint_suffix}"
    return ""
