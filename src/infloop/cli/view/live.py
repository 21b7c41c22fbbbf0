"""A run on a terminal: where it is, how long, what it cost, what it says; 80 columns are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from infloop.cli.view.advice import short
from infloop.cli.view.figures import clock_time, duration
from infloop.cli.view.outline import rounds
from infloop.cli.view.terminal import one_line, plural, safe
from infloop.runtime.approvals import answer_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infloop.cli.view.labels import Labels
    from infloop.cli.view.run_view import Step, Story
    from infloop.cli.view.summary import Summary
    from infloop.model.approval import Approval
    from infloop.model.clock import Clock
    from infloop.model.events import Recorded

POSITIONS = 6
TEXT_LINES = 6
NAME_CHARS = 40


class LiveView:
    """Draws a story again and again at the same place; what was drawn goes away at the end."""

    def __init__(
        self,
        console: Console,
        story: Story,
        labels: Labels,
        run_id: str,
        name: str,
        clock: Clock,
        asked: Callable[[], Sequence[Approval]] = tuple,
    ) -> None:
        self._console = console
        self._story = story
        self._labels = labels
        self._run_id = run_id
        self._name = name
        self._clock = clock
        self._asked = asked
        self._remark = ""
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            get_renderable=self._render,
            vertical_overflow="crop",
        )
        self._live.start()

    def show(self, _: Sequence[Recorded]) -> None:
        """The story knows already; it is drawn at the next tick."""

    def tick(self) -> None:
        """Draw what is true now."""
        self._live.refresh()

    def say(self, text: str) -> None:
        """Add a remark to what is drawn."""
        self._remark = text
        self.tick()

    def close(self) -> None:
        """Take the drawing away and give the cursor back."""
        self._live.stop()

    def end(self, summary: Summary | None) -> None:
        """Leave the steps on the screen, cut where it ends; commands stay whole, to be copied."""
        if summary is None:
            return
        for line in (summary.title, *summary.steps, summary.totals):
            self._console.print(Text(line, no_wrap=True, overflow="ellipsis"))
        if summary.error:
            self._console.print(Text(summary.error))
        for line in summary.advice:
            print(line)

    def _render(self) -> Group:
        return Group(*self._lines())

    def _lines(self) -> Iterator[Text]:
        story, now = self._story, self._clock.now_ms()
        state = "stopping" if story.stop else "running"
        if story.finished:
            state = story.finished.status
        yield _line(
            (one_line(self._name, NAME_CHARS), "bold"),
            (short(self._run_id), ""),
            (state, "cyan"),
            (duration(now - (story.started_at or now)), ""),
        )
        positions = story.positions()
        for step in positions[:POSITIONS]:
            yield self._position(step, now)
        if len(positions) > POSITIONS:
            yield _line((f"  … {len(positions) - POSITIONS} more", "dim"))
        cost = f"cost {story.cost}" if story.cost else ""
        yield _line((f"  {plural(story.steps_done, 'step')} done", "dim"), (cost, "dim"))
        for line in self._said():
            yield Text(f"  │ {line}", style="dim", no_wrap=True, overflow="ellipsis")
        for approval in self._asked():
            yield _line((f"  ? waiting for an answer: {one_line(approval.title)}", "yellow"))
            yield _line((f"    {one_line(answer_hint(approval))}", "yellow"))
        if warning := story.notices.newest():
            yield _line((f"  {warning.level}: {one_line(warning.message)}", "yellow"))
        if self._remark:
            yield _line((one_line(self._remark), "yellow"))

    def _position(self, step: Step, now: int) -> Text:
        around = [rounds(loop, current) for loop, current in step.loops()]
        if step.opens == "round":
            around.append(rounds(step))
        return _line(
            (f"  ● {one_line(self._labels.of(step.node), NAME_CHARS)}", "green"),
            (step.node_type, ""),
            (", ".join(around), ""),
            (_since(step, now), ""),
        )

    def _said(self) -> list[str]:
        speaker = self._story.speaker
        lines = safe(speaker.said).expandtabs(4).split("\n") if speaker else []
        return [line for line in lines if line.strip()][-TEXT_LINES:]


def _since(step: Step, now: int) -> str:
    if step.waits_until:
        return f"waiting until {clock_time(step.waits_until, now)}"
    return duration(now - step.started_at)


def _line(*parts: tuple[str, str]) -> Text:
    """Return one line of the view; it is cut where the terminal ends, never wrapped."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (part, style) in enumerate(part for part in parts if part[0]):
        text.append("  " if number else "")
        text.append(part, style=style or None)
    return text
