"""The run queue: runs that wait for their turn.

Promises of every implementation:

- An acknowledged entry becomes a run exactly once, whichever process dies at whatever moment: the
  run is created and the entry ends in one transaction.
- Entries are handed out by priority, highest first, and within a priority in the order added.
- The queue never exceeds its limit, also when several processes add at the same time. An entry
  that was taken counts until its run exists.
- An entry that a process took and did not start is handed out again after the process died.
- Adding with an idempotency key that was used within a day returns the first answer.
- Adding with another key, or none, and a fingerprint that was used within a day is refused.
- An entry leaves the queue by becoming a run or because somebody removes it. One that cannot start
  is held with the reason: it keeps its place and its inputs, and is not handed out meanwhile.
- An entry that was not acknowledged can be withdrawn.
- An entry is handed out only to a process that has all labels it requires, and only while fewer
  runs of its workflow are live than it allows: in all processes together, taken entries included.
- An entry keeps the definition with which it was added. Entries and runs share equal definitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.events import Cause
from infloop.store.interfaces.liveness import dead_owners

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.liveness import Liveness
    from infloop.store.interfaces.run_log import NewRun

QueueState: TypeAlias = Literal["waiting", "taken", "started", "removed", "dropped"]

KEPT_MS = 86_400_000
"""How long an entry and its idempotency key are kept after the entry was added."""


class QueuedRun(msgspec.Struct, frozen=True):
    """A run to be started when there is a free slot.

    `run_id` is the id that the run will have. `fingerprint` identifies the signed request that
    asked for it. `extra` is anything else that its start needs. `requires` names the labels that a
    process must have to take it. `max_concurrent` is how many runs of its workflow may be live; 0
    means no limit. `definition` is the hash of what the run executes; empty if it is not stored.
    """

    id: str
    run_id: str
    workflow_id: str
    inputs: JsonObject
    correlation_id: str
    queued_at: int
    cause: Cause = msgspec.field(default_factory=Cause)
    priority: int = 0
    idempotency_key: str = ""
    extra: JsonObject = msgspec.field(default_factory=dict)
    fingerprint: str = ""
    requires: tuple[str, ...] = ()
    max_concurrent: int = 0
    definition: str = ""


class Enqueued(NamedTuple):
    """An entry was added, or `repeated` an earlier one. `position` counts from 1."""

    id: str
    run_id: str
    position: int
    repeated: bool = False


class Replayed(NamedTuple):
    """Nothing was added: an entry with the same fingerprint was added within a day."""

    id: str


class QueueFull(NamedTuple):
    """Nothing was added: the queue has as many entries as it may have."""

    limit: int


class QueueEntry(msgspec.Struct, frozen=True):
    """An entry of the queue.

    `position` counts from 1 while the entry waits and is 0 otherwise, also while it is held.
    `owner` is the process that took it. `reason` says why it could not start the last time.
    `inputs`, `extra` and `definition` of an entry that has left the queue are empty.
    """

    run: QueuedRun
    state: QueueState
    position: int
    owner: str = ""
    reason: str = ""
    held: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether its run has not started yet and still can."""
        return self.state in ("waiting", "taken")


class RunQueue(ABC):
    """The queue of all processes that share the store. An owner is the id of an instance."""

    @abstractmethod
    async def put(
        self, run: QueuedRun, *, limit: int, definition: bytes = b""
    ) -> Enqueued | QueueFull | Replayed:
        """Add an entry, unless its idempotency key or fingerprint is known or the queue is full.

        `definition` has the hash that `run.definition` names.
        """

    @abstractmethod
    async def definition(self, name: str) -> bytes:
        """Return the definition with a hash, of an entry or a run; or raise `NotFound`."""

    @abstractmethod
    async def take(
        self,
        owner: str,
        limit: int = 1,
        *,
        labels: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[QueueEntry]:
        """Hand out the next entries, at most `limit`, and none while `owner` is on hold.

        `labels` are those of `owner`. With `only`, no other entries than these are handed out.
        """

    @abstractmethod
    async def has_takeable(
        self, *, labels: Collection[str] = (), only: Collection[str] | None = None
    ) -> bool:
        """Say whether there is an entry that `take` would hand out now, without taking it."""

    @abstractmethod
    async def start(
        self,
        entry_id: str,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded] = (),
        *,
        scope: JsonObject | None = None,
    ) -> int:
        """Create the run of an entry that `run.owner` took, as `RunLog.create_run` does.

        Returns the run's epoch. Raises `Fenced` if that owner has not taken the entry.
        """

    async def start_ended(
        self,
        entry_id: str,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded],
        *,
        scope: JsonObject | None = None,
        labels: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> tuple[int, QueueEntry | None]:
        """Create a run that has ended, as `start` does, and hand out an entry in its place.

        The entry is the one that `take` would hand out to `run.owner` after that. An implementation
        that cannot do both in one transaction hands out none.
        """
        return await self.start(entry_id, run, first, rest, scope=scope), None

    @abstractmethod
    async def requeue(self, entry_id: str, owner: str) -> None:
        """Return an entry to its old place; `Fenced` if `owner` has not taken it."""

    @abstractmethod
    async def hold_entry(self, entry_id: str, owner: str, reason: str) -> None:
        """Return an entry that cannot start; `Fenced` if `owner` has not taken it."""

    @abstractmethod
    async def retry_held(self, *, only: Collection[str] | None = None) -> None:
        """Hand out again the oldest held entry of each workflow and reason.

        One is enough to see whether the reason still exists. With `only`, no other entries are
        handed out.
        """

    @abstractmethod
    async def release_held(self, workflow_id: str, reason: str) -> None:
        """Hand out again all entries of a workflow that are held for this reason."""

    @abstractmethod
    async def remove(self, entry_id: str) -> bool:
        """Remove a waiting entry; return whether it was waiting."""

    @abstractmethod
    async def withdraw(self, entry_id: str) -> bool:
        """Forget an entry as if it had never been added; return False if it became a run.

        Its idempotency key and fingerprint are forgotten too. A process that took it cannot start
        it any more.
        """

    @abstractmethod
    async def entry(self, entry_id: str) -> QueueEntry:
        """Return an entry, also one that left the queue within a day, or raise `NotFound`."""

    @abstractmethod
    async def entries(self, *, limit: int = 1000) -> list[QueueEntry]:
        """Return the entries in the queue: the taken, the waiting in order, and the held."""

    @abstractmethod
    async def count(self) -> int:
        """Return the number of entries in the queue, taken ones included."""

    @abstractmethod
    async def hold(self, owner: str, reason: str, since: int) -> None:
        """Hand out nothing to `owner` until `release`; a hold ends with its process."""

    @abstractmethod
    async def release(self, owner: str) -> None:
        """End the hold of `owner`."""

    @abstractmethod
    async def owners(self) -> list[str]:
        """Return the processes that are on hold or have entries taken."""

    @abstractmethod
    async def requeue_all(self, owner: str) -> int:
        """Requeue what a dead process took and end its hold; return the number of entries."""


async def requeue_from_dead_owners(queue: RunQueue, liveness: Liveness) -> int:
    """Requeue the entries that dead processes had taken; return their number."""
    dead = await dead_owners(liveness, await queue.owners())
    return sum([await queue.requeue_all(owner) for owner in dead])
