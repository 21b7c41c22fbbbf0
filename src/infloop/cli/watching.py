"""Shows runs of this process until they have settled, and lets a person stop them.

Ctrl+C, SIGTERM and a closed terminal cancel the runs and wait until they have settled. A second
Ctrl+C does not wait: this process exits at once, its children are killed, and the runs are
interrupted as by a crash. A run of another process goes on when somebody stops watching it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.cli.answering import answer_questions
from infloop.cli.interrupts import (
    CANCELLED,
    TERMINAL_CLOSED,
    exit_at_once,
    is_closed_terminal,
    leave_terminal,
    on_interrupt,
)
from infloop.cli.view.advice import short
from infloop.cli.view.plain import JsonView, PlainView
from infloop.cli.view.summary import summarize
from infloop.cli.view.terminal import note, one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from infloop.application.application import Application
    from infloop.application.runs.followed_run import FollowedRun
    from infloop.application.runs.watched_run import LoadedView, WatchedRun
    from infloop.cli.view.summary import Summary
    from infloop.model.events import Recorded, RunFinished

SUCCEEDED, FAILED, PAUSED = 0, 1, 75
EXIT_CODES = {
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "paused": PAUSED,
    "cancelled": CANCELLED,
}
TICK_SECONDS = 0.1
TICKS_BETWEEN_COSTS = 10
MAX_FILES = 10


class View(Protocol):
    """Shows a run while it is in progress."""

    def show(self, items: Sequence[Recorded]) -> None:
        """Show the next events."""

    def tick(self) -> None:
        """Update what changes with time."""

    def say(self, text: str) -> None:
        """Show a message that is not part of the run."""

    def close(self) -> None:
        """Stop showing."""

    def end(self, summary: Summary | None) -> None:
        """Show the summary of a run that has settled."""


class _Display(msgspec.Struct):
    """A run and how it is shown."""

    application: Application
    run: WatchedRun | FollowedRun
    loaded: LoadedView
    view: View

    async def follow(self) -> RunFinished:
        """Show the run until it has settled."""
        async for batch in self.run.events():
            self.loaded.view.apply_all(batch)
            self.view.show(batch)
        return await self.run.outcome()

    async def summary(self) -> Summary | None:
        run_id, view = self.run.run_id, self.loaded.view
        await self.run.read_cost(view)
        # Changes in a worktree have to be applied, so they are named.
        named = view.changed and view.in_worktree
        changes = await _change_lines(self.application, run_id) if named else []
        return summarize(run_id, self.loaded.workflow_name, view, changes)


async def _change_lines(application: Application, run_id: str) -> list[str]:
    """Return which files `infloop apply` would change; nothing if that cannot be read."""
    from infloop.cli.view.changes import change_lines, total
    from infloop.errors import InfloopError

    try:
        found = await application.history.changes(run_id)
    except InfloopError:
        return []
    files = [file for directory in found.directories for file in directory.files]
    if not files:
        return []
    return [total(files), *(one_line(line) for line in change_lines(files, MAX_FILES))]


async def watch_runs(
    application: Application,
    start: Callable[[], Awaitable[Sequence[WatchedRun]]],
    *,
    as_json: bool,
    answers: bool = False,
) -> int:
    """Start runs and show them until all have settled; return the exit code.

    With `answers`, the person at the terminal is asked what the runs wait for.
    """
    answers = answers and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    # Open what drives runs first: until then Ctrl+C ends this process at once.
    await application.runs.isolation()
    displays: list[_Display] = []
    stopping: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    with on_interrupt(stopping.set_result, lambda: _exit_now(displays)):
        runs = await start()
        several = len(runs) > 1
        displays += [
            await _display(application, run, as_json=as_json, several=several, plain=answers)
            for run in runs
        ]
        try:
            codes = await _follow_all(displays, stopping, answers=answers)
        except BaseExceptionGroup as group:  # the first error is the reason for the others
            error = group.exceptions[0]
            if not is_closed_terminal(error):
                await _stop(displays, f"it could not be shown any more: {error}")
                raise error from None
            leave_terminal()
            await _stop(displays, TERMINAL_CLOSED)
            codes = [CANCELLED]
        finally:
            for each in displays:
                each.view.close()
    for each in displays:
        each.view.end(await each.summary())
    return max(codes, default=SUCCEEDED)


async def watch_other(application: Application, run: FollowedRun, *, as_json: bool) -> int:
    """Show a run of another process until it has settled, or until Ctrl+C."""
    display = await _display(application, run, as_json=as_json, several=False)
    if run.is_over:
        display.view.say(f"run {short(run.run_id)} {(await run.outcome()).status}")
    stopping: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with on_interrupt(stopping.set_result, exit_at_once):
        following = asyncio.create_task(_follow_all([display], None))
        try:
            await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                await asyncio.wait((following,))
        finally:
            display.view.close()
    if following.cancelled():
        note(
            f"run {short(run.run_id)} goes on; `infloop attach {short(run.run_id)}` shows it again"
        )
        return SUCCEEDED
    display.view.end(await display.summary())
    return max(following.result())


async def _follow_all(
    displays: Sequence[_Display], stopping: asyncio.Future[str] | None, *, answers: bool = False
) -> list[int]:
    """Show the runs until they have settled; return the exit code of each."""
    async with asyncio.TaskGroup() as group:
        helpers = [group.create_task(_tick(displays))]
        if answers:
            helpers += [
                group.create_task(answer_questions(each.application, each.run)) for each in displays
            ]
        if stopping is not None:
            helpers.append(group.create_task(_stop_when(stopping, displays)))
        followed = [group.create_task(each.follow()) for each in displays]
        codes = [EXIT_CODES[(await task).status] for task in followed]
        for task in helpers:
            task.cancel()
    return codes


def _exit_now(displays: Sequence[_Display]) -> None:
    for each in displays:
        each.view.close()
        name = short(each.run.run_id)
        note(f"stopped waiting for {name}; `infloop resume {name}` continues where it stopped")
    sys.stdout.flush()
    exit_at_once()


async def _tick(displays: Sequence[_Display]) -> None:
    for number in itertools.count():
        for each in displays:
            if number % TICKS_BETWEEN_COSTS == 0:
                await each.run.read_cost(each.loaded.view)
            each.view.tick()
        await asyncio.sleep(TICK_SECONDS)


async def _stop_when(stopping: asyncio.Future[str], displays: Sequence[_Display]) -> None:
    reason = await stopping
    for each in displays:
        each.view.say("stopping; press Ctrl+C again to exit without waiting")
    await _stop(displays, reason)


async def _stop(displays: Sequence[_Display], reason: str) -> None:
    """Cancel the runs that have not settled, and wait until they have."""
    active = [each.run for each in displays if not each.run.is_over]
    for run in active:
        await run.stop(reason)
    await asyncio.gather(*(run.outcome() for run in active), return_exceptions=True)


async def _display(
    application: Application,
    run: WatchedRun | FollowedRun,
    *,
    as_json: bool,
    several: bool,
    plain: bool = False,
) -> _Display:
    loaded = await run.load()
    view: View | None = JsonView() if as_json else None
    if view is None and not several and not plain:
        view = _live_view(application, run, loaded)
    prefix = f"{short(run.run_id)}  " if several else ""
    return _Display(application, run, loaded, view or PlainView(prefix, loaded.started_at))


def _live_view(
    application: Application, run: WatchedRun | FollowedRun, loaded: LoadedView
) -> View | None:
    """Return a live view, if stdout is a terminal that can show one."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    from infloop.cli.view.live import LiveView

    console = Console(force_terminal=True)
    if console.is_dumb_terminal:
        return None
    return LiveView(console, run.run_id, loaded, application.clock, run.open_approvals)
