"""Performs the steps of workflows, one after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, assert_never

from infloop.errors import StepError, StoreError
from infloop.model.dev.config import (
    Log,
    NotifyReload,
    RestartProcess,
    RunHook,
    RunLoop,
    RunWorkflow,
    SleepMs,
    StartProcess,
    StopProcess,
    WaitForProcess,
    WriteState,
)
from infloop.model.dev.template import has_references, render
from infloop.supervisor.frames import Begin, moves

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from infloop.model.dev.config import DevConfig, Step
    from infloop.supervisor.hooks import Hooks
    from infloop.supervisor.processes import Processes
    from infloop.supervisor.reports import Surface
    from infloop.supervisor.session import Session


class RunsLoops(Protocol):
    """Runs an infloop workflow to its end; raises StepError if it does not succeed.

    `untrusted` names the inputs that hold values of children or clients.
    """

    def __call__(
        self, loop: str, inputs: Mapping[str, str], untrusted: Collection[str], /
    ) -> Awaitable[None]: ...


class Workflows:
    """Runs the workflows of one loop."""

    def __init__(
        self,
        config: DevConfig,
        session: Session,
        processes: Processes,
        hooks: Hooks,
        surface: Surface,
        notify_reload: Callable[[], None],
        run_loop: RunsLoops,
    ) -> None:
        self._config = config
        self._session = session
        self._processes = processes
        self._hooks = hooks
        self._surface = surface
        self._notify_reload = notify_reload
        self._run_loop = run_loop
        self.runs_loop = False

    async def run(self, name: str, files: Sequence[str], cause: str) -> None:
        """Run a workflow with everything it runs and triggers; raise StepError at a failure.

        `cause` says why it runs.
        """
        for move in moves(self._config, name):
            if isinstance(move, Begin):
                self._write_own(move.workflow, files)
            else:
                await self._perform(move.step, move.workflow, files, cause)

    def _write_own(self, workflow: str, files: Sequence[str]) -> None:
        try:
            self._session.update_own({"last_workflow": workflow, "last_changed_files": list(files)})
        except StoreError as error:
            raise StepError(str(error)) from None

    async def _perform(self, step: Step, workflow: str, files: Sequence[str], cause: str) -> None:
        match step:
            case StartProcess():
                await self._processes.start(step.process, f"workflow {workflow}: {cause}")
            case StopProcess():
                await self._processes[step.process].stop()
            case RestartProcess():
                await self._processes.restart(step.process, f"workflow {workflow}: {cause}")
            case WaitForProcess():
                await self._processes[step.process].wait_ready()
            case RunHook():
                await self._hooks.run(step.hook, workflow, files)
            case SleepMs():
                await asyncio.sleep(step.duration_ms / 1000)
            case WriteState():
                try:
                    self._session.update({step.key: render(step.value, self._session.values)})
                except StoreError as error:
                    raise StepError(str(error)) from None
            case Log():
                message = render(step.message, self._session.values)
                if step.style == "boxed":
                    self._surface.box(message)
                else:
                    self._surface.log("INFO", message)
            case NotifyReload():
                self._notify_reload()
            case RunLoop():
                inputs = {k: render(v, self._session.values) for k, v in step.inputs.items()}
                untrusted = {k for k, v in step.inputs.items() if has_references(v)}
                self.runs_loop = True
                try:
                    await self._run_loop(step.loop, inputs, untrusted)
                finally:
                    self.runs_loop = False
            case RunWorkflow():
                raise AssertionError("frames replace it by the steps of that workflow")
            case _:
                assert_never(step)
