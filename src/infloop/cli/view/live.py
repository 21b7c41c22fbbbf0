"""A run on a terminal, redrawn in place: position, time, cost, output. It needs 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from infloop.cli.view.advice import short
from infloop.cli.view.figures import clock_time, cost, duration
from infloop.cli.view.outline import round_text
from infloop.cli.view.terminal import end_of, one_line, plural, safe
from infloop.model.approval import answer_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infloop.application.runs.view import StepView
    from infloop.application.runs.watched_run import LoadedView
    from infloop.cli.view.summary import Summary
    from infloop.model.approval import Approval
    from infloop.model.clock import Clock
    from infloop.model.events import Recorded

POSITIONS = 6
TEXT_LINES = 6
NAME_CHARS = 40


class LiveView:
    """Draws a run view at the same place again and again; at the end the drawing is removed."""

    def __init__(
        self,
        console: Console,
        run_id: str,
        loaded: LoadedView,
        clock: Clock,
        approvals: Callable[[], Sequence[Approval]],
    ) -> None:
        self._console = console
        self._run_id = run_id
        self._view = loaded.view
        self._labels = loaded.labels
        self._name = loaded.workflow_name
        self._clock = clock
        self._approvals = approvals
        self._message = ""
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            get_renderable=self._render,
            vertical_overflow="crop",
        )
        self._live.start()

    def show(self, _: Sequence[Recorded]) -> None:
        """Do nothing: the run view has the events, and the next tick draws it."""

    def tick(self) -> None:
        self._live.refresh()

    def say(self, text: str) -> None:
        """Add a message to the drawing."""
        self._message = text
        self.tick()

    def close(self) -> None:
        """Remove the drawing and restore the cursor."""
        self._live.stop()

    def end(self, summary: Summary | None) -> None:
        """Print the steps, cut at the screen's edge, and the commands in full length."""
        if summary is None:
            return
        for line in (summary.title, *summary.steps, summary.totals, *summary.changes):
            self._console.print(Text(line, no_wrap=True, overflow="ellipsis"))
        if summary.error:
            self._console.print(Text(summary.error))
        for line in summary.advice:
            print(line)

    def _render(self) -> Group:
        return Group(*self._lines())

    def _lines(self) -> Iterator[Text]:
        view, now = self._view, self._clock.now_ms()
        state = "stopping" if view.stop else "running"
        if view.finished:
            state = view.finished.status
        yield _line(
            (one_line(self._name, NAME_CHARS), "bold"),
            (short(self._run_id), ""),
            (state, "cyan"),
            (duration(now - (view.started_at or now)), ""),
        )
        positions = view.positions()
        for step in positions[:POSITIONS]:
            yield self._position(step, now)
        if len(positions) > POSITIONS:
            yield _line((f"  … {len(positions) - POSITIONS} more", "dim"))
        spent = cost(view.cost)
        yield _line(
            (f"  {plural(view.steps_done, 'step')} done", "dim"),
            (f"cost {spent}" if spent else "", "dim"),
        )
        for line in self._output():
            yield Text(f"  │ {line}", style="dim", no_wrap=True, overflow="ellipsis")
        for approval in self._approvals():
            yield _line((f"  ? waiting for an answer: {one_line(approval.title)}", "yellow"))
            yield _line((f"    {one_line(answer_hint(approval))}", "yellow"))
        if warning := view.notices.newest():
            yield _line((f"  {warning.level}: {one_line(warning.message)}", "yellow"))
        if self._message:
            yield _line((one_line(self._message), "yellow"))

    def _position(self, step: StepView, now: int) -> Text:
        rounds = [round_text(current, loop.max_rounds) for loop, current in step.loops()]
        if step.opens == "round":
            rounds.append(round_text(step.rounds, step.max_rounds))
        return _line(
            (f"  ● {one_line(self._labels.of(step.node), NAME_CHARS)}", "green"),
            (step.node_type, ""),
            (", ".join(rounds), ""),
            (_time(step, now), ""),
        )

    def _output(self) -> list[str]:
        step = self._view.output_step
        lines = safe(step.output_tail).expandtabs(4).split("\n") if step else []
        shown = [line for line in lines if line.strip()][-TEXT_LINES:]
        # The last line may still grow: its end is what is new.
        return [*shown[:-1], *(end_of(line, self._console.width - 4) for line in shown[-1:])]


def _time(step: StepView, now: int) -> str:
    if step.waiting_until:
        return f"waiting until {clock_time(step.waiting_until, now)}"
    return duration(now - step.started_at)


def _line(*parts: tuple[str, str]) -> Text:
    """Return one line of the view; it is cut at the terminal's edge, never wrapped."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (part, style) in enumerate(part for part in parts if part[0]):
        text.append("  " if number else "")
        text.append(part, style=style or None)
    return text
