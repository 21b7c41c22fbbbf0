"""Keeps runs of file triggers from starting themselves again.

A run that a trigger started writes files. Those writes must not fire the same trigger, so the
directories in which such a run works are noted from its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.events import (
    WORKSPACE,
    Recorded,
    RunFinished,
    RunStarted,
    StepStarted,
    TreeSaved,
)
from infloop.watch.own_writes import OwnWrites

if TYPE_CHECKING:
    from infloop.model.clock import Clock
    from infloop.model.values import JsonValue
    from infloop.runtime.event_bus import BusMessage


class OwnWritesTracker:
    """Listens to the event bus and knows where runs of triggers write."""

    def __init__(self, workdir: str, clock: Clock) -> None:
        self.writes = OwnWrites()
        self._workdir = workdir
        self._clock = clock
        self._directories: dict[str, tuple[str, set[str]]] = {}
        # Where runs work whose trigger is not known yet.
        self._workdirs: dict[str, str] = {}

    def note(self, item: BusMessage) -> None:
        """Take in what happened in a run or in the queue."""
        if not isinstance(item, Recorded):
            if item["type"] == "trigger_started" and item["triggerId"]:
                run_id, trigger_id = str(item["runId"]), str(item["triggerId"])
                directories = {self._workdirs.pop(run_id, self._workdir)}
                self._directories[run_id] = trigger_id, directories
                self.writes.began(trigger_id, run_id, directories)
            return
        known = self._directories.get(item.run_id)
        if known is None:
            self._note_workdir(item)
            return
        if isinstance(item.event, RunFinished):
            del self._directories[item.run_id]
            self.writes.ended(item.run_id, self._clock.now_ms())
            return
        trigger_id, directories = known
        new = _directories(item) - directories
        if new:
            directories |= new
            self.writes.began(trigger_id, item.run_id, directories)

    def _note_workdir(self, item: Recorded) -> None:
        """Note where a run works; whether a trigger started it is announced after it began."""
        if isinstance(item.event, RunStarted):
            self._workdirs[item.run_id] = item.event.workdir or WORKSPACE
        elif isinstance(item.event, RunFinished):
            self._workdirs.pop(item.run_id, None)


def _directories(item: Recorded) -> set[str]:
    """Return the directories that an event names as those in which a step works."""
    event = item.event
    if isinstance(event, TreeSaved):
        return {event.directory}
    if isinstance(event, RunStarted):
        return {event.workdir or WORKSPACE}
    if not isinstance(event, StepStarted):
        return set()
    command = event.config.get("command")
    named: list[JsonValue] = [event.config.get("cwd")]
    if isinstance(command, dict):
        named.append(command.get("cwd"))
    return {path for path in named if isinstance(path, str) and path.startswith("/")}
