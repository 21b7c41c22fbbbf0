"""Sees runs of this process through to their end: shows them, and lets a person stop them.

Ctrl+C and SIGTERM cancel the runs and wait until they have settled. A second Ctrl+C does not wait:
this process ends at once, its children with it, and the runs are what a crash leaves behind.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infloop.cli.view.advice import short
from infloop.cli.view.labels import Labels
from infloop.cli.view.plain import JsonView, PlainView
from infloop.cli.view.replay import count_doubts, story_so_far
from infloop.cli.view.summary import sum_up
from infloop.cli.view.terminal import note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from infloop.cli.view.run_view import Story
    from infloop.cli.view.summary import Summary
    from infloop.model.approval import Approval
    from infloop.model.events import Recorded, RunFinished
    from infloop.runtime.runs.service import RunService
    from infloop.store.interfaces.run_log import RunRow

SUCCEEDED, FAILED, PAUSED, CANCELLED = 0, 1, 75, 130
EXIT_CODES = {
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "paused": PAUSED,
    "cancelled": CANCELLED,
}
# Numbers, because the module of that name can also send signals, which is for the sandbox only.
SIGINT, SIGTERM = 2, 15
TICK_SECONDS = 0.1


class View(Protocol):
    """Something that shows a run while it goes on."""

    def show(self, items: Sequence[Recorded]) -> None:
        """Show what happened next."""

    def tick(self) -> None:
        """Show that time passes."""

    def say(self, text: str) -> None:
        """Say something that is not part of the run."""

    def close(self) -> None:
        """Stop showing."""

    def end(self, summary: Summary | None) -> None:
        """Leave behind what is worth keeping of a run that has settled."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run of this process: everything after `after_seq` is new to the person who watches."""

    run_id: str
    after_seq: int
    outcome: asyncio.Task[RunFinished]


def begun(service: RunService, run_id: str, after_seq: int = 0) -> Begun:
    """Hold on to a run that was just begun, however soon it ends."""
    return Begun(run_id, after_seq, asyncio.create_task(service.wait(run_id)))


async def see_through(
    service: RunService, begin: Callable[[], Awaitable[Sequence[Begun]]], *, as_json: bool
) -> int:
    """Begin runs and show them until all have settled; return the exit code."""
    shown: list[_Shown] = []
    stopping = asyncio.Event()

    with on_interrupt(stopping.set, lambda: _give_up(shown)):
        runs = await begin()
        if runs and service.unconfined_reason:
            note(f"isolation: host, so children run as you: {service.unconfined_reason}")
        several = len(runs) > 1
        shown += [await _shown(service, run, as_json=as_json, several=several) for run in runs]
        try:
            codes = await _watch(service, shown, stopping)
        except BaseExceptionGroup as group:  # whatever went wrong first is the reason
            error = group.exceptions[0]
            await _stop(service, shown, f"it could not be shown any more: {error}")
            raise error from None
        finally:
            for each in shown:
                each.view.close()
    for each in shown:
        await count_doubts(service.store.ledger, each.run.run_id, each.story)
        each.view.end(sum_up(each.row, each.story))
    return max(codes, default=SUCCEEDED)


async def _watch(
    service: RunService, shown: Sequence[_Shown], stopping: asyncio.Event
) -> list[int]:
    """Show the runs to their end; return the exit code of each."""
    async with asyncio.TaskGroup() as group:
        beside = (
            group.create_task(_tick(shown)),
            group.create_task(_stop_when(stopping, service, shown)),
        )
        watched = [group.create_task(each.watch(service)) for each in shown]
        codes = [EXIT_CODES[(await task).status] for task in watched]
        for task in beside:
            task.cancel()
    return codes


def _give_up(shown: Sequence[_Shown]) -> None:
    """End this process now; its keepers see to it that no child is left."""
    for each in shown:
        each.view.close()
        name = short(each.run.run_id)
        note(f"given up waiting for {name}; `infloop resume {name}` goes on where it was")
    sys.stdout.flush()
    os._exit(CANCELLED)


@contextmanager
def on_interrupt(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call `first` at the first Ctrl+C or SIGTERM, `second` at the next."""
    loop = asyncio.get_running_loop()
    acts = iter((first, second))

    def act() -> None:
        next(acts, second)()

    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in (SIGINT, SIGTERM):
            loop.remove_signal_handler(number)


async def _tick(shown: Sequence[_Shown]) -> None:
    while True:
        for each in shown:
            each.view.tick()
        await asyncio.sleep(TICK_SECONDS)


async def _stop_when(stopping: asyncio.Event, service: RunService, shown: Sequence[_Shown]) -> None:
    await stopping.wait()
    for each in shown:
        each.view.say("stopping; press Ctrl+C again to give up waiting")
    await _stop(service, shown, "stopped at the terminal")


async def _stop(service: RunService, shown: Sequence[_Shown], reason: str) -> None:
    """Cancel the runs that still go on, and wait until they have settled."""
    going = [each.run for each in shown if not each.run.outcome.done()]
    for run in going:
        await service.stop(run.run_id, reason)
    await asyncio.gather(*(run.outcome for run in going), return_exceptions=True)


@dataclass(slots=True)
class _Shown:
    """A run and how it is shown."""

    run: Begun
    row: RunRow
    story: Story
    view: View

    async def watch(self, service: RunService) -> RunFinished:
        """Show the run to its end."""
        async for batch in service.listen(self.run.run_id, self.run.after_seq):
            self.story.tell(batch)
            self.view.show(batch)
        return await self.run.outcome


async def _shown(service: RunService, run: Begun, *, as_json: bool, several: bool) -> _Shown:
    loaded = await service.store.run_log.load(run.run_id, until_seq=run.after_seq)
    labels = Labels(loaded.definition)
    story = await story_so_far(service.store.run_log, loaded, labels)
    view: View | None = JsonView() if as_json else None
    if view is None and not several:
        view = _drawn(service, loaded.run, story, labels)
    prefix = f"{short(run.run_id)}  " if several else ""
    return _Shown(run, loaded.run, story, view or PlainView(prefix, loaded.run.started_at))


def _drawn(service: RunService, row: RunRow, story: Story, labels: Labels) -> View | None:
    """Return a live view, if stdout is a terminal that can show one."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    from infloop.cli.view.live import LiveView
    from infloop.runtime.clock import SystemClock

    console = Console(force_terminal=True)
    if console.is_dumb_terminal:
        return None

    def asked() -> Sequence[Approval]:
        return service.approvals.open_for_run(row.id) if service.approvals else ()

    return LiveView(console, story, labels, row.id, row.workflow_name, SystemClock(), asked)
