"""The engine: runs the workflows of one queue, and whatever fills it.

Workflows run one at a time. Processes, probes, observed hooks and events go on meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import InfloopError
from infloop.model.dev.graph import reachable
from infloop.sandbox.kernel.written_bytes import TreeWrites, written_bytes
from infloop.supervisor.changes import Changes
from infloop.supervisor.queue import Waiting
from infloop.watch.causes import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.clock import Clock
    from infloop.model.dev.config import DevConfig, Observe
    from infloop.sandbox.kernel.written_bytes import WrittenBytes
    from infloop.supervisor.hooks import Hooks, RunningHook
    from infloop.supervisor.processes import Processes, Supervised
    from infloop.supervisor.queue import WorkflowQueue
    from infloop.supervisor.reports import Surface
    from infloop.supervisor.session import Session
    from infloop.supervisor.workflows import Workflows
    from infloop.watch.causes import Decision


class Engine:
    """Runs one development loop."""

    def __init__(
        self,
        config: DevConfig,
        session: Session,
        processes: Processes,
        hooks: Hooks,
        workflows: Workflows,
        queue: WorkflowQueue,
        surface: Surface,
        clock: Clock,
    ) -> None:
        self._config = config
        self._session = session
        self.processes = processes
        self._hooks = hooks
        self._workflows = workflows
        self._surface = surface
        self._changes = Changes(config, surface, clock, self._on_decision, self._writing)
        hooks.on_end = self._changes.look
        self._queue = queue
        self._trees: dict[int, TreeWrites] = {}
        self._requested: set[asyncio.Task[None]] = set()
        self.running = ""

    # -- the life of a loop ----------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set; then everything is stopped."""
        self._session.update_own({"root": self._config.root})
        working = asyncio.get_running_loop().create_task(self._work())
        stopped = asyncio.get_running_loop().create_task(stopping.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            tasks = (working, stopped, *self._requested)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._changes.close()
            await self.processes.stop_all()

    async def _work(self) -> None:
        await self.processes.autostart()
        for name in self._config.startup_workflows:
            await self._run(Waiting(name, "startup"))
        await self._changes.start()
        async with asyncio.TaskGroup() as group:
            for name, hook in self._config.hook.items():
                if hook.observe is not None:
                    group.create_task(self._observe(name, hook.observe))
            while True:
                await self._run(await self._queue.next())

    def _on_decision(self, decision: Decision) -> None:
        for cycle in decision.cycles:
            self._surface.log("ERROR", f"stopped a cycle: {cycle}")
        for started in decision.starts:
            self._queue.put_changed(started)

    async def _run(self, waiting: Waiting) -> None:
        name = waiting.workflow
        self._surface.log("INFO", f"workflow {name} starts: {waiting.cause}")
        tree = frozenset(reachable(self._config, name))
        self.running = name
        self._surface.status_changed()
        try:
            async with self._changes.written_by(Writer(name, tree, waiting.chain)):
                await self._workflows.run(name, waiting.files, waiting.cause)
        except InfloopError as error:
            self._surface.log(
                "ERROR", f"workflow failed; continuing runtime workflow={name} error={error}"
            )
        finally:
            self.running = ""
            self._surface.status_changed()

    async def _observe(self, name: str, observe: Observe) -> None:
        """Run a hook at its interval, and its workflow when the hook changed the state."""
        loop = asyncio.get_running_loop()
        interval = observe.interval_ms / 1000
        due, complaint = loop.time(), ""
        while True:
            try:
                changed = await self._hooks.run(name, "observe")
                complaint = ""
            except InfloopError as error:
                changed = False
                if str(error) != complaint:
                    complaint = str(error)
                    self._surface.log("ERROR", f"observed hook failed: {error}")
            if changed:
                self._queue.put_observed(observe.workflow, name)
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())

    def request_restart(self, name: str) -> None:
        """Restart a process because another process asks for it."""
        if name in self.processes:
            self._surface.log("INFO", f"a restart of process {name} was requested")
            task = asyncio.get_running_loop().create_task(self._restart(name))
            self._requested.add(task)
            task.add_done_callback(self._requested.discard)

    async def _restart(self, name: str) -> None:
        try:
            await self.processes.restart(name, "a restart was requested")
        except InfloopError as error:
            self._surface.log("ERROR", f"{error}")

    def _writing(self) -> Iterator[Writing]:
        """Yield what runs now, and what it has written."""
        running = self._hooks.running
        self._trees = {number: tree for number, tree in self._trees.items() if number in running}
        for number, hook in running.items():
            if hook.pid and number not in self._trees:
                self._trees[number] = TreeWrites(hook.pid)
            found = self._trees[number].total() if number in self._trees else None
            yield _writing(f"hook {number}", found, hook).as_hook(ended=hook.ended)
        for process in self.processes.running():
            yield _writing(f"process {process.pid}", written_bytes(process.pid), process)
        if self._workflows.runs_loop:  # its processes are not known: it may write at any time
            yield Writing("run").as_hook(ended=False)


class Writing(NamedTuple):
    """What a child of the loop has written, without what it printed; None: not known."""

    name: str
    written: int | None = None
    to_disk: int = 0
    is_hook: bool = False
    ended: bool = False

    def as_hook(self, *, ended: bool) -> Writing:
        return self._replace(is_hook=True, ended=ended)


def _writing(name: str, found: WrittenBytes | None, child: RunningHook | Supervised) -> Writing:
    if found is None:
        return Writing(name)
    return Writing(name, max(0, found.anywhere - child.printed_bytes), found.to_disk)
