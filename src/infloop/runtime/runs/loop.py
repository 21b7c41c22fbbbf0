"""One run, from its first command to its last event.

Append, then act: a step's start is durable before its effect begins. Effects of several branches
run side by side; their outcomes come back through one inbox, so the machine sees one event at a
time. A long stretch of steps without effects gives way to the rest of the process every so often,
which is why it can always be stopped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, assert_never

from infloop.engine.commands import Command, Emit, Interrupt, Perform, Wait
from infloop.engine.machine import advance, public_scope
from infloop.engine.state import encode_state
from infloop.model.events import (
    Event,
    GuardFailed,
    Output,
    RunFinished,
    StepStarted,
    StopRequested,
)
from infloop.runtime.runs.effects import Effects

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from infloop.engine.graph import Program
    from infloop.engine.state import State
    from infloop.model.events import RunBudget
    from infloop.model.values import JsonObject
    from infloop.nodes.base import Outcome
    from infloop.runtime.runs.recorder import Recorder
    from infloop.store.interfaces.run_log import RunLog

    Say = Callable[[str, str], None]
    Performer = Callable[[Perform, Say], Awaitable[Outcome]]

BURST = 256
CHECKPOINT_EVENTS = 2_000


class Glance(NamedTuple):
    """What a live run is doing at this moment."""

    nodes: tuple[str, ...]
    rounds: dict[str, int]
    scope: JsonObject


class RunLoop:
    """Drives one run. Everything it decides is in the engine; everything it does is a command."""

    def __init__(
        self,
        program: Program,
        state: State,
        run_log: RunLog,
        tidy_up: Callable[[], Awaitable[None]],
        clean: Callable[[Event], Event],
    ) -> None:
        self._program = program
        self._state = state
        self._run_log = run_log
        self._tidy_up = tidy_up
        self._clean = clean
        self._commands: deque[Command] = deque()
        self._inbox: deque[Event] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._stopping = False
        self._failure: BaseException | None = None
        self._since_checkpoint = 0
        self._checkpoint_after = CHECKPOINT_EVENTS
        self._effects: Effects
        self.recorder: Recorder
        self.perform: Performer

    @property
    def limits(self) -> RunBudget:
        """What the run may use up."""
        return self._state.limits

    def glance(self) -> Glance:
        """Return which nodes are open, in which round each loop is, and the scope so far."""
        steps = self._state.steps.values()
        rounds = {step.node: step.rounds for step in steps if step.rounds}
        nodes = tuple(step.node for step in steps if step.node not in rounds)
        return Glance(nodes, rounds, public_scope(self._program, self._state))

    def fail(self, error: BaseException) -> None:
        """The journal refuses to take more: the run cannot go on in this process."""
        self._failure = self._failure or error
        self._wake()

    def stop(self, reason: str) -> None:
        """Ask for the run to be cancelled; asking again changes nothing."""
        if not self._stopping:
            self._stopping = True
            self.post(StopRequested(reason))

    def give_up(self, reason: str) -> None:
        """Have the run fail, and its steps interrupted, unless it is ending already."""
        if not self._stopping:
            self._stopping = True
            self.post(GuardFailed(reason, ""))

    def post(self, event: Event) -> None:
        """Hand in an event from outside, as a step of the run or somebody else tells it."""
        self._inbox.append(self._clean(event))
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def _something(self) -> None:
        """Wait until something has arrived."""
        if not self._inbox and self._failure is None:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival

    async def drive(self, commands: Iterable[Command]) -> RunFinished:
        """Carry out `commands` and all that follows from them; return how the run finished."""
        self._commands.extend(commands)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._effects = Effects(tasks, self._act, self.post, self.recorder.now_ms)
                try:
                    return await self._drive()
                finally:
                    self._effects.close()
        except BaseExceptionGroup as group:  # whatever went wrong first is the reason
            raise group.exceptions[0] from None

    async def _drive(self) -> RunFinished:
        while True:
            due = self._work_off()
            if isinstance(due, RunFinished):
                return await self._settle(due)
            if due:
                await self._breathe()
            else:
                await self._something()
            self._raise_failure()
            self._take_inbox()

    def _work_off(self) -> RunFinished | bool:
        """Carry out commands, so many at once; return whether more are due, or the run's end."""
        done = 0
        while self._commands:
            command = self._commands.popleft()
            match command:
                case Emit(RunFinished() as event):
                    self._commands.appendleft(command)  # it takes more than a moment
                    return event
                case Emit(event):
                    self._record(event)
                case Perform():
                    self._record(_start_of(command))
                    self._effects.plan(command)
                case Wait():
                    self._effects.wait(command)
                case Interrupt(path, reason):
                    self._effects.interrupt(path, reason)
                case _:
                    assert_never(command)
            done += 1
            if done == BURST:
                return True
        self._effects.begin_when(self.recorder.write())
        self._maybe_checkpoint()
        return False

    async def _breathe(self) -> None:
        """Let the rest of the process work."""
        self._effects.begin_when(self.recorder.write())
        await self.recorder.durable()
        self._maybe_checkpoint()

    def _take_inbox(self) -> None:
        while self._inbox:
            self._record(self._inbox.popleft())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _record(self, event: Event) -> None:
        if self._state.finished:
            return
        now = self.recorder.event(event)
        self._state, commands = advance(self._program, self._state, event, now)
        self._commands.extend(commands)
        self._since_checkpoint += 1

    def _maybe_checkpoint(self) -> None:
        if self._since_checkpoint < self._checkpoint_after:
            return
        data = encode_state(self._state)
        self._since_checkpoint = 0
        # A large state is saved less often, so that checkpoints stay small beside the events.
        self._checkpoint_after = max(CHECKPOINT_EVENTS, len(data) // 16)
        self._run_log.checkpoint(self.recorder.run_id, self.recorder.epoch, self.recorder.seq, data)

    def _act(self, perform: Perform) -> Awaitable[Outcome]:
        def say(text: str, stream: str) -> None:
            if text:
                self.recorder.output(
                    Output(perform.path, perform.node, text, stream, perform.iteration)  # type: ignore[arg-type]
                )

        return self.perform(perform, say)

    # -- the end -----------------------------------------------------------------------------

    async def _settle(self, event: RunFinished) -> RunFinished:
        """Record the end, once what the run leaves behind is in order."""
        self._commands.popleft()
        await self._tidy_up()
        self._take_inbox()
        self._record(event)
        scope: JsonObject = public_scope(self._program, self._state)
        await asyncio.shield(self.recorder.write(scope))
        return event


def _start_of(perform: Perform) -> StepStarted:
    return StepStarted(
        perform.path,
        perform.node,
        perform.node_type,
        perform.config,
        perform.iteration,
        perform.attempt,
    )
