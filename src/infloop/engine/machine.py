"""The state machine of a run.

`advance` applies one event to the state and returns the commands that follow. Replay is the same
call over the stored events, with the commands ignored; `outstanding` then returns what is left to
do. The state changes only by events.

The life of a step. `_enter` opens it (ready) and requests its start or its outcome. `StepStarted`
makes it running. `StepPassed` or `StepFinished` closes it and stores its outputs, and `_follow`
continues along the edge of its handle. A container opens frames when it starts, and closes when its
frames have completed.

Ending early (an End inside a loop, a lost race, a failure, a stop, a budget). Every affected frame
gets an `ending`, running effects are interrupted, and each frame completes when its open step has
closed. There is no other way to end early, so nothing is left running.

Pausing. A step is `waiting` until a time, when it is tried again; or it is `held` before an effect
that costs money while the budget is spent. When only held steps are left, the run pauses: it
finishes for now, and continues from the same state when it is resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

from infloop.engine import parallel, progress
from infloop.engine.commands import Command, Emit, Interrupt, Perform, Wait
from infloop.engine.decide import Decision, decide
from infloop.engine.graph import MAX_DEPTH, Graph, GraphNode, Program
from infloop.engine.resolve import Unresolved, resolve
from infloop.engine.scope import FrameScope, owner
from infloop.engine.state import Branch, Ending, Frame, State, Step
from infloop.model.events import (
    BudgetExceeded,
    Event,
    GuardFailed,
    Notice,
    Remark,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    TemplateWarning,
    TreeRestored,
    WaitOver,
)
from infloop.model.inputs import InputError, resolve_inputs
from infloop.model.template import MISSING, Missing, TooLong

if TYPE_CHECKING:
    from infloop.model.nodes import FrameKind
    from infloop.model.values import JsonObject

CANCELLED: Literal["cancelled"] = "cancelled"

MIN_WAIT_MS = 1_000  # doubled with each attempt, up to a minute
DEFAULT_MAX_WAIT_MS = 21_600_000


def advance(program: Program, state: State, event: Event, now: int) -> tuple[State, list[Command]]:
    """Apply `event`, which happened at `now`; return the state and the commands that follow."""
    machine = _Machine(program, state, now)
    match event:
        case StepPassed() | StepFinished():
            machine.close(event)
        case StepStarted():
            machine.start(event)
        case RunStarted():
            machine.begin(event)
        case RunResumed():
            machine.resume(event)
        case StopRequested():
            machine.end_run(Ending(CANCELLED, event.reason or "stopped on request"))
        case StepWaiting():
            machine.wait(event)
        case WaitOver():
            machine.end_wait(event)
        case BudgetExceeded():
            machine.exceed_budget(event)
        case GuardFailed():
            machine.fail_before_step(event.path, Ending("failed", event.reason, event.path))
        case RunFinished():
            state.held = ""
            if event.interrupted:  # it may be recorded much later: that time does not count
                return state, []
            state.finished = event.status
        case TreeRestored():
            return state, []  # the run does not execute meanwhile: the time does not count
        case Remark():
            pass
        case _:
            assert_never(event)
    if state.held:
        machine.pause_if_blocked()
    state.last_time = now
    return state, machine.commands


def outstanding(program: Program, state: State, now: int) -> list[Command]:
    """Return the commands that are left to do for a state that was loaded or replayed."""
    machine = _Machine(program, state, now)
    for step in list(state.steps.values()):
        machine.request(step)
    if state.held:
        machine.pause_if_blocked()
    machine.settle()
    return machine.commands


class _Machine:
    """One call of `advance`: the state, and the commands so far."""

    __slots__ = ("commands", "now", "program", "state")

    def __init__(self, program: Program, state: State, now: int) -> None:
        self.program = program
        self.state = state
        self.now = now
        self.commands: list[Command] = []

    # -- events ------------------------------------------------------------------------------

    def begin(self, event: RunStarted) -> None:
        """Enter the first node of the run."""
        self.state.limits = event.limits
        self.state.directory = event.directory
        self.state.begun_at = self.now
        graph = self.program.graphs[self.program.root]
        frame = Frame("run", "", graph.id, scope={}, inputs=dict(event.inputs))
        self.state.frames[""] = frame
        self._enter(frame, graph.start)

    def resume(self, event: RunResumed) -> None:
        """Continue in another process; the time in between does not count."""
        self.state.limits = event.limits
        self.state.directory = event.directory or self.state.directory
        self.state.spent_ms += self.state.last_time - self.state.begun_at
        self.state.begun_at = self.now
        self.state.held = ""

    def start(self, event: StepStarted) -> None:
        """Mark a step as running; a container opens its frames."""
        step = self.state.steps[event.path]
        step.status = "running"
        step.attempt = event.attempt
        step.started_at = self.now
        frame, node = self._locate(step)
        opens = node.model.opens
        if opens is None:
            return
        if frame.ending:
            self._close_container(step, frame.ending)
        elif frame.depth >= MAX_DEPTH:
            self._close_container(
                step, Ending("failed", f"nested deeper than {MAX_DEPTH} containers")
            )
        elif opens == "round":
            self._first_round(step, node, frame)
        elif opens == "branch":
            self._open_branches(step, node, frame)
        elif opens == "call":
            self._open_call(step, node, frame, event.config)
        else:
            assert_never(opens)

    def close(self, event: StepPassed | StepFinished) -> None:
        """Close a step: store its outputs and continue from there."""
        state = self.state
        step = state.steps.pop(event.path)
        frame, node = self._locate(step)
        scope = owner(state, frame).scope
        assert scope is not None
        scope[node.id] = event.outputs
        frame.step = ""
        if node.model.gives_verdict or (type(event) is StepFinished and event.tree):
            self._record_progress(frame, node, event)
        if "stdout" in event.outputs:
            frame.previous = node.id
        if event.error:
            state.last_failure = f"step {event.path!r} failed: {event.error}"
        overspent = self._count_cost(node, event.outputs)
        if frame.ending is not None:
            self._complete(frame)
        elif not overspent:
            self._follow(frame, node, event)
        if overspent:
            self.end_run(Ending("failed", overspent))

    def _record_progress(
        self, frame: Frame, node: GraphNode, event: StepPassed | StepFinished
    ) -> None:
        if isinstance(event, StepFinished) and event.tree:
            frame.tree = event.tree
            frame.denied = progress.first_denial(event.outputs) or frame.denied
        if node.model.gives_verdict:
            progress.note_verdict(frame, node, event.handle, event.outputs)

    # -- waiting and pausing -----------------------------------------------------------------

    def wait(self, event: StepWaiting) -> None:
        """Let a step wait, unless that takes longer than its node allows."""
        step = self.state.steps[event.path]
        frame, node = self._locate(step)
        step.waits_since = step.waits_since or step.started_at
        longest = node.config.get("rateLimitMaxWaitMs", DEFAULT_MAX_WAIT_MS)
        shortest = MIN_WAIT_MS * min(60, 2 ** min(step.attempt - 1, 6))
        until = max(event.until, self.now + shortest)
        too_long = isinstance(longest, int | float) and until > step.waits_since + longest
        if frame.ending or too_long:
            reason = f"{event.reason}, longer than this step may wait" if too_long else event.reason
            self._emit(
                StepFinished(
                    path=step.path,
                    node=frame.node_prefix + node.id,
                    node_type=node.type,
                    handle="error",
                    outputs={**event.outputs, "errorMessage": reason},
                    duration_ms=event.duration_ms,
                    error=reason,
                )
            )
            return
        step.status = "waiting"
        step.until = until
        self.request(step)
        overspent = self._count_cost(node, event.outputs)
        if overspent:
            self.end_run(Ending("failed", overspent))

    def end_wait(self, event: WaitOver) -> None:
        """Try a waiting step again."""
        step = self.state.steps.get(event.path)
        if step is not None and step.status == "waiting":
            step.status = "ready"
            self.request(step)

    def exceed_budget(self, event: BudgetExceeded) -> None:
        """Hold a step that the budget does not allow, or end the run."""
        step = self.state.steps.get(event.path)
        if step is not None and self.state.limits.on_budget == "pause" and not self.state.ending:
            self._hold(step, event.reason)
            return
        self.fail_before_step(event.path, Ending("failed", event.reason))

    def fail_before_step(self, path: str, ending: Ending) -> None:
        """End the run because of a step that could not be started."""
        self.end_run(ending)
        step = self.state.steps.get(path)
        if step is not None:
            self._close_unstarted(step, ending.error)

    def _hold(self, step: Step, reason: str) -> None:
        step.status = "held"
        self.state.held = reason

    def _close_unstarted(self, step: Step, reason: str) -> None:
        """Close a step that is not being performed."""
        frame, node = self._locate(step)
        outputs = node.model.with_steady_outputs({"errorMessage": reason})
        node_name = frame.node_prefix + node.id
        self._emit(StepFinished(step.path, node_name, node.type, "error", outputs, error=reason))

    def pause_if_blocked(self) -> None:
        """Finish for now if every step that could continue is held."""
        state = self.state
        containers = {frame.container for frame in state.frames.values()}
        held = [step for step in state.steps.values() if step.status == "held"]
        others = [step for step in state.steps.values() if step.status != "held"]
        if (
            held
            and not state.ending
            and all(step.status == "running" and step.path in containers for step in others)
        ):
            self._emit(RunFinished("paused", state.held, held[0].path, interrupted=True))

    def _count_cost(self, node: GraphNode, outputs: JsonObject) -> str:
        """Add the cost of a step; return why the run must end if that exceeds the budget."""
        spent = outputs.get("costUsd") if node.costs_money else None
        if not isinstance(spent, int | float) or spent <= 0:
            return ""
        self.state.cost_usd += spent
        return self._overspent() if self.state.limits.on_budget == "fail" else ""

    def _overspent(self) -> str:
        total, limit = self.state.cost_usd, self.state.limits.max_cost_usd
        if not limit or total <= limit:
            return ""
        return (
            f"budget: the run spent ${total:.4f}, more than its limit of ${limit:.4f} "
            "(INFLOOP_MAX_RUN_COST_USD, or limits.maxCostUsd in the workflow)"
        )

    # -- walking -----------------------------------------------------------------------------

    def _locate(self, step: Step) -> tuple[Frame, GraphNode]:
        frame = self.state.frames[step.frame]
        return frame, self.program.graphs[frame.graph].nodes[step.node]

    def _enter(self, frame: Frame, node_id: str) -> None:
        """Visit a node, unless a limit of the run is reached."""
        state = self.state
        exceeded = self._over_budget()
        if exceeded:
            self.end_run(Ending("failed", exceeded))
            return
        state.executions += 1
        visit = frame.visits.get(node_id, 0) + 1
        frame.visits[node_id] = visit
        path = f"{frame.path}/{node_id}" if frame.path else node_id
        if visit > 1:
            path += f"#{visit}"
        step = Step(path, node_id, frame.path)
        state.steps[path] = step
        frame.step = path
        self._request_outcome(step, frame, self.program.graphs[frame.graph].nodes[node_id])

    def _is_budget_spent(self) -> bool:
        return self.state.limits.on_budget == "pause" and bool(self._overspent())

    def _over_budget(self) -> str:
        state, limits = self.state, self.state.limits
        if limits.max_node_executions and state.executions >= limits.max_node_executions:
            return (
                f"budget: the run reached its limit of {limits.max_node_executions} node "
                "executions (INFLOOP_MAX_RUN_NODE_EXECUTIONS, or limits.maxNodeExecutions in "
                "the workflow); give the loop a maxIterations or raise the limit"
            )
        spent = state.spent_ms + self.now - state.begun_at
        if limits.max_duration_ms and spent > limits.max_duration_ms:
            return (
                f"budget: the run took {spent} ms, more than its limit of "
                f"{limits.max_duration_ms} ms (INFLOOP_MAX_RUN_DURATION_MS, or "
                "limits.maxDurationMs in the workflow)"
            )
        return ""

    def _follow(self, frame: Frame, node: GraphNode, event: StepPassed | StepFinished) -> None:
        """Continue from a closed step along the edge of its handle."""
        handle = event.handle
        if node.model.is_end:
            self._reach_end(frame, event)
            return
        if frame.kind == "round" and handle in ("met", "break"):
            self._end_round(frame, broke=True)
            return
        if frame.kind == "round" and handle in ("not_met", "continue"):
            self._end_round(frame)
            return
        target = node.edges.get(handle)
        if target is not None:
            self._enter(frame, target)
        elif handle == "error":
            reason = event.error or "it left by its error handle, which has no edge"
            self._fail(frame, Ending("failed", reason, event.path))
        elif frame.kind == "round":
            self._end_round(frame)
        elif handle == "not_met":
            self._end_unmet(frame, node, event)
        else:
            self._end(frame, Ending("succeeded"))

    def _end_unmet(self, frame: Frame, node: GraphNode, event: StepPassed | StepFinished) -> None:
        """End where a condition is not met and nothing follows: a strict workflow has failed."""
        progress.note_verdict(frame, node, event.handle, event.outputs)
        reason = f"its condition was not met ({frame.failure}), and nothing follows `not_met`"
        if self.program.graphs[frame.graph].strict:
            self._fail(frame, Ending("failed", reason, event.path))
            return
        self._emit(Notice(reason, event.path, event.node, "warning"))
        self._end(frame, Ending("succeeded"))

    def _reach_end(self, frame: Frame, event: StepPassed | StepFinished) -> None:
        config = event.config if isinstance(event, StepPassed) else {}
        if config.get("outcome") != "failed":
            self._end(frame, Ending("succeeded"))
            return
        cause = f" ({self.state.last_failure})" if self.state.last_failure else ""
        reason = f"the workflow ended at {event.node!r}, whose outcome is failed{cause}"
        self._end(frame, Ending("failed", reason, event.path))

    # -- requests ----------------------------------------------------------------------------

    def request(self, step: Step) -> None:
        """Request what an open step needs next; this may be repeated after a crash."""
        frame, node = self._locate(step)
        if step.status == "closing":
            self._finish_container(step, node)
        elif step.status == "waiting":
            node_name = frame.node_prefix + node.id
            self.commands.append(Wait(step.path, node_name, node.type, step.until))
        elif step.status == "ready" or node.model.opens is None:
            self._request_outcome(step, frame, node)

    def _request_outcome(self, step: Step, frame: Frame, node: GraphNode) -> None:
        config: JsonObject = node.config
        try:
            config = self._resolved(step, frame, node)
            decision = decide(node.type, config)
        except (TooLong, Unresolved) as reason:
            decision = _failure(str(reason))
        if decision is not None:
            self._pass(step, frame, node, config, decision)
            return
        name, attempt = frame.node_prefix + node.id, step.attempt + 1
        if node.model.opens is not None:
            self._emit(StepStarted(step.path, name, node.type, config, frame.iteration, attempt))
        elif node.costs_money and self._is_budget_spent():
            self._hold(step, self._overspent())
        elif node.model.has_effects:
            self.commands.append(
                Perform(step.path, name, node.type, config, frame.iteration, attempt)
            )
        else:
            self._pass(step, frame, node, config, _failure(f"unknown node type: {node.type}"))

    def _resolved(self, step: Step, frame: Frame, node: GraphNode) -> JsonObject:
        graph = self.program.graphs[frame.graph]

        def warn(field: str, key: str) -> None:
            self._emit(TemplateWarning(step.path, frame.node_prefix + node.id, field, key))

        scope = FrameScope(self.state, frame, graph)
        config = resolve(node, scope, warn)
        for name in node.carried_outputs:
            value = scope.lookup((node.id, name))
            if not isinstance(value, Missing):
                config = {**config, name: value}
        field = node.model.previous_output_field
        if field and frame.previous and config.get(field) is None:
            output = scope.lookup((frame.previous, "stdout"))
            if not isinstance(output, Missing):
                config = {**config, field: output}
        return config

    def _pass(
        self, step: Step, frame: Frame, node: GraphNode, config: JsonObject, decision: Decision
    ) -> None:
        self._emit(
            StepPassed(
                path=step.path,
                node=frame.node_prefix + node.id,
                node_type=node.type,
                config=config,
                handle=decision.handle,
                outputs=node.model.with_steady_outputs(decision.outputs),
                iteration=frame.iteration,
                error=decision.error,
            )
        )

    def _emit(self, event: Event) -> None:
        self.commands.append(Emit(event))

    # -- containers --------------------------------------------------------------------------

    def _first_round(self, step: Step, node: GraphNode, frame: Frame) -> None:
        """Begin a loop, with round 0 if its condition is asked first."""
        if node.config.get("checkFirst") is True and node.check:
            inner = self._open_frame(step, frame, "round", f"{step.path}[0]")
            self._enter(inner, node.check)
        else:
            self._next_round(step, node, frame)

    def _next_round(self, step: Step, node: GraphNode, frame: Frame) -> None:
        limit = node.config.get("maxIterations", 100)
        rounds = int(limit) if isinstance(limit, int | float) else 100
        endless = node.config.get("infinite") is True
        if not node.children or (not endless and step.rounds >= rounds):
            # A loop without a condition only counts, so using up its rounds is its purpose.
            step.exhausted = bool(node.check)
            self._close_container(step, Ending("succeeded"))
            return
        step.rounds += 1
        inner = self._open_frame(step, frame, "round", f"{step.path}[{step.rounds}]")
        inner.iteration = step.rounds
        self._enter(inner, node.children[0])

    def _end_round(self, frame: Frame, *, broke: bool = False) -> None:
        """End a round: break the loop or begin the next one."""
        step = self.state.steps[frame.container]
        around, node = self._locate(step)
        self._close_frame(frame, around)
        if broke:
            step.broke = True
            self._close_container(step, Ending("succeeded"))
            return
        step.failure = frame.failure
        reason = self._no_progress(step, frame, node) if frame.iteration else ""
        if reason:
            step.stuck = True
            self._close_container(step, Ending("failed", reason))
        else:
            self._next_round(step, node, around)

    def _no_progress(self, step: Step, frame: Frame, node: GraphNode) -> str:
        allowed = progress.rounds_allowed(node.config)
        if not allowed:
            return ""
        if frame.tree:
            return progress.end_of_round(step, frame, allowed)
        if step.rounds == 1:
            self._emit(
                Notice(
                    "noProgressLimit has no effect: no step of the round works in a directory with "
                    "snapshots (INFLOOP_SNAPSHOTS)",
                    step.path,
                    step.node,
                    "warning",
                )
            )
        return ""

    def _close_frame(self, frame: Frame, around: Frame) -> None:
        del self.state.frames[frame.path]
        around.tree = frame.tree or around.tree
        around.denied = frame.denied or around.denied

    def _open_branches(self, step: Step, node: GraphNode, frame: Frame) -> None:
        step.branches = {root: Branch() for root in node.roots}
        if not node.roots:
            step.settled = "goal"
            self._close_container(step, Ending("succeeded"))
            return
        for root in node.roots:
            inner = self._open_frame(step, frame, "branch", f"{step.path}{{{root}}}")
            inner.scope = {}
            inner.root = root
            inner.iteration = frame.iteration
        for root in node.roots:
            opened = self.state.frames.get(f"{step.path}{{{root}}}")
            if opened is not None:  # the frames are closed if a limit is reached meanwhile
                self._enter(opened, root)

    def _open_call(self, step: Step, node: GraphNode, frame: Frame, config: JsonObject) -> None:
        called = config.get("workflowId")
        graph = self.program.graphs.get(called) if isinstance(called, str) else None
        if graph is None:
            self._close_container(
                step, Ending("failed", f"workflow {called!r} was not found when the run began")
            )
            return
        supplied = config.get("inputs")
        given = supplied if isinstance(supplied, dict) else {}
        wanted = graph.inputs
        if not self.program.graphs[frame.graph].strict:
            # An input that is not passed is empty where it is used, for older workflows.
            wanted = tuple(
                spec for spec in wanted if spec["name"] in given or spec.get("default") is not None
            )
        try:
            # Inputs that are passed without being declared stay visible, for older workflows.
            inputs = {**given, **resolve_inputs(wanted, given)}
        except InputError as error:
            self._close_container(step, Ending("failed", f"workflow {called!r}: {error}"))
            return
        inner = self._open_frame(step, frame, "call", step.path)
        inner.graph = graph.id
        inner.scope = {}
        inner.inputs = inputs
        inner.node_prefix = f"{frame.node_prefix}{node.id}/"
        self._enter(inner, graph.start)

    def _open_frame(self, step: Step, around: Frame, kind: FrameKind, path: str) -> Frame:
        frame = Frame(
            kind,
            path,
            around.graph,
            container=step.path,
            node_prefix=around.node_prefix,
            depth=around.depth + 1,
        )
        self.state.frames[path] = frame
        return frame

    def _close_container(self, step: Step, ending: Ending) -> None:
        """Finish a container that has no frames left."""
        step.status = "closing"
        step.ending = ending
        self._finish_container(step, self._locate(step)[1])

    def _finish_container(self, step: Step, node: GraphNode) -> None:
        frame = self.state.frames[step.frame]
        ending = step.ending or Ending("succeeded")
        failed = ending.status != "succeeded"
        outputs: JsonObject
        if node.model.opens == "round":
            outputs = {"iterations": step.rounds, "broke": step.broke}
            if step.stuck:
                outputs["noProgress"] = True
            if step.exhausted:
                outputs["exhausted"] = True
            handle = "next"
            if step.exhausted and not failed:
                handle, ending = self._leave_exhausted(step, node, frame)
                failed = ending.status != "succeeded"
        elif node.model.opens == "branch":
            outputs = parallel.outputs(node.config, step)
            handle = parallel.SUCCESS_HANDLE[parallel.mode_of(node.config)]
        else:
            outputs = {"status": ending.status, **step.outputs}
            handle = "next"
        error = ""
        if failed:
            handle, error = "error", ending.error or ending.status
            outputs["errorMessage"] = error
        self._emit(
            StepFinished(
                path=step.path,
                node=frame.node_prefix + node.id,
                node_type=node.type,
                handle=handle,
                outputs=outputs,
                duration_ms=max(0, self.now - step.started_at),
                error=error,
            )
        )

    def _leave_exhausted(self, step: Step, node: GraphNode, frame: Frame) -> tuple[str, Ending]:
        """Return how a loop is left whose condition was not met in any round."""
        if "exhausted" in node.edges:
            return "exhausted", Ending("succeeded")
        last = f": {step.failure}" if step.failure else ""
        reason = f"it used up its {step.rounds} rounds, and its condition was not met{last}"
        if self.program.graphs[frame.graph].strict:
            return "error", Ending("failed", reason)
        self._emit(Notice(reason, step.path, frame.node_prefix + node.id, "warning"))
        return "next", Ending("succeeded")

    # -- endings -----------------------------------------------------------------------------

    def end_run(self, ending: Ending) -> None:
        """End the whole run, unless its ending is decided already."""
        run = self.state.frames[""]
        self._unwind(run, ending)

    def _end(self, frame: Frame, ending: Ending) -> None:
        """End the workflow, branch or call that `frame` belongs to, through its loops."""
        innermost = frame
        frame.ending = ending
        while frame.kind == "round":
            frame = self.state.frames[self.state.steps[frame.container].frame]
            frame.ending = ending
        self._complete(innermost)

    def _fail(self, frame: Frame, ending: Ending) -> None:
        """Fail the frame of a failed step, and the loops around it up to one with an error edge."""
        innermost = frame
        frame.ending = ending
        while frame.kind == "round":
            frame, node = self._locate(self.state.steps[frame.container])
            if "error" in node.edges:
                break
            frame.ending = ending
        self._complete(innermost)

    def _unwind(self, frame: Frame, ending: Ending) -> None:
        """Give `frame` and all frames inside it an ending, and interrupt running effects."""
        if frame.ending is not None:
            return
        frame.ending = ending
        step = self.state.steps.get(frame.step)
        if step is None:
            self._complete(frame)
            return
        for inner in list(self.state.frames.values()):
            if inner.container == step.path:
                self._unwind(inner, Ending(CANCELLED, ending.error))
        if step.status == "held":
            self._close_unstarted(step, ending.error or ending.status)
        elif self._locate(step)[1].model.has_effects:
            self.commands.append(Interrupt(step.path, ending.error or ending.status))

    def _complete(self, frame: Frame) -> None:
        """Complete a frame that has an ending and no open step."""
        ending = frame.ending
        assert ending is not None
        if frame.kind == "run":
            self.settle()
            return
        step = self.state.steps[frame.container]
        around, node = self._locate(step)
        self._close_frame(frame, around)
        if frame.kind == "round":
            self._close_container(step, ending)
        elif frame.kind == "call":
            self._close_call(step, frame, node, ending)
        else:
            self._close_branch(step, frame, around, node, ending)

    def _close_call(self, step: Step, frame: Frame, node: GraphNode, ending: Ending) -> None:
        if ending.status == "succeeded":
            wanted = node.config.get("outputs")
            scope = FrameScope(self.state, frame, self.program.graphs[frame.graph])
            for name, path in wanted.items() if isinstance(wanted, dict) else ():
                value = scope.lookup(path.split(".")) if isinstance(path, str) else MISSING
                if not isinstance(value, Missing):
                    step.outputs[name] = value
        self._close_container(step, _naming_step(ending))

    def _close_branch(
        self, step: Step, frame: Frame, around: Frame, node: GraphNode, ending: Ending
    ) -> None:
        branch = step.branches[frame.root]
        branch.status = ending.status
        if ending.status != CANCELLED:
            branch.outputs = frame.scope or {}
            branch.error = _naming_step(ending).error if ending.status == "failed" else ""
        if not step.settled and around.ending is None:
            if branch.status == "succeeded":
                step.winners.append(frame.root)
            step.settled = parallel.settled_by(node.config, step)
            if step.settled:
                self._cancel_other_branches(step)
        if all(branch.status != "running" for branch in step.branches.values()):
            self._close_container(step, self._parallel_ending(step, around))

    def _cancel_other_branches(self, step: Step) -> None:
        for other in list(self.state.frames.values()):
            if other.container == step.path:
                self._unwind(other, Ending(CANCELLED, "another branch settled the parallel"))

    def _parallel_ending(self, step: Step, around: Frame) -> Ending:
        if around.ending is not None:
            return around.ending
        if step.settled == "goal":
            return Ending("succeeded")
        return Ending("failed", parallel.failure(step))

    def settle(self) -> None:
        """Finish the run if its ending is decided and no step is open."""
        state = self.state
        ending = state.ending
        if ending is None or state.steps or state.finished:
            return
        self._emit(RunFinished(ending.status, _naming_step(ending).error, ending.step))


def _failure(reason: str) -> Decision:
    return Decision("error", {"errorMessage": reason}, reason)


def _naming_step(ending: Ending) -> Ending:
    """Return the ending with the failed step in its error."""
    if ending.status != "failed" or not ending.step or repr(ending.step) in ending.error:
        return ending
    return Ending(ending.status, f"step {ending.step!r} failed: {ending.error}", ending.step)


def public_scope(program: Program, state: State) -> JsonObject:
    """Return the scope of a run for run records and the API."""
    run = state.frames.get("")
    graph: Graph = program.graphs[program.root]
    if run is None or run.scope is None:
        return {}
    scope: JsonObject = {"globals": graph.globals} if graph.globals else {}
    return {**scope, "inputs": run.inputs or {}, **run.scope}
