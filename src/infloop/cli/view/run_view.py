"""What happened in a run, folded from its events to what a person wants to see.

A story is a tree: frames (the run, a round of a loop, a branch, a called workflow) hold steps, and
container steps hold frames. It keeps the first and the last rounds of a loop and counts those
between, and of each output a short beginning, so that a run of 100,000 rounds costs no more to
show than one of ten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, assert_never

from infloop.cli.view.figures import sum_of_money
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
SAID_CHARS = 4_000
REMARKS = 20

Item = TypeVar("Item")


class Ends(Generic[Item]):
    """The beginning and the end of a sequence; what lies between is counted."""

    __slots__ = ("_limit", "first", "last", "omitted")

    def __init__(self, at_each_end: int) -> None:
        self._limit = at_each_end
        self.first: list[Item] = []
        self.last: list[Item] = []
        self.omitted = 0

    def append(self, item: Item) -> None:
        """Take in the next item."""
        if not self.omitted and len(self.first) < self._limit:
            self.first.append(item)
            return
        self.last.append(item)
        if len(self.last) > self._limit:
            del self.last[0]
            self.omitted += 1

    def newest(self) -> Item | None:
        """Return the last item."""
        kept = self.last or self.first
        return kept[-1] if kept else None

    def skip(self, count: int) -> None:
        """Count items that nobody can show any more; what comes now belongs to the end."""
        self.omitted += count

    def __iter__(self) -> Iterator[Item]:
        yield from self.first
        yield from self.last

    def __len__(self) -> int:
        return len(self.first) + self.omitted + len(self.last)


class Preview(NamedTuple):
    """The beginning of an output, and how long it is in all."""

    text: str
    size: int

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return len(self.text) == self.size


@dataclass(slots=True)
class Frame:
    """Steps that follow each other: the run itself, a round, a branch or a call."""

    path: str
    name: str = ""
    container: Step | None = None
    iteration: int = 0
    latest: Step | None = None
    steps: Ends[Step] = field(default_factory=lambda: Ends(STEPS_AT_EACH_END))


NO_FRAMES: Ends[Frame] = Ends(0)


@dataclass(slots=True)
class Step:
    """One visit of a node."""

    path: str
    node: str
    node_type: str
    frame: Frame
    seq: int
    started_at: int
    attempt: int = 1
    running: bool = True
    last_seq: int = 0
    handle: str = ""
    error: str = ""
    duration_ms: int = 0
    cost_usd: float | None = None
    means: str = ""
    waits_until: int = 0
    followed_by: str = ""
    rounds_at_most: int | None = None
    outputs: dict[str, Preview] = field(default_factory=dict)
    frames: Ends[Frame] = NO_FRAMES
    said: str = ""
    changed: TreeSaved | None = None

    @property
    def opens(self) -> FrameKind | None:
        """What kind of frames it holds: rounds, branches, a call; None for a single step."""
        return node_model(self.node_type).opens

    @property
    def rounds(self) -> int:
        """How many rounds a loop has begun."""
        return len(self.frames)

    def loops(self) -> list[tuple[Step, int]]:
        """Return the loops around this step, outermost first, each with its round."""
        found: list[tuple[Step, int]] = []
        frame: Frame | None = self.frame
        while frame is not None and frame.container is not None:
            if frame.container.opens == "round":
                found.append((frame.container, frame.iteration))
            frame = frame.container.frame
        return found[::-1]


class Story:
    """A run, told by its events in order."""

    def __init__(self) -> None:
        self.root = Frame("")
        self.active: dict[str, Step] = {}
        self._frames: dict[str, Frame] = {"": self.root}
        self.started: RunStarted | None = None
        self.started_at = 0
        self.finished: RunFinished | None = None
        self.finished_at = 0
        self.last_at = 0
        self.resumed_at: list[int] = []
        self.isolation = self.egress = ""
        self.stop: StopRequested | None = None
        self.stopped_at = 0
        self.steps_done = 0
        self.untold = 0
        self.changed = False
        self.in_worktree = False
        self.cost_usd: float | None = None
        self.cost_is_incomplete = False
        self.speaker: Step | None = None
        self.last_finished: Step | None = None
        self.last_failed: Step | None = None
        self.missing: Ends[TemplateWarning] = Ends(REMARKS)
        self.notices: Ends[Notice] = Ends(REMARKS)

    def tell(self, items: Iterable[Recorded]) -> None:
        """Take in what happened next."""
        for item in items:
            self.add(item)

    def add(self, item: Recorded) -> None:
        """Take in one event, or a piece of output."""
        event = item.event
        self.last_at = item.time
        match event:
            case StepPassed() | StepFinished():
                self._finish(item, event)
            case StepStarted():
                self._begin(item, event)
            case Output():
                self._hear(event)
            case RunStarted():
                self.started, self.started_at = event, item.time
                self.isolation, self.egress = event.isolation, event.egress
            case RunResumed():
                self.finished = None
                self.resumed_at.append(item.time)
                self.isolation = event.isolation or self.isolation
                self.egress = event.egress or self.egress
            case RunFinished():
                self.finished, self.finished_at = event, item.time
            case StepWaiting():
                self._wait(event)
            case StopRequested():
                self.stop, self.stopped_at = event, item.time
            case TemplateWarning():
                self.missing.append(event)
            case Notice():
                if event.level != "info":
                    self.notices.append(event)
            case TreeSaved(when="after", path=path) if path in self.active:
                self.active[path].changed = event
                self.changed = self.changed or event.files > 0
            case BudgetExceeded() | GuardFailed() | WaitOver() | Remark():
                pass
            case _:
                assert_never(event)

    @property
    def cost(self) -> str:
        """What it cost, in words; nothing if nobody was asked anything."""
        if self.cost_usd is None and not self.cost_is_incomplete:
            return ""
        told = sum_of_money(self.cost_usd or 0.0, incomplete=self.cost_is_incomplete)
        return f"{told} (incomplete)" if self.cost_is_incomplete and self.cost_usd else told

    def positions(self) -> list[Step]:
        """Return where the run is: the steps being performed, or else the innermost container."""
        working = [step for step in self.active.values() if step.opens is None]
        return working or list(self.active.values())[-1:]

    def steps(self) -> Iterator[Step]:
        """Yield every step that is kept, in the order of the tree."""
        yield from _below(self.root)

    # -- steps -------------------------------------------------------------------------------

    def _hear(self, event: Output) -> None:
        step = self.active.get(event.path)
        if step is not None:
            step.said = (step.said + event.text)[-SAID_CHARS:]
            self.speaker = step

    def _begin(self, item: Recorded, event: StepStarted) -> None:
        again = self.active.get(event.path)
        if again is not None:  # after a crash, what was in flight is begun again
            again.attempt, again.started_at, again.waits_until = event.attempt, item.time, 0
            return
        step = self._open(item, event)
        # Branches go on side by side, so all of them are needed.
        step.frames = Ends(ROUNDS_AT_EACH_END if step.opens == "round" else 1_000_000)
        step.attempt = event.attempt
        works_with = node_model(event.node_type).works_with(event.config)
        step.means = f"with {works_with}" if works_with else ""
        step.rounds_at_most = _rounds_at_most(event.config)
        self.active[event.path] = step

    def _wait(self, event: StepWaiting) -> None:
        step = self.active.get(event.path)
        if step is not None:
            step.waits_until = event.until

    def _open(self, item: Recorded, event: StepStarted | StepFinished | StepPassed) -> Step:
        frame = self._frame(event.path)
        step = Step(event.path, event.node, event.node_type, frame, item.seq, item.time)
        if frame.latest is not None:
            frame.latest.followed_by = event.path
        frame.latest = step
        frame.steps.append(step)
        return step

    def _frame(self, path: str) -> Frame:
        """Return the frame that a step's path leads to, opening it with its first step."""
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
        frame = Frame(inside, name, container, iteration)
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

    def _count(self, step: Step, outputs: JsonObject) -> None:
        self.steps_done += 1
        self.last_finished = step
        if step.error and not self._blamed_inside(step):
            self.last_failed = step
        cost = outputs.get("costUsd")
        if isinstance(cost, int | float) and step.opens is None:
            step.cost_usd = float(cost)
            self.cost_usd = (self.cost_usd or 0.0) + step.cost_usd

    def _blamed_inside(self, step: Step) -> bool:
        """Say whether the last failure is one inside this container, which only passes it on."""
        last = self.last_failed
        return last is not None and last.path.startswith(
            (f"{step.path}[", f"{step.path}{{", f"{step.path}/")
        )


def preview(value: object) -> Preview:
    """Return the beginning of an output as text."""
    text = value if type(value) is str else as_text(value)  # type: ignore[arg-type]
    return Preview(text[:PREVIEW_CHARS], len(text))


def _below(frame: Frame) -> Iterator[Step]:
    for step in frame.steps:
        yield step
        for inner in step.frames:
            yield from _below(inner)


def _rounds_at_most(config: JsonObject) -> int | None:
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
