"""The journal's interface, and the records that cross it.

Promises of every implementation:

- What was acknowledged is durable: a future or coroutine ends only after the commit.
- A run has an owner and an epoch. A write under another epoch than the run's is `Fenced` and
  changes nothing.
- Sequence numbers of a run grow and have no holes made by a failure: when an append fails, later
  ones of the same run and epoch fail with the same error, until the failed one is repeated.
- All methods are called from the event loop that opened the journal.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

import msgspec

from infloop.model.events import Cause, Recorded, Status

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from types import TracebackType

    from infloop.model.values import JsonObject

StoredStatus: TypeAlias = Literal["running"] | Status
Place: TypeAlias = Literal["input", "output", "log", "error"]
Grouping: TypeAlias = Literal["day", "workflow", "provider", "run"]

OUTPUT_CAP = 64 << 20
"""Bytes of output that are kept of one run, unless the journal is opened with another cap."""


def definition_hash(definition: bytes) -> str:
    """Return the name under which a definition is stored, and which `RunStarted` must carry."""
    return hashlib.sha256(definition).hexdigest()


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is about to exist."""

    id: str
    workflow_id: str
    workflow_name: str
    definition: bytes
    owner: str
    started_at: int
    correlation_id: str
    cause: Cause = field(default_factory=Cause)


class Cursor(NamedTuple):
    """A run's place in a listing: the next page holds what is older."""

    started_at: int
    run_id: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """What is known of a run without reading its events.

    `status` is what was written; whether a "running" run really runs is for
    `instances.derive_status` to say. `error` is shortened; the last event has all of it.
    """

    id: str
    workflow_id: str
    workflow_name: str
    definition: str
    correlation_id: str
    cause: Cause
    owner: str
    epoch: int
    status: StoredStatus
    error: str
    failed_step: str
    started_at: int
    finished_at: int | None
    last_seq: int
    events: int
    steps: int
    output_bytes: int

    @property
    def cursor(self) -> Cursor:
        """Return this run's place in a listing."""
        return Cursor(self.started_at, self.id)


class Ownership(NamedTuple):
    """The right to write to a run, and where its journal stands."""

    epoch: int
    last_seq: int


class Checkpoint(NamedTuple):
    """A run's state after all events up to and including `seq`."""

    seq: int
    state: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run as it was: the nearest checkpoint and the events after it, without output."""

    run: RunRow
    definition: bytes
    checkpoint: Checkpoint | None
    events: list[Recorded]


class TextPage(NamedTuple):
    """Part of a long text; offsets and sizes are in characters."""

    text: str
    offset: int
    total: int


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A run that matches, and its best matching place.

    `marks` are the (start, end) ranges of `snippet` that matched; `places` says how many
    places of the run match in all.
    """

    run: RunRow
    path: str
    kind: Place
    snippet: str
    marks: tuple[tuple[int, int], ...]
    places: int


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Someone wants a run to stop; its owner is to read this."""

    run_id: str
    reason: str
    time: int


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A process that owns runs, as it described itself."""

    id: str
    pid: int
    process_started: str
    boot_id: str
    host: str
    started_at: int
    beat_at: int


class NewCall(msgspec.Struct, frozen=True):
    """A call of a provider that is about to be made."""

    run_id: str
    workflow_id: str
    path: str
    attempt: int
    provider: str
    model: str
    kind: Literal["agent", "judge"]
    instance: str
    reserved_at: int


class Bill(NamedTuple):
    """What a call has cost so far, in all."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""


@dataclass(slots=True)
class Booking:
    """A call as it is now; `id` and `waiting` are the journal's."""

    call: NewCall
    bill: Bill = field(default_factory=Bill)
    known: bool = False
    settled_at: int | None = None
    id: int | None = None
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """Which calls are meant: of one run, of one process, reserved at or after a time."""

    run_id: str = ""
    instance: str = ""
    since: int = 0


class Cap(NamedTuple):
    """What calls may cost together; 0 means no limit."""

    calls: Calls
    limit_usd: float


class UsedUp(NamedTuple):
    """A cap that leaves nothing to spend, and what was spent."""

    cap: Cap
    spent_usd: float


