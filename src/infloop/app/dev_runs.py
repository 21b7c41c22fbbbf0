"""Runs of infloop workflows that a development loop starts (`run_loop`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from infloop.application.application import Application
    from infloop.application.runs.models import StartedRun
    from infloop.settings import Settings
    from infloop.supervisor.reports import Surface


class DevRuns:
    """Runs workflows in the loop's root, one at a time; `run_id` is the one in progress.

    Everything that drives runs is opened for each run, so an idle loop needs none of it.
    """

    def __init__(self, chosen: Settings, root: str, surface: Surface) -> None:
        self._chosen = chosen
        self._root = root
        self._surface = surface
        self.run_id = ""

    async def __call__(
        self, loop: str, inputs: Mapping[str, str], untrusted: Collection[str], /
    ) -> None:
        """Run a workflow to its end; raise StepError if it does not succeed."""
        from infloop.app.use_cases import open_application, open_files
        from infloop.application.caller import COMMAND_LINE
        from infloop.application.workflows import run_inputs

        try:
            async with open_files(self._chosen) as files:
                workflow, notes = await files.workflows.load_file(self._place(loop))
            for note in notes:
                self._surface.log("INFO", f"{loop}: {note}")
            filled = run_inputs(workflow.root, {**inputs})
            async with open_application(self._chosen) as application:
                started = await application.runs.start(
                    workflow,
                    filled,
                    COMMAND_LINE,
                    directory=self._root,
                    untrusted=tuple(sorted(untrusted)),
                )
                await self._to_its_end(application, started, loop)
        except StepError:
            raise
        except InfloopError as error:
            raise StepError(f"run_loop {loop!r}: {error}") from None

    async def _to_its_end(self, application: Application, started: StartedRun, loop: str) -> None:
        run = await application.live.watch(started)
        self.run_id = run.run_id
        name = run.run_id[:8]
        self._surface.log("INFO", f"run {name} of {loop} starts; `infloop attach {name}` shows it")
        self._surface.status_changed()
        try:
            outcome = await asyncio.shield(run.outcome())
        except asyncio.CancelledError:
            await run.stop("the development loop was stopped")
            await run.outcome()
            raise
        finally:
            self.run_id = ""
            self._surface.status_changed()
        if outcome.status != "succeeded":
            why = f": {outcome.error}" if outcome.error else ""
            raise StepError(f"run {name} of {loop} {outcome.status}{why}")
        self._surface.log("INFO", f"run {name} of {loop} succeeded")

    def _place(self, loop: str) -> str:
        """Return the path of a file in the root, or else an id."""
        path = Path(self._root, loop)
        return str(path) if path.is_file() else loop
