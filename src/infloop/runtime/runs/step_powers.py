"""What a step may use: the sandbox to start children, providers, its directory.

A step has no other powers than these. The sandbox and the providers of a step are made when it
first uses them, because most steps use one of them at most.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import AuditError
from infloop.model.audit import SYSTEM
from infloop.model.events import Notice
from infloop.nodes.base import NO_WORKSPACE, StepContext
from infloop.nodes.node_types import NODE_TYPES
from infloop.providers.base import BoundedProvider, uses_tools
from infloop.runtime.approvals import AskingStep
from infloop.runtime.confinement.egress_log import EgressLog
from infloop.runtime.confinement.fence import NO_EXTRA_ACCESS
from infloop.runtime.confinement.homes import SessionHomeProvider
from infloop.runtime.runs.dependencies import StepServices
from infloop.runtime.runs.joined_output import JoinedOutput
from infloop.runtime.runs.redaction import leak_notice
from infloop.runtime.spending.broker_usage import BrokerUsage
from infloop.runtime.spending.metered_provider import MeteredProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from infloop.engine.commands import Perform
    from infloop.model.events import Event, NoticeTopic
    from infloop.model.values import JsonObject
    from infloop.nodes.base import Outcome, WriteOutput
    from infloop.policy.permissions import AskPerson
    from infloop.providers.base import Provider
    from infloop.runtime.confinement.egress_log import EgressDecision
    from infloop.runtime.confinement.fence import ExtraAccess, RunFence
    from infloop.runtime.run_audit import AuditedRun
    from infloop.runtime.runs.loop import RunLoop
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.workspaces import RunWorkspace
    from infloop.sandbox.base import Sandbox
    from infloop.tools.gate import ToolEvent


class RunPowers:
    """Performs the steps of one run, each with its own powers."""

    def __init__(
        self,
        shared: SharedResources,
        run: AuditedRun,
        loop: RunLoop,
        workdir: str,
        workspace: RunWorkspace | None,
        fence: RunFence,
    ) -> None:
        self.shared = shared
        self.dependencies = shared.dependencies
        self.run = run
        self.loop = loop
        self.fence = fence
        self._workdir = workdir
        self._workspace = workspace

    def perform(self, perform: Perform, write_output: WriteOutput) -> Awaitable[Outcome]:
        """Perform one step, in the run's own checkout if it has one."""
        if self._workspace is not None and self._workspace.checkout is not None:
            return self._perform_in_checkout(self._workspace, perform, write_output)
        return self._perform(perform, write_output, self._workdir)

    async def _perform_in_checkout(
        self, workspace: RunWorkspace, perform: Perform, write_output: WriteOutput
    ) -> Outcome:
        workdir = await workspace.enter(self.loop.post)
        return await self._perform(perform, write_output, workdir)

    async def _perform(self, perform: Perform, write_output: WriteOutput, workdir: str) -> Outcome:
        dependencies, workspace = self.dependencies, self._workspace
        output = JoinedOutput(write_output)
        step = StepPowers(self, perform, output)
        context = StepContext(
            run_id=self.run.id,
            path=perform.path,
            node=perform.node,
            iteration=perform.iteration,
            attempt=perform.attempt,
            workdir=workdir,
            allows_directory=self.shared.workdirs.allows,
            write_output=output.write,
            drain=self.loop.recorder.drain,
            sandbox=step.sandbox,
            environment=dependencies.environment,
            provider=step.provider,
            interpreters=dependencies.interpreters(),
            max_output_bytes=dependencies.max_output_bytes,
            max_command_ms=dependencies.max_command_ms,
            workspace=workspace.for_step(perform, step.post) if workspace else NO_WORKSPACE,
            dev_loops=dependencies.dev_loops,
            warn=step.warn,
            ask_person=step.ask_person,
        )
        try:
            return await NODE_TYPES[perform.node_type](context, perform.config)
        finally:
            output.flush()

    def report_leak(self, perform: Perform, detectors: list[str]) -> None:
        """Write the secrets that a step told to the run and the audit log, by their detectors."""
        mode = self.dependencies.redactor.secrets.mode
        self.loop.post(leak_notice(mode, perform, detectors))
        details: JsonObject = {"path": perform.path, "detectors": [*detectors]}
        self.shared.audit.note("leak.found", self.run, outcome=mode, details=details)

    async def record_call(self, event: ToolEvent, outcome: str, details: JsonObject) -> None:
        """Write a tool call of an agent to the audit log; raise AuditError if that fails."""
        audit = self.dependencies.audit
        if audit is None:
            raise AuditError("there is no audit log")
        await audit.record(
            event,
            SYSTEM,
            outcome=outcome,
            correlation_id=self.run.correlation_id,
            run_id=self.run.id,
            workflow_id=self.run.workflow_id,
            details=details,
        )

    def report_egress(self, decision: EgressDecision) -> None:
        """Write a decision about connections to the audit log and the event bus, redacted."""
        redact = self.dependencies.redactor.secrets.redact
        self.shared.audit.note(
            decision.event,
            self.run,
            outcome=decision.kind.reason,
            details=redact(decision.details()),
        )
        now = self.shared.clock.now_ms()
        self.shared.event_bus.publish(redact(decision.message(self.run, now)))


