"""Runs: their events, output and checkpoints; listing, search and pruning.

Promises of every implementation:

- A run has an owner and an epoch. `take_over` raises the epoch, so an epoch belongs to one owner.
  A write under another epoch than the run's raises `Fenced` and changes nothing; the check and the
  write are one transaction.
- Sequence numbers of a run grow, and a failure leaves no gap: after a failed append, later appends
  of the same run and epoch raise the same error until the failed one is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.events import Cause, Recorded, Status
from infloop.model.hashes import sha256_hex

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

StoredStatus: TypeAlias = Literal["running"] | Status
TextKind: TypeAlias = Literal["input", "output", "log", "error"]

OUTPUT_CAP = 64 << 20
"""The default limit of stored output per run, in bytes."""


def definition_hash(definition: bytes) -> str:
    """Return the key of a stored definition, which the run's `RunStarted` event must name."""
    return sha256_hex(definition)


class NewRun(msgspec.Struct, frozen=True):
    """A run to be created."""

    id: str
    workflow_id: str
    workflow_name: str
    definition: bytes
    owner: str
    started_at: int
    correlation_id: str
    cause: Cause = msgspec.field(default_factory=Cause)


class Cursor(NamedTuple):
    """A position in a listing of runs; the next page contains older runs."""

    started_at: int
    run_id: str


class RunRow(msgspec.Struct, frozen=True):
    """A run without its events.

    `status` is the stored one; `liveness.derive_status` says whether a "running" run really runs.
    `error` is shortened; the last event has all of it.
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
        """This run's position in a listing."""
        return Cursor(self.started_at, self.id)


class Ownership(NamedTuple):
    """The right to append to a run under `epoch`, and the last sequence number so far."""

    epoch: int
    last_seq: int


class Checkpoint(NamedTuple):
    """A run's state after all events up to and including `seq`."""

    seq: int
    state: bytes


class LoadedRun(msgspec.Struct, frozen=True):
    """What the state of a run is rebuilt from: a checkpoint and the events after it."""

    run: RunRow
    definition: bytes
    checkpoint: Checkpoint | None
    events: list[Recorded]


class EarlierEvents(NamedTuple):
    """Items in order, and the sequence before which earlier ones are; None at the beginning."""

    items: list[Recorded]
    before_seq: int | None


class TextPage(NamedTuple):
    """Part of a long text; offset and total are in characters."""

    text: str
    offset: int
    total: int


class SearchHit(msgspec.Struct, frozen=True):
    """A run that matches a search, with the shortest text that matches.

    `path` is the step that the text belongs to and `kind` what it was there. `marks` are the
    (start, end) ranges of `snippet` that matched. `matches` counts the matching texts of the run.
    """

    run: RunRow
    path: str
    kind: TextKind
    snippet: str
    marks: tuple[tuple[int, int], ...]
    matches: int


class RunLog(ABC):
    """The runs of all processes that share the store."""

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
        """Store a run with its definition and first events in one transaction; return its epoch.

        `scope` is for a run that has already finished.
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
        """Queue events and output, in sequence order; the future is done when all are durable.

        Do not change the values inside `items` afterwards. `RunFinished` settles the run, and
        `scope` is then its final scope. The future need not be awaited: an error is also raised by
        the run's next append, and by `flush`.
        """

    @abstractmethod
    def checkpoint(self, run_id: str, epoch: int, seq: int, state: bytes) -> asyncio.Future[None]:
        """Queue the run's state after `seq`. All checkpoints of a run are kept."""

    @abstractmethod
    async def take_over(
        self,
        run_id: str,
        owner: str,
        *,
        expect_dead: str | None = None,
        expect_status: StoredStatus | None = None,
        force: bool = False,
    ) -> Ownership:
        """Make `owner` the owner of a run under the next epoch; its status is running again.

        Pass either `expect_dead`, the owner that was found dead (raises `Fenced` if the run has
        another owner by now), or `force`. With `expect_status` it also raises `Fenced` if the run
        has another status by now: who was taken for dead may have settled it a moment ago.
        """

    @abstractmethod
    async def fork(self, run_id: str, before_seq: int, run: NewRun) -> Ownership:
        """Store `run` with a copy of everything in `run_id` whose sequence is below `before_seq`.

        The copies have the new run's id and correlation id; the first of them is the `RunStarted`
        event of `run_id`.
        """

    @abstractmethod
    def expect_runs(self, count: int) -> None:
        """Set how many runs this process is driving; a hint for how to commit."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until everything queued is durable; raise the first error since the last flush."""

    # -- reading a run ---------------------------------------------------------------------

    @abstractmethod
    async def run(self, run_id: str) -> RunRow:
        """Return the run's row, or raise `NotFound`."""

    @abstractmethod
    async def scope(self, run_id: str) -> JsonObject | None:
        """Return the scope with which a settled run ended."""

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
        """Return what follows `after_seq` up to and including `until_seq`, in order.

        At most `limit` items, and fewer when they are large; only an empty answer means the end.
        A `Notice` stands where output was dropped because of the output limit.
        """

    @abstractmethod
    async def events_before(
        self,
        run_id: str,
        before_seq: int,
        *,
        step: str = "",
        limit: int = 1000,
        include_output: bool = True,
    ) -> EarlierEvents:
        """Return the last items before `before_seq`, in order; with `step`, those inside it.

        At most `limit` items, and fewer when they are large or when `step` has few of them.
        """

    @abstractmethod
    async def load(self, run_id: str, *, until_seq: int | None = None) -> LoadedRun:
        """Return what is needed to rebuild the run's state, now or as of `until_seq`."""

    @abstractmethod
    async def output_page(
        self, run_id: str, path: str, field: str, offset: int, limit: int
    ) -> TextPage:
        """Return part of an output field of the latest visit of a step; non-text as JSON."""

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
        """Return runs, newest first; `before` is the cursor of the last run of the page before."""

    @abstractmethod
    async def runs_with_prefix(self, prefix: str, *, limit: int = 10) -> list[RunRow]:
        """Return the runs whose id starts with `prefix`, ordered by id."""

    @abstractmethod
    async def count(
        self, *, workflow_id: str | None = None, status: StoredStatus | None = None
    ) -> int:
        """Return the number of runs."""

    @abstractmethod
    async def prune(self, workflow_id: str, keep: int) -> int:
        """Delete all but the newest `keep` finished runs of a workflow; return how many.

        Costs one indexed read when there is nothing to delete. Disk space is returned.
        """

    @abstractmethod
    async def index_runs(self, *run_ids: str) -> None:
        """Add the texts of settled runs to the search index; deleted runs are skipped."""

    @abstractmethod
    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        """Return the runs in which one text contains all words of `query`, newest first.

        The last word may be incomplete, and "words in quotes" must be adjacent. Any text is a
        valid query. Runs that have changed since they were indexed are indexed first.
        """

    # -- working directories ---------------------------------------------------------------

    @abstractmethod
    async def has_worked_in(self, path: str) -> bool:
        """Return whether a run has worked in a real directory at this path of this machine."""

    @abstractmethod
    async def note_worked_in(self, path: str) -> None:
        """Remember that a run works in the directory at `path`, which is not a link.

        A large number of paths is remembered; beyond that the oldest are forgotten.
        """