@dataclass(frozen=True, slots=True)
class Spending:
    """What calls cost together.

    Of `calls`, `unknown` are over and did not say all that they cost, `open` go on or belong to a
    process that died, and `abandoned` were found to be such. `usd` holds what they reported.
    """

    key: str
    calls: int
    usd: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    unknown: int
    open: int
    abandoned: int

    @property
    def incomplete(self) -> int:
        """How many calls may have cost more than `usd` says."""
        return self.unknown + self.open + self.abandoned


class Journal(ABC):
    """Where runs are kept, and what they cost."""

    # -- writing a run ---------------------------------------------------------------------

    @abstractmethod
    async def create_run(
        self,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded] = (),
        *,
        scope: JsonObject | None = None,
    ) -> int:
        """Store a run with its definition and first event, all or nothing; return its epoch.

        `rest` and `scope` are for a run that is already over when it is stored.
        """

    @abstractmethod
    def append(
        self,
        run_id: str,
        epoch: int,
        items: Sequence[Recorded],
        *,
        scope: JsonObject | None = None,
    ) -> asyncio.Future[None]:
        """Queue events and output deltas, in sequence order; the future ends when all are durable.

        The values inside `items` are handed over: do not change them afterwards. `RunFinished`
        settles the run, and `scope` is then its final scope. The future need not be awaited:
        an error also meets the run's next append, and `flush`.
        """

    @abstractmethod
    def checkpoint(self, run_id: str, epoch: int, seq: int, state: bytes) -> asyncio.Future[None]:
        """Queue the run's state after `seq`. All checkpoints of a run are kept."""

    @abstractmethod
    async def take_over(
        self, run_id: str, owner: str, *, expect_dead: str | None = None, force: bool = False
    ) -> Ownership:
        """Make `owner` the run's owner under the next epoch; the run is running again.

        `expect_dead` is the owner that was found dead: if the run has another one by now, the
        answer is `Fenced`. `force` takes the run from whoever has it. One of both is needed.
        """

    @abstractmethod
    async def fork(self, run_id: str, before_seq: int, run: NewRun) -> Ownership:
        """Store `run` with a copy of everything in `run_id` whose sequence is below `before_seq`.

        The copies carry the new run's id and correlation id; its first event is therefore the
        other run's `RunStarted`.
        """

    @abstractmethod
    def expect(self, runs: int) -> None:
        """Say how many runs this process drives; with one alone there is nothing to gather."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until everything queued is durable; raise the first error since the last flush."""

    @abstractmethod
    async def close(self) -> None:
        """Store what is queued and let go of the database."""

    # -- reading a run ---------------------------------------------------------------------

    @abstractmethod
    async def run(self, run_id: str) -> RunRow:
        """Return the run's row, or raise `NotFound`."""

    @abstractmethod
    async def scope(self, run_id: str) -> JsonObject | None:
        """Return the scope a settled run ended with."""

    @abstractmethod
    async def events(
        self,
        run_id: str,
        after_seq: int = 0,
        until_seq: int | None = None,
        *,
        limit: int = 1000,
        include_output: bool = True,
    ) -> list[Recorded]:
        """Return what follows `after_seq`, in order, `until_seq` included.

        At most `limit`, and fewer when they are large; there is more until the answer is empty.
        Where output was not kept, a `Notice` stands in its place.
        """

    @abstractmethod
    async def load(self, run_id: str, *, until_seq: int | None = None) -> Loaded:
        """Return what is needed to rebuild the run's state, now or as of `until_seq`."""

    @abstractmethod
    async def output_page(
        self, run_id: str, path: str, field: str, offset: int, limit: int
    ) -> TextPage:
        """Return part of one output of a step (its latest end); other values than text as JSON."""

    @abstractmethod
    async def read_blob(self, name: str, offset: int, limit: int) -> TextPage:
        """Return part of the large text with this hash."""

    # -- history ---------------------------------------------------------------------------

    @abstractmethod
    async def runs(
        self,
        *,
        workflow_id: str | None = None,
        status: StoredStatus | None = None,
        limit: int = 50,
        before: Cursor | None = None,
    ) -> list[RunRow]:
        """Return runs, newest first; `before` is the `cursor` of the last one already seen."""

    @abstractmethod
    async def runs_named(self, beginning: str, *, limit: int = 10) -> list[RunRow]:
        """Return the runs whose id begins so, in the order of their ids."""

    @abstractmethod
    async def count(
        self, *, workflow_id: str | None = None, status: StoredStatus | None = None
    ) -> int:
        """Return how many runs there are."""

    @abstractmethod
    async def prune(self, workflow_id: str, keep: int) -> int:
        """Forget all but the newest `keep` finished runs of a workflow; return how many went.

        Costs one indexed read when there is nothing to forget. The disk is given back.
        """

    @abstractmethod
    async def index_run(self, *run_ids: str) -> None:
        """Make the texts of runs searchable, but for those that are forgotten by now.

        Call it once they have settled.
        """

    @abstractmethod
    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        """Return the runs in which all words of `query` occur at one place, newest first.

        The last word may be the beginning of one, and "words in quotes" must stand together.
        Any text is a valid query. Runs that grew since they were indexed are indexed first.
        """

    # -- where runs work -------------------------------------------------------------------

    @abstractmethod
    async def was_real(self, path: str) -> bool:
        """Say whether a run has worked in a directory at this very path, behind no link."""

    @abstractmethod
    async def note_real(self, path: str) -> None:
        """Remember that one does; of a great many paths the oldest are forgotten."""

    # -- money -----------------------------------------------------------------------------

    @abstractmethod
    async def reserve_call(self, call: NewCall, caps: Sequence[Cap] = ()) -> int | UsedUp:
        """Store that a call is about to be made, and return its id; or the cap that forbids it.

        No other process can spend between the look at the caps and the reservation.
        """

    @abstractmethod
    def book(self, booking: Booking) -> None:
        """Write a call as it is now: what it has cost with whatever is appended next, else soon.

        Call it again after each change.
        """

    @abstractmethod
    def charge_call(self, call: int, bill: Bill) -> asyncio.Future[None]:
        """Queue what a call has cost so far; amounts only grow, whichever bill comes last."""

    @abstractmethod
    def settle_call(self, call: int, bill: Bill, *, known: bool, time: int) -> asyncio.Future[None]:
        """Queue that a call is over; `known` says whether `bill` is all that it cost."""

    @abstractmethod
    async def abandon_calls(self, instance: str, time: int) -> int:
        """Close the open calls of a process that died, as they are; return how many there were."""

    @abstractmethod
    async def callers(self) -> list[str]:
        """Return the processes that have calls open."""

    @abstractmethod
    async def spent(self, calls: Calls | None = None) -> Spending:
        """Return what these calls, or all there ever were, cost together."""

    @abstractmethod
    async def spending(self, by: Grouping, calls: Calls | None = None) -> list[Spending]:
        """Return what they cost by local day, workflow, provider or run, ordered by that."""

    # -- ownership -------------------------------------------------------------------------

    @abstractmethod
    async def request_stop(self, run_id: str, reason: str, time: int) -> None:
        """Leave a request for the run's owner; it stands until the run settles."""

    @abstractmethod
    async def pending_requests(self, instance_id: str) -> list[StopRequest]:
        """Return the requests for the runs that `instance_id` owns and that have not settled."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that changes when any process commits anything; costs microseconds.

        Followers remember it and query only when it changed.
        """

    @abstractmethod
    async def put_instance(self, instance: InstanceRow) -> None:
        """Store a process's description of itself."""

    @abstractmethod
    async def beat_instance(self, instance_id: str, time: int) -> None:
        """Note that the process was well at `time`."""

    @abstractmethod
    async def instance(self, instance_id: str) -> InstanceRow | None:
        """Return what a process said of itself."""

    @abstractmethod
    async def instances(self) -> list[InstanceRow]:
        """Return all processes that are not yet forgotten, oldest first."""

    @abstractmethod
    async def drop_instance(self, instance_id: str) -> bool:
        """Forget a process, unless a run that has not settled is its own; say whether it went."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