class StepPowers:
    """The sandbox and the providers of one step."""

    __slots__ = ("_egress_log", "_output", "_perform", "_run")

    def __init__(self, run: RunPowers, perform: Perform, output: JoinedOutput) -> None:
        self._run = run
        self._perform = perform
        self._output = output
        self._egress_log: EgressLog | None = None

    def post(self, event: Event) -> None:
        """Add an event to the run, after what the step has printed so far."""
        self._output.flush()
        self._run.loop.post(event)

    def sandbox(
        self, extra: ExtraAccess = NO_EXTRA_ACCESS, *, usage: BrokerUsage | None = None
    ) -> Sandbox:
        """Return the sandbox for children with this access; `usage` counts what they use up."""
        run, perform = self._run, self._perform
        if self._egress_log is None:
            self._egress_log = EgressLog(self.post, run.report_egress, perform.path, perform.node)
        fenced = run.fence.sandbox(self._egress_log, perform.node, extra, usage)
        records = run.dependencies.child_records
        return records.wrap(fenced, run.run.id, perform.path) if records else fenced

    def warn(self, message: str, topic: NoticeTopic) -> None:
        """Add a warning to the run."""
        path, node = self._perform.path, self._perform.node
        self.post(Notice(message, path, node, "warning", topic))

    def provider(self, provider_id: str) -> Provider:
        """Return a provider whose calls are in the ledger."""
        run, perform = self._run, self._perform
        dependencies, usage = run.dependencies, BrokerUsage()
        services = StepServices(
            make_sandbox=partial(self.sandbox, usage=usage),
            ask_person=self.ask_person(),
            record_call=run.record_call,
            reserve=usage.reserve,
            leaks=dependencies.redactor.secrets,
            hosts=run.fence.tool_hosts(),
            manifests=run.loop.manifests,
        )
        found = dependencies.find_provider(provider_id, services)
        bounded = found if isinstance(found, BoundedProvider) else None
        if dependencies.homes and run.fence.confines and not uses_tools(found):
            home_exists = partial(dependencies.homes.exists, run.run.id, perform.node)
            found = SessionHomeProvider(found, home_exists)
        return MeteredProvider(
            found,
            run.shared.ledger,
            run.run.workflow_id,
            run.loop.limits.max_cost_usd,
            usage,
            bounded,
        )

    def ask_person(self) -> AskPerson | None:
        """Return the function with which the step asks a person; None if nobody is asked."""
        run, perform = self._run, self._perform
        if run.dependencies.approvals is None:
            return None
        ask = run.dependencies.approvals.ask_function(
            AskingStep(
                owner=run.shared.instance.id,
                run_id=run.run.id,
                workflow_id=run.run.workflow_id,
                path=perform.path,
                node=perform.node,
                post=self.post,
                publish=run.shared.event_bus.publish,
            )
        )
        return run.dependencies.redactor.wrap_ask(ask) if ask else None
