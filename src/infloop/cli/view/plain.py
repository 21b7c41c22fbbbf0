"""A run as plain lines, for pipes, files and logs.

0.1s  fix[1]/agent  agent began
0.2s  fix[1]/agent | Looking at the tests.
0.3s  fix[1]/agent  next  0.2s  $0.02
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infloop.application.runs.view import step_tokens
from infloop.cli.view.figures import duration, moment, money, used_tokens
from infloop.cli.view.terminal import end_of, json_line, note, one_line, plural
from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Notice,
    Output,
    Recorded,
    Remark,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    TemplateWarning,
    TreeRestored,
    WaitOver,
    WorkspaceFetched,
)
from infloop.model.messages import expand, to_json
from infloop.model.nodes import node_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.cli.view.summary import Summary
    from infloop.model.events import Event

LONGEST_LINE = 4_000
ERASE_ROW = "\r\x1b[K"
SIGNS = {"stdout": "|", "stderr": "!", "tool": ">"}


class Lines:
    """Turns events into lines; an incomplete line of output waits for its end."""

    def __init__(self, started_at: int = 0) -> None:
        self._started_at = started_at
        self._partial: dict[tuple[str, str], str] = {}

    def of(self, item: Recorded) -> Iterator[str]:
        """Yield the lines of an event; some events have none."""
        event = item.event
        if isinstance(event, RunStarted) or not self._started_at:
            self._started_at = item.time
        stamp = f"{duration(item.time - self._started_at):>7}  "
        if isinstance(event, Output):
            for line in self._output(event):
                yield stamp + line
            return
        if isinstance(event, StepFinished | RunFinished | RunResumed):
            for line in self._rest(getattr(event, "path", "")):
                yield stamp + line
        text = _text(event, item.run_id)
        if text:
            yield stamp + text

    def growing(self, columns: int) -> str:
        """Return the end of the incomplete line that grew last; empty if there is none."""
        if not self._partial:
            return ""
        (path, stream), text = next(reversed(self._partial.items()))
        head = f"{'':>7}  {one_line(path, 40)} {SIGNS[stream]} "
        return head + end_of(one_line(text[-columns:]), max(8, columns - len(head)))

    def rest(self) -> Iterator[str]:
        """Yield the incomplete lines."""
        yield from (f"{'':>7}  {line}" for line in self._rest(""))

    def _output(self, event: Output) -> Iterator[str]:
        if event.stream == "tool":  # the text before the tool call comes first
            yield from self._rest(event.path, but="tool")
        key = (event.path, event.stream)
        *lines, rest = (self._partial.pop(key, "") + event.text).split("\n")
        while len(rest) > LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        if rest:
            self._partial[key] = rest
        yield from (_output_line(*key, line) for line in lines)

    def _rest(self, path: str, but: str = "") -> Iterator[str]:
        """Yield the incomplete lines of one step, or of all, except those of the stream `but`."""
        keys = [key for key in self._partial if path in ("", key[0]) and key[1] != but]
        for key in keys:
            yield _output_line(*key, self._partial.pop(key))


def _output_line(path: str, stream: str, line: str) -> str:
    return f"{one_line(path)} {SIGNS[stream]} {one_line(line.removesuffix(chr(13)))}"


def _text(event: Event, run_id: str) -> str:
    match event:
        case RunStarted():
            return f"run {one_line(run_id)} of {one_line(event.workflow_name, 60)} began"
        case RunResumed():
            return f"run {one_line(run_id)} continues"
        case StopRequested():
            return f"asked to stop: {one_line(event.reason)}" if event.reason else "asked to stop"
        case StepStarted():
            again = f" again (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"{one_line(event.path)}  {event.node_type} began{again}"
        case StepFinished():
            return _ended(event, event.duration_ms)
        case StepPassed():
            return _ended(event, None)
        case StepWaiting():
            return (
                f"{one_line(event.path)}  waiting until {moment(event.until)}: "
                f"{one_line(event.reason)}"
            )
        case TemplateWarning():
            return (
                f"{one_line(event.path)}  warning: {{{{{one_line(event.missing_key)}}}}} in "
                f"{one_line(event.field)} refers to nothing and is empty"
            )
        case WorkspaceFetched():
            return f"works in {one_line(event.repository)} at {one_line(event.commit)}"
        case TreeRestored():
            return f"{one_line(event.directory)} is restored to before {one_line(event.path)}"
        case Notice():
            return f"{one_line(event.path)}  {event.level}: {one_line(event.message)}".lstrip()
        case RunFinished():
            return f"run {event.status}{f': {one_line(event.error)}' if event.error else ''}"
        case BudgetExceeded() | GuardFailed() | WaitOver() | Remark():
            return ""
        case _:
            assert_never(event)


def _ended(event: StepFinished | StepPassed, took_ms: int | None) -> str:
    parts = [one_line(event.path), one_line(event.handle)]
    detail = event.error or event.outputs.get("detail")
    if isinstance(detail, str) and detail:
        parts[1] += f": {one_line(detail)}"
    if node_model(event.node_type).opens == "round":
        parts.append(_rounds(event))
    if took_ms is not None:
        parts.append(duration(took_ms))
    cost = event.outputs.get("costUsd")
    if isinstance(cost, int | float):
        parts.append(money(cost))
    elif used := used_tokens(*step_tokens(event.outputs)):
        parts.append(used)
    return "  ".join(parts)


def _rounds(event: StepFinished | StepPassed) -> str:
    count = event.outputs.get("iterations")
    if not isinstance(count, int):
        return "? rounds"
    return "no round was needed" if (count, event.handle) == (0, "next") else plural(count, "round")


class PlainView:
    """Prints a run's lines as they come; `prefix` distinguishes several runs.

    With `columns`, the width of a terminal, the end of an incomplete line is shown below the others
    as it grows. It is drawn once for each call of `show`, on one row.
    """

    def __init__(self, prefix: str = "", started_at: int = 0, columns: int = 0) -> None:
        self._lines = Lines(started_at)
        self._prefix = prefix
        self._columns = columns
        self._drawn = ""

    def show(self, items: Sequence[Recorded]) -> None:
        lines = [self._prefix + line for item in items for line in self._lines.of(item)]
        growing = self._lines.growing(self._columns - 1) if self._columns else ""
        if self._drawn and (lines or growing != self._drawn):
            print(end=ERASE_ROW)
            self._drawn = ""
        for line in lines:
            print(line)
        if growing and not self._drawn:
            print(end=growing)
            self._drawn = growing
        print(end="", flush=True)

    def tick(self) -> None:
        """Do nothing: lines do not change with time."""

    def say(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        """Print the incomplete lines."""
        if self._drawn:
            print(end=ERASE_ROW)
        for line in self._lines.rest():
            print(self._prefix + line)

    def end(self, summary: Summary | None) -> None:
        """Print the totals and the advice."""
        if summary is not None:
            for line in (summary.totals, *summary.changes, *summary.advice):
                print(self._prefix + line)


class JsonView:
    """Prints every event as one JSON object a line, and nothing else."""

    def show(self, items: Sequence[Recorded]) -> None:
        for item in items:
            for message in expand(item):
                print(json_line(to_json(message)))
        print(end="", flush=True)

    def tick(self) -> None:
        """Do nothing: lines do not change with time."""

    def say(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        """Do nothing: every event was printed at once."""

    def end(self, summary: Summary | None) -> None:
        """Do nothing: the last event says how the run ended."""
