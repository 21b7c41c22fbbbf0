"""Turns the output of a running program into the parts of an answer.

- Output that has not been taken is kept in bounded memory. A program that writes more is paused.
- After the last output the reader waits for the idle timeout, and after the result for a grace
  time: some programs print their result and never exit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from infloop.providers.base import AnswerPart, Done, ProviderNotice, Stderr, Text
from infloop.providers.lines import MAX_LINE_CHARS, Line, Lines
from infloop.sandbox.base import FlowControl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infloop.sandbox.base import ChildResult, Stream

MAX_WAITING_CHARS, MAX_WAITING_PARTS = 1 << 20, 1_000
"""How much may wait to be taken before the program is paused."""


NO_RESULT = (
    "[output] the agent exited with code 0 and printed no result: it may not have finished its work"
)


class OutputParser(Protocol):
    """An output format: lines in, parts out, with a `Done` without exit code at the end."""

    @property
    def expects_result(self) -> bool:
        """Whether the format has a result, and it is missing."""

    def read(self, line: Line) -> Sequence[AnswerPart] | None:
        """Return the parts in a line of output.

        None means that the line only shows that the connection is alive: the idle timeout goes on.
        """

    @property
    def filters_stderr(self) -> bool:
        """Whether diagnostics are shown line by line, without those that are for us alone."""

    def read_stderr(self, line: Line) -> Sequence[AnswerPart] | None:
        """Return the notices that follow from a line of diagnostics; None if it is not shown."""

    def finish(self) -> Sequence[AnswerPart]:
        """Return what follows from the whole output. It has ended."""


class OutputReader:
    """Reads one program: parses its output, holds what was not taken, decides how long to wait.

    With `requires_result` a program that exits without a result has failed. Otherwise its exit code
    decides, and there is a warning. While `is_paused` returns true the idle timeout does not count:
    the agent waits for a person.
    """

    def __init__(
        self,
        parser: OutputParser,
        idle_ms: int,
        after_result_ms: int,
        is_paused: Callable[[], bool] = lambda: False,
        *,
        requires_result: bool = False,
    ) -> None:
        self.flow_control = FlowControl()
        self.changed = asyncio.Event()
        self.done: Done | None = None
        self.has_output = False
        self._parser = parser
        self._idle_s = idle_ms / 1000
        self._after_result_s = after_result_ms / 1000
        self._is_paused = is_paused
        self._requires_result = requires_result
        self._out, self._err = Lines(), Lines()
        self._cut = False
        self._parts: deque[AnswerPart] = deque()
        self._waiting_chars = 0
        self._clock = asyncio.get_running_loop().time
        self._last_sign = self._clock()

    def feed(self, stream: Stream, text: str) -> None:
        """Take output from the sandbox."""
        self.has_output = True
        if stream == "stderr":
            if not self._parser.filters_stderr:
                self._parts.append(Stderr(text))
            self._read_stderr(self._err.feed(text))
            self._reset_idle()
        else:
            self._read(self._out.feed(text))
        if self._parts:
            self.changed.set()
            self._waiting_chars += len(text)
            if self._waiting_chars > MAX_WAITING_CHARS or len(self._parts) > MAX_WAITING_PARTS:
                self.flow_control.pause()

    def add(self, part: AnswerPart) -> None:
        """Add a part that is not from the program's output."""
        self._reset_idle()
        self._add([part])
        self.changed.set()

    def take(self) -> Iterator[AnswerPart]:
        """Return the parts since the last call."""
        while self._parts:
            yield self._parts.popleft()
        self._waiting_chars = 0
        if self.flow_control.paused:
            self._reset_idle()  # the program was silent because it was paused
            self.flow_control.resume()

    @property
    def expects_more(self) -> bool:
        """Whether it is still worth waiting for output."""
        left = self._time_left()
        return left is None or left > 0

    async def wait(self) -> None:
        """Wait for new parts, at most as long as it is worth waiting."""
        try:
            async with asyncio.timeout(self._time_left()):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()

    def finish(self, result: ChildResult | None) -> None:
        """Parse the last lines; the program has ended."""
        self._read(self._out.finish())
        self._read_stderr(self._err.finish())
        self._parts.extend(self._parser.finish())
        if result is not None and result.leftovers:
            message = f"[processes] {result.leftovers} outlived the agent and were ended"
            self._parts.append(ProviderNotice(message))
        ended_well = result is not None and not _failure(result)
        if ended_well and self._parser.expects_result and not self._requires_result:
            self._parts.append(ProviderNotice(NO_RESULT, is_warning=True))

    def conclude(self, result: ChildResult | None) -> Done:
        """Return how it ended, from the agent's own result and the program's exit.

        Without a result, infloop stopped the program after a timeout.
        """
        if result is None and self.done is None:
            return Done(None, error=f"stalled: no output for {self._idle_s * 1000:.0f} ms")
        done = self.done or Done()
        if result is None:
            return replace(done, exit_code=None if done.error else 0)
        error = done.error or _failure(result)
        if not error and self._requires_result and self._parser.expects_result:
            error = "the agent's output broke off before its result"
        return replace(done, exit_code=result.exit_code, error=error)

    def _time_left(self) -> float | None:
        """Return how many seconds to wait from now on; None means without limit."""
        if self.done is not None:
            return max(0.0, self._last_sign + self._after_result_s - self._clock())
        if self._idle_s and not self.flow_control.paused and not self._is_paused():
            return max(0.0, self._last_sign + self._idle_s - self._clock())
        return None

    def _reset_idle(self) -> None:
        if self.done is None:
            self._last_sign = self._clock()

    def _read(self, lines: list[Line]) -> None:
        alive = not lines
        parts: list[AnswerPart] = []
        for line in lines:
            self._note_cut(line)
            read = self._parser.read(line)
            alive = alive or read is not None
            parts.extend(read or ())
        self._add(parts)
        if alive:
            self._reset_idle()

    def _add(self, parts: list[AnswerPart]) -> None:
        for part in join_texts(parts):
            if isinstance(part, Done):
                self.done = self.done or part
                self._last_sign = self._clock()
                self.changed.set()
            else:
                self._parts.append(part)

    def _read_stderr(self, lines: list[Line]) -> None:
        for line in lines:
            read = self._parser.read_stderr(line)
            if read is not None and self._parser.filters_stderr:
                self._parts.append(Stderr(line.text))
            self._parts.extend(read or ())

    def _note_cut(self, line: Line) -> None:
        if line.cut and not self._cut:
            self._cut = True
            self._parts.append(
                ProviderNotice(f"[output] a line was cut after {MAX_LINE_CHARS} characters")
            )


def join_texts(parts: list[AnswerPart]) -> Iterator[AnswerPart]:
    """Join neighbouring texts, so that many short lines do not become many objects."""
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
