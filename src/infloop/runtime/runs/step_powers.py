"""The doors that a run's steps may use: the sandbox to start children, providers to ask.

A step is given exactly these powers. A door is made when a step first goes through it, because most
steps need one of them at most.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infloop.nodes import NODE_TYPES
from infloop.nodes.base import NO_WORKSPACE, StepContext
from infloop.runtime.approvals import Asker
from infloop.runtime.confinement.egress_log import Telling
from infloop.runtime.confinement.fence import NO_NEEDS
from infloop.runtime.confinement.homes import InItsHome
from infloop.runtime.spending.broker_usage import Seen
from infloop.runtime.spending.ledger import Metered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.engine.commands import Perform
    from infloop.model.events import RunStarted
    from infloop.model.values import JsonObject
    from infloop.nodes.base import Outcome
    from infloop.providers.approval_requests import AskPerson
    from infloop.providers.base import Provider
    from infloop.runtime.confinement.egress_log import Decided
    from infloop.runtime.confinement.fence import Needs, RunFence
    from infloop.runtime.runs.dependencies import Parts
    from infloop.runtime.runs.loop import RunLoop, Say
    from infloop.runtime.spending.ledger import Ledger
    from infloop.runtime.workspaces import RunWorkspace
    from infloop.sandbox.base import Sandbox


class AllRuns(NamedTuple):
    """What the runs of this process have in common."""

    parts: Parts
    ledger: Ledger
    lets_in: Callable[[str], Awaitable[bool]]
    instance: str
    publish: Callable[[JsonObject], None]
    note_connections: Callable[[str, Decided], None]


class RunDoors:
    """Gives each step of one run its powers."""

    def __init__(
        self,
        all_runs: AllRuns,
        loop: RunLoop,
        started: RunStarted,
        files: RunWorkspace | None,
        fence: RunFence,
    ) -> None:
        self.all_runs = all_runs
        self.parts = all_runs.parts
        self.loop = loop
        self.run_id = loop.recorder.run_id
        self.workflow_id = started.workflow_id
        self.fence = fence
        self._workdir = started.workdir
        self._files = files

    def perform(self, perform: Perform, say: Say) -> Awaitable[Outcome]:
        """Perform one step with exactly the powers that a node is given."""
        parts, doors = self.parts, StepDoors(self, perform)
        context = StepContext(
            run_id=self.run_id,
            path=perform.path,
            node=perform.node,
            iteration=perform.iteration,
            attempt=perform.attempt,
            workdir=self._workdir,
            allows_directory=self.all_runs.lets_in,
            write_output=say,
            drain=self.loop.recorder.room,
            sandbox=doors.sandbox,
            environment=parts.environment,
            provider=doors.provider,
            interpreters=parts.interpreters,
            max_output_bytes=parts.max_output_bytes,
            max_command_ms=parts.max_command_ms,
            workspace=self._files.step(perform, self.loop.post) if self._files else NO_WORKSPACE,
        )
        return NODE_TYPES[perform.node_type](context, perform.config)


class StepDoors:
    """The doors of one step."""

    __slots__ = ("_perform", "_run", "_telling")

    def __init__(self, run: RunDoors, perform: Perform) -> None:
        self._run = run
        self._perform = perform
        self._telling: Telling | None = None

    def sandbox(self, needs: Needs = NO_NEEDS, *, seen: Seen | None = None) -> Sandbox:
        """Return the sandbox for children with such needs; `seen` counts what they use up."""
        run, perform = self._run, self._perform
        if self._telling is None:
            tell = partial(run.all_runs.note_connections, run.run_id)
            self._telling = Telling(run.loop.post, tell, perform.path, perform.node)
        fenced = run.fence.around(self._telling, perform.node, needs, seen)
        records = run.parts.records
        return records.wrap(fenced, run.run_id, perform.path) if records else fenced

    def provider(self, provider_id: str) -> Provider:
        """Return a provider whose calls are on the books."""
        run, perform = self._run, self._perform
        parts, seen = run.parts, Seen()
        found = parts.provider(provider_id, partial(self.sandbox, seen=seen), self._ask())
        if parts.homes and run.fence.confines:
            there = partial(parts.homes.is_there, run.run_id, perform.node)
            found = InItsHome(found, there)
        most = run.loop.limits.max_cost_usd
        return Metered(found, run.all_runs.ledger, run.workflow_id, most, seen)

    def _ask(self) -> AskPerson | None:
        """Return the way in which the step asks a person, if anybody is to be asked."""
        run, perform = self._run, self._perform
        if run.parts.approvals is None:
            return None
        ask = run.parts.approvals.power(
            Asker(
                run.all_runs.instance,
                run.run_id,
                run.workflow_id,
                perform.path,
                perform.node,
                run.loop.post,
                run.all_runs.publish,
            )
        )
        return run.parts.leaks.asking(ask) if ask else None
