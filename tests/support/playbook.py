"""Drives the engine by hand: the test decides how each effect ends.

Effects are answered from a table (node id -> outcome), in the order the machine asked for them
unless a test picks another order. Every event is also replayed into a second state, so each test
that uses a playbook proves that replay gives the same state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from infloop.engine.commands import Command, Emit, Interrupt, Perform, Wait
from infloop.engine.graph import Definition, compile_program
from infloop.engine.machine import advance, outstanding, public_scope
from infloop.engine.state import State, decode_state, encode_state
from infloop.model.events import (
    Event,
    RunBudget,
    RunFinished,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    TemplateWarning,
    WaitOver,
)

Outcome = tuple[str, dict[str, Any]]
Answer = Outcome | Callable[[Perform], Outcome]


class Playbook:
    """One run of the machine under a test's control."""

    def __init__(
        self,
        root: dict[str, Any],
        *called: dict[str, Any],
        answers: Mapping[str, Answer] | None = None,
        inputs: dict[str, Any] | None = None,
        limits: RunBudget | None = None,
        step_ms: int = 1,
    ) -> None:
        self.definition = Definition(root["id"], {each["id"]: each for each in (root, *called)})
        self.program = compile_program(self.definition)
        self.answers = dict(answers or {})
        self.state = State()
        self.replayed = State()
        self.events: list[Event] = []
        self.queue: deque[Command] = deque()
        self.waiting: dict[str, Perform] = {}
        self.timers: dict[str, Wait] = {}
        self.interrupted: list[str] = []
        self.now = 1_000
        self.step_ms = step_ms
        self.record(
            RunStarted(root["id"], root["id"], "hash", inputs or {}, "/", limits or RunBudget())
        )

    def record(self, event: Event) -> None:
        self.now += self.step_ms
        self.events.append(event)
        self.state, commands = advance(self.program, self.state, event, self.now)
        self.replayed, _ = advance(self.program, self.replayed, event, self.now)
        assert encode_state(self.state) == encode_state(self.replayed)
        self.queue.extend(commands)

    def settle(self) -> Playbook:
        """Carry out commands until only effects without an answer are left."""
        while self.queue or self._answer():
            if not self.queue:
                continue
            match self.queue.popleft():
                case Emit(event):
                    self.record(event)
                case Perform() as perform:
                    self.waiting[perform.path] = perform
                    self.record(
                        StepStarted(
                            perform.path,
                            perform.node,
                            perform.node_type,
                            perform.config,
                            perform.iteration,
                            perform.attempt,
                        )
                    )
                case Wait() as wait:
                    self.timers[wait.path] = wait
                case Interrupt(path):
                    self.interrupted.append(path)
                    if path in self.waiting:
                        self.finish(path, "error", {}, error="cancelled")
                    elif path in self.timers:
                        timer = self.timers.pop(path)
                        ended: Any = (path, timer.node, timer.node_type, "error", {}, 1, "stopped")
                        self.record(StepFinished(*ended))
        return self

    def _answer(self) -> bool:
        """Let the first waiting effect that has an answer finish."""
        for path, perform in list(self.waiting.items()):
            answer = self.answers.get(perform.node, self.answers.get(path))
            if answer is not None:
                handle, outputs = answer(perform) if callable(answer) else answer
                self.finish(path, handle, outputs)
                return True
        return False

    def finish(
        self,
        path: str,
        handle: str,
        outputs: dict[str, Any] | None = None,
        error: str = "",
        tree: str = "",
    ) -> None:
        perform = self.waiting.pop(path)
        if handle == "error" and not error:
            error = "it broke"
        self.record(
            StepFinished(
                path, perform.node, perform.node_type, handle, outputs or {}, 1, error, tree
            )
        )

    def defer(self, path: str, until: int, outputs: dict[str, Any] | None = None) -> Playbook:
        """Let a running effect say that it must be tried again later."""
        perform = self.waiting.pop(path)
        self.record(
            StepWaiting(path, perform.node, perform.node_type, until, "rate limited", outputs or {})
        )
        return self.settle()

    def wake(self, path: str) -> Playbook:
        """Let the time come that a step waits for."""
        wait = self.timers.pop(path)
        self.now = max(self.now, wait.until)
        self.record(WaitOver(path))
        return self.settle()

    def stop(self) -> Playbook:
        self.record(StopRequested("enough"))
        return self.settle()

    def crash(self) -> Playbook:
        """Forget everything but the state, as a restart does, and go on."""
        self.state = decode_state(encode_state(self.state))
        self.waiting.clear()
        self.timers.clear()
        self.queue = deque(outstanding(self.program, self.state, self.now))
        return self.settle()

    @property
    def result(self) -> RunFinished:
        last = self.events[-1]
        assert isinstance(last, RunFinished), f"still going: {last}"
        assert not self.state.steps
        assert set(self.state.frames) == {""}
        return last

    @property
    def scope(self) -> dict[str, Any]:
        return public_scope(self.program, self.state)

    @property
    def paths(self) -> list[str]:
        """The steps in the order they began."""
        return [e.path for e in self.events if isinstance(e, StepPassed | StepStarted)]

    @property
    def warnings(self) -> list[str]:
        return [e.missing_key for e in self.events if isinstance(e, TemplateWarning)]
