"""The state of a run for people: its steps, cost and outcome, folded from its events.

- A run view is a tree. Frames (the run, a round of a loop, a branch, a called workflow) hold steps,
  and container steps hold frames.
- Of a loop it keeps the first and the last rounds and counts the others.
- Of an output it keeps the beginning and the size.

So a run of 100,000 rounds needs no more memory than one of ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, assert_never

import msgspec

from infloop.application.runs.cost import RunCost
from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Notice,
    Output,
    Recorded,
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
    TreeSaved,
    WaitOver,
    WorkspaceFetched,
)
from infloop.model.nodes import node_model
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infloop.model.nodes import FrameKind
    from infloop.model.values import JsonObject

ROUNDS_AT_EACH_END = 3
STEPS_AT_EACH_END = 20
PREVIEW_CHARS = 400
OUTPUT_TAIL_CHARS = 4_000
NOTICES_AT_EACH_END = 20
MAX_DENIALS = 5

Item = TypeVar("Item")


class HeadAndTail(Generic[Item]):
    """The first and the last items of a sequence, and how many there are between them."""

    __slots__ = ("_limit", "first", "last", "omitted")

    def __init__(self, at_each_end: int) -> None:
        self._limit = at_each_end
        self.first: list[Item] = []
        self.last: list[Item] = []
        self.omitted = 0

    def append(self, item: Item) -> None:
        if not self.omitted and len(self.first) < self._limit:
            self.first.append(item)
            return
        self.last.append(item)
        if len(self.last) > self._limit:
            del self.last[0]
            self.omitted += 1

    def newest(self) -> Item | None:
        kept = self.last or self.first
        return kept[-1] if kept else None

    def skip(self, count: int) -> None:
        """Count items that are not available; later items belong to the tail."""
        self.omitted += count

    def __iter__(self) -> Iterator[Item]:
        yield from self.first
        yield from self.last

    def __len__(self) -> int:
        return len(self.first) + self.omitted + len(self.last)


class Preview(NamedTuple):
    """The beginning of an output, and its full length in characters."""

    text: str
    size: int

    @property
    def is_complete(self) -> bool:
        return len(self.text) == self.size


class FrameView(msgspec.Struct):
    """A sequence of steps: the run itself, a round, a branch or a called workflow."""

    path: str
    name: str = ""
    container: StepView | None = None
    iteration: int = 0
    latest: StepView | None = None
    steps: HeadAndTail[StepView] = msgspec.field(
        default_factory=lambda: HeadAndTail(STEPS_AT_EACH_END)
    )


_NO_FRAMES: HeadAndTail[FrameView] = HeadAndTail(0)


class StepView(msgspec.Struct):
    """One visit of a node.

    `uses` describes what it works with: a provider, a command. `next_path` is the step after it.
    `tokens` are those of its input and its output.
    """

    path: str
    node: str
    node_type: str
    frame: FrameView
    seq: int
    started_at: int
    attempt: int = 1
    running: bool = True
    last_seq: int = 0
    handle: str = ""
    error: str = ""
    duration_ms: int = 0
    cost_usd: float | None = None
    tokens: tuple[int, int] = (0, 0)
    uses: str = ""
    waiting_until: int = 0
    next_path: str = ""
    max_rounds: int | None = None
    outputs: dict[str, Preview] = msgspec.field(default_factory=dict)
    frames: HeadAndTail[FrameView] = _NO_FRAMES
    output_tail: str = ""
    changed: TreeSaved | None = None

    @property
    def opens(self) -> FrameKind | None:
        """What kind of frames it holds: rounds, branches, a call; None for a single step."""
        return node_model(self.node_type).opens

    @property
    def rounds(self) -> int:
        """How many rounds of a loop have started; a check before the first one is none."""
        newest = self.frames.last or self.frames.first
        return newest[-1].iteration if newest else 0

    def loops(self) -> list[tuple[StepView, int]]:
        """Return the loops around this step, outermost first, each with its round."""
        found: list[tuple[StepView, int]] = []
        frame: FrameView | None = self.frame
        while frame is not None and frame.container is not None:
            if frame.container.opens == "round":
                found.append((frame.container, frame.iteration))
            frame = frame.container.frame
        return found[::-1]


class RunView:
    """A run, rebuilt from its events in order.

    `active` are the steps that have started and not finished, by path. `steps_not_listed` were
    finished before the first event that this view has. `denials` are the first different things
    that agents were not allowed to do. `cost` is set from the ledger; `steps_cost_usd` is what the
    steps of this record say. `max_cost_usd` is what it may cost, 0 without a
    limit. `new_workflow` says whether the run goes on with another version of its workflow than it
    began with.
    """

    def __init__(self) -> None:
        self.root = FrameView("")
        self.active: dict[str, StepView] = {}
        self._frames: dict[str, FrameView] = {"": self.root}
        self.started: RunStarted | None = None
        self.started_at = 0
        self.finished: RunFinished | None = None
        self.finished_at = 0
        self.last_at = 0
        self.resumed_at: list[int] = []
        self.isolation = self.egress = ""
        self.fetched: WorkspaceFetched | None = None
        self.max_cost_usd = 0.0
        self.new_workflow = False
        self.stop: StopRequested | None = None
        self.stopped_at = 0
        self.steps_done = 0
        self.steps_not_listed = 0
        self.changed = False
        self.in_worktree = False
        self.steps_cost_usd: float | None = None
        self.cost = RunCost()
        self.output_step: StepView | None = None
        self.last_finished: StepView | None = None
        self.last_failed: StepView | None = None
        self.missing_references: HeadAndTail[TemplateWarning] = HeadAndTail(NOTICES_AT_EACH_END)
        self.notices: HeadAndTail[Notice] = HeadAndTail(NOTICES_AT_EACH_END)
        self.denials: list[str] = []

    def apply_all(self, items: Iterable[Recorded]) -> None:
        for item in items:
            self.apply(item)

    def apply(self, item: Recorded) -> None:
        """Apply the next event, or the next piece of output."""
        event = item.event
        self.last_at = item.time
        match event:
            case StepPassed() | StepFinished():
                self._finish(item, event)
            case StepStarted():
                self._start(item, event)
            case Output():
                self._add_output(event)
            case RunStarted():
                self.started, self.started_at = event, item.time
                self.isolation, self.egress = event.isolation, event.egress
                self.max_cost_usd = event.limits.max_cost_usd
            case WorkspaceFetched():
                self.fetched = event
            case RunResumed():
                self.finished = None
                self.resumed_at.append(item.time)
                self.max_cost_usd = event.limits.max_cost_usd
                self.new_workflow = self.new_workflow or bool(event.definition)
                self.isolation = event.isolation or self.isolation
                self.egress = event.egress or self.egress
            case RunFinished():
                self.finished, self.finished_at = event, item.time
            case StepWaiting():
                self._wait(event)
            case StopRequested():
                self.stop, self.stopped_at = event, item.time
            case TemplateWarning():
                self.missing_references.append(event)
            case Notice():
                self._add_notice(event)
            case TreeSaved(when="after", path=path) if path in self.active:
                self.active[path].changed = event
                if event.files and node_model(self.active[path].node_type).makes_result:
                    self.changed = True
            case BudgetExceeded() | GuardFailed() | WaitOver() | Remark():
                pass
            case _:
                assert_never(event)

    def positions(self) -> list[StepView]:
        """Return where the run is: the steps in progress, or else the innermost container."""
        working = [step for step in self.active.values() if step.opens is None]
        return working or list(self.active.values())[-1:]

    def steps(self) -> Iterator[StepView]:
        """Yield every step that was kept, in the order of the tree."""
        yield from _below(self.root)

    def failed_path(self) -> str:
        """Return the path of the step that failed the run, or else of its last step."""
        named = self.finished.failed_step if self.finished else ""
        if named and (self.last_failed is None or not self._is_end(named)):
            return named
        step = self.last_failed or self.last_finished
        return step.path if step else ""

    def _is_end(self, path: str) -> bool:
        """Say whether this is the End to which a failure led: it did not fail itself."""
        last = self.last_finished
        return last is not None and last.path == path and node_model(last.node_type).is_end

    # -- steps -------------------------------------------------------------------------------

    def _add_notice(self, event: Notice) -> None:
        if event.topic == "permissions":
            if len(self.denials) < MAX_DENIALS and event.message not in self.denials:
                self.denials.append(event.message)
        elif event.level != "info":
            self.notices.append(event)

    def _add_output(self, event: Output) -> None:
        step = self.active.get(event.path)
        if step is not None:
            step.output_tail = (step.output_tail + event.text)[-OUTPUT_TAIL_CHARS:]
            self.output_step = step

    def _start(self, item: Recorded, event: StepStarted) -> None:
        again = self.active.get(event.path)
        if again is not None:  # after a crash, steps in progress start again
            again.attempt, again.started_at, again.waiting_until = event.attempt, item.time, 0
            return
        step = self._open(item, event)
        # Branches run at the same time, so all of them are needed.
        step.frames = HeadAndTail(ROUNDS_AT_EACH_END if step.opens == "round" else 1_000_000)
        step.attempt = event.attempt
        works_with = node_model(event.node_type).works_with(event.config)
        step.uses = f"with {works_with}" if works_with else ""
        step.max_rounds = _max_rounds(event.config)
        self.active[event.path] = step

    def _wait(self, event: StepWaiting) -> None:
        step = self.active.get(event.path)
        if step is not None:
            step.waiting_until = event.until

    def _open(self, item: Recorded, event: StepStarted | StepFinished | StepPassed) -> StepView:
        frame = self._frame(event.path)
        step = StepView(event.path, event.node, event.node_type, frame, item.seq, item.time)
        if frame.latest is not None:
            frame.latest.next_path = event.path
        frame.latest = step
        frame.steps.append(step)
        return step

    def _frame(self, path: str) -> FrameView:
        """Return the frame that contains the step at `path`; its first step opens it."""
        inside = path.rpartition("/")[0]
        if inside in self._frames:
            return self._frames[inside]
        container_path, name, iteration = _read_frame(inside)
        container = self.active.get(container_path)
        if container is None:
            return self.root
        before = container.frames.newest()
        if container.opens == "round" and before is not None:
            self._frames.pop(before.path, None)
        frame = FrameView(inside, name, container, iteration)
        container.frames.append(frame)
        self._frames[inside] = frame
        return frame

    def _finish(self, item: Recorded, event: StepFinished | StepPassed) -> None:
        step = self.active.pop(event.path, None) or self._open(item, event)
        for frame in step.frames:
            self._frames.pop(frame.path, None)
        step.running = False
        step.last_seq = item.seq
        step.handle, step.error = event.handle, event.error
        step.duration_ms = event.duration_ms if isinstance(event, StepFinished) else 0
        step.outputs = {name: preview(value) for name, value in event.outputs.items()}
        self.in_worktree = self.in_worktree or "worktreePath" in step.outputs
        self._count(step, event.outputs)

    def _count(self, step: StepView, outputs: JsonObject) -> None:
        self.steps_done += 1
        self.last_finished = step
        if step.error and not self._failed_inside(step):
            self.last_failed = step
        cost = outputs.get("costUsd")
        if isinstance(cost, int | float) and step.opens is None:
            step.cost_usd = float(cost)
            self.steps_cost_usd = (self.steps_cost_usd or 0.0) + step.cost_usd
        step.tokens = step_tokens(outputs)

    def _failed_inside(self, step: StepView) -> bool:
        """Say whether the last failure was inside this container, which only reports it."""
        last = self.last_failed
        return last is not None and last.path.startswith(
            (f"{step.path}[", f"{step.path}{{", f"{step.path}/")
        )


def step_tokens(outputs: JsonObject) -> tuple[int, int]:
    """Return the tokens of input and output that a step says it used."""
    said = outputs.get("tokens")
    counts = said if isinstance(said, dict) else {}
    read, written = counts.get("input"), counts.get("output")
    return (
        read if isinstance(read, int) else 0,
        written if isinstance(written, int) else 0,
    )


def preview(value: object) -> Preview:
    text = value if type(value) is str else as_text(value)  # type: ignore[arg-type]
    return Preview(text[:PREVIEW_CHARS], len(text))


def _below(frame: FrameView) -> Iterator[StepView]:
    for step in frame.steps:
        yield step
        for inner in step.frames:
            yield from _below(inner)


def _max_rounds(config: JsonObject) -> int | None:
    limit = config.get("maxIterations")
    if config.get("infinite") is True or not isinstance(limit, int | float):
        return None
    return int(limit)


def _read_frame(path: str) -> tuple[str, str, int]:
    """Return a frame's container, its name, and its round: `loop[3]`, `parallel{left}`, `call`."""
    if path.endswith("]"):
        container, _, number = path[:-1].rpartition("[")
        counted = len(number) < 10 and number.isdecimal()
        return container, f"round {number}", int(number) if counted else 0
    if path.endswith("}"):
        container, _, root = path[:-1].rpartition("{")
        return container, f"branch {root}", 0
    return path, "", 0
