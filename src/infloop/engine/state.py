"""The state of a run.

- A `Frame` is a sequence of steps with one step open at a time.
- A `Step` is a visit of a node. A container step (loop, parallel, subworkflow) owns frames.
- The steps of a frame write their outputs to the nearest frame with a scope.
- Closed steps and frames are removed.

The whole state is JSON: a checkpoint is `encode_state(state)`. The names of its fields are stored,
so they must not change.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias

import msgspec

from infloop.model.events import DirectoryId, RunBudget, Status
from infloop.model.values import JsonObject

Scope: TypeAlias = dict[str, JsonObject]
EndStatus: TypeAlias = Literal["succeeded", "failed", "cancelled"]
FrameKind: TypeAlias = Literal["run", "round", "branch", "call"]
StepStatus: TypeAlias = Literal["ready", "running", "waiting", "held", "closing"]
BranchStatus: TypeAlias = Literal["running", "succeeded", "failed", "cancelled"]


class Ending(msgspec.Struct, omit_defaults=True):
    """How a frame ended, or will end when its open step has closed."""

    status: EndStatus
    error: str = ""
    step: str = ""


class Frame(msgspec.Struct, omit_defaults=True):
    """A sequence of steps: the run, a round of a loop, a branch of a parallel, a call."""

    kind: FrameKind
    path: str
    graph: str
    container: str = ""
    node_prefix: str = msgspec.field(default="", name="shown_prefix")
    root: str = ""
    iteration: int = 0
    depth: int = 0
    scope: Scope | None = None
    inputs: JsonObject | None = None
    visits: dict[str, int] = {}
    step: str = ""
    previous: str = ""
    tree: str = ""
    verdict: str = ""
    failure: str = ""
    denied: str = ""
    ending: Ending | None = None


class Branch(msgspec.Struct, omit_defaults=True):
    """The result of one branch of a parallel."""

    status: BranchStatus = "running"
    error: str = ""
    outputs: Scope = {}


class Step(msgspec.Struct, omit_defaults=True):
    """A node that has been entered and has not finished.

    A `waiting` step waits for a time; a `held` step waits for a higher budget. A loop counts how
    many rounds in a row ended in the same way (`unchanged`), compared by their `mark`. It is
    `exhausted` when its rounds are used up and its condition (`failure`) was still not met.
    """

    path: str
    node: str
    frame: str
    status: StepStatus = "ready"
    attempt: int = 0
    started_at: int = 0
    until: int = 0
    waits_since: int = 0
    rounds: int = 0
    broke: bool = False
    mark: str = ""
    unchanged: int = 0
    stuck: bool = False
    exhausted: bool = False
    failure: str = ""
    branches: dict[str, Branch] = {}
    winners: list[str] = []
    settled: Literal["", "goal", "error"] = ""
    outputs: JsonObject = {}
    ending: Ending | None = None


class State(msgspec.Struct, omit_defaults=True):
    """Everything that decides what a run does next."""

    frames: dict[str, Frame] = {}
    steps: dict[str, Step] = {}
    limits: RunBudget = RunBudget()
    executions: int = 0
    cost_usd: float = 0.0
    begun_at: int = 0
    spent_ms: int = 0
    last_time: int = 0
    last_failure: str = ""
    held: str = ""
    finished: Status | None = None
    directory: DirectoryId | None = None

    @property
    def ending(self) -> Ending | None:
        """How the run will end, if that is decided."""
        run = self.frames.get("")
        return run.ending if run else None


_encoder = msgspec.json.Encoder()


@cache
def _decoder() -> msgspec.json.Decoder[State]:
    return msgspec.json.Decoder(State)


def encode_state(state: State) -> bytes:
    """Return the state as bytes for a checkpoint."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> State:
    """Return the state that `encode_state` wrote."""
    return _decoder().decode(data)
