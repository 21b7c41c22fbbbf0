"""The development loops that run beside: their processes, logs, and restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.errors import Conflict, Forbidden, NotFound
from infloop.model.dev.status import DevStatus
from infloop.store.dev_loops import ask_restart, log_stamp, read_log, running_loops

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources
    from infloop.store.dev_loops import RunningLoop

MAX_LINES = 2_000
POLL_SECONDS = 0.5


class DevLoopList(Model, kw_only=True):
    """The loops that run now."""

    loops: list[DevStatus]


class DevLog(Model, kw_only=True):
    """The last lines of a process or hook of a loop."""

    name: str
    lines: list[str]


class DevOutput(Model, kw_only=True):
    """What a process or hook wrote since the last one; `isWhole`: its last lines from their start.

    It is whole at first, and again when the loop or the file of the output is another one.
    """

    text: str
    is_whole: bool


class DevLoops:
    """The loops of this data directory."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    def all(self) -> DevLoopList:
        """Return the loops that run now."""
        return DevLoopList(loops=[loop.status for loop in self._running()])

    async def follow(self) -> AsyncGenerator[DevLoopList]:
        """Yield the loops that run now, and again whenever something about them has changed."""
        known: DevLoopList | None = None
        while True:
            found = await asyncio.to_thread(self.all)
            if found != known:
                known = found
                yield found
            await asyncio.sleep(POLL_SECONDS)

    def logs(self, name: str, lines: int = 200) -> DevLog:
        """Return the last lines of a process or hook; raise NotFound without any."""
        if text := self._log_text(name):
            return DevLog(name=name, lines=text.splitlines()[-min(lines, MAX_LINES) :])
        raise NotFound(f"no running development loop has output of {name!r}")

    async def follow_log(self, name: str) -> AsyncGenerator[DevOutput]:
        """Yield the last lines of a process or hook, and then what it writes."""
        stamp: tuple[object, ...] = ()
        known = ""
        while True:
            now = await asyncio.to_thread(self._log_stamps, name)
            if now != stamp:
                text = await asyncio.to_thread(self._log_text, name)
                is_whole = not known or not text.startswith(known)
                if text != known:
                    shown = _last_lines(text) if is_whole else text[len(known) :]
                    yield DevOutput(text=shown, is_whole=is_whole)
                stamp, known = now, text
            await asyncio.sleep(POLL_SECONDS)

    def _log_stamps(self, name: str) -> tuple[object, ...]:
        return tuple((folder, log_stamp(folder, name)) for folder, _ in self._running())

    def _log_text(self, name: str) -> str:
        """Return the output of the first loop that has some."""
        return next(filter(None, (read_log(folder, name) for folder, _ in self._running())), "")

    async def restart(self, name: str, caller: Caller) -> None:
        """Ask the loop of a process to restart it.

        Raises NotFound, Conflict, and Forbidden for a caller who may be an agent.
        """
        if not caller.is_identified:
            raise Forbidden(
                "a server without a token restarts no process: whoever asks may be an agent. Set "
                "INFLOOP_API_TOKEN, or use the keys of `infloop dev`",
                "token-needed",
            )
        await self.restart_allowed(name, caller)

    async def restart_allowed(self, name: str, caller: Caller) -> None:
        """Restart a process that `caller` may restart; raise NotFound or Conflict."""
        loop = self.find(name)
        await self._resources.audit().record(
            "dev.restart-requested",
            caller.actor,
            correlation_id=caller.correlation_id,
            details={"process": name},
        )
        ask_restart(loop.folder, name)

    def find(self, name: str) -> RunningLoop:
        """Return the loop that has a process; raise NotFound or Conflict."""
        found = [
            loop
            for loop in self._running()
            if name in (process.name for process in loop.status.processes)
        ]
        if not found:
            raise NotFound(f"no running development loop has a process {name!r}")
        if len(found) > 1:
            raise Conflict(f"{len(found)} development loops have a process {name!r}")
        return found[0]

    def _running(self) -> list[RunningLoop]:
        return running_loops(self._resources.folders.dev)


def _last_lines(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[-MAX_LINES:])
