"""The run queue's interface, and the records that cross it.

Promises of every implementation:

- What was acknowledged is durable, and becomes a run exactly once, whoever dies at whatever moment:
  a run's existence and its end in the queue are one transaction.
- Entries are handed out by priority, the highest first; of one priority, the first come first.
- No more entries are in the queue than the limit, whoever adds at the same time. One that was
  taken counts until its run exists.
- An entry that a process took and did not start is handed out again once that process is dead.
- A key that was seen within a day gets the first answer, and nothing is added.
- All methods are called from the event loop that opened the journal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from infloop.model.events import Cause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.base import NewRun
    from infloop.store.instances import Instances

QueueState: TypeAlias = Literal["waiting", "taken", "started", "removed", "dropped"]

REMEMBERED_MS = 86_400_000
"""How long a key, and what became of an entry, is remembered after it was added."""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that is to begin when there is room for it.

    `run_id` is the id that the run will have. `extra` is whatever else its start needs.
    """

    id: str
    run_id: str
    workflow_id: str
    inputs: JsonObject
    correlation_id: str
    queued_at: int
    cause: Cause = field(default_factory=Cause)
    priority: int = 0
    idempotency_key: str = ""
    extra: JsonObject = field(default_factory=dict)


class Queued(NamedTuple):
    """The answer to who adds: the entry, and how many are handed out up to and with it."""

    id: str
    run_id: str
    position: int
    repeated: bool = False


class Full(NamedTuple):
    """The answer to who adds when the queue holds as many entries as it may."""

    limit: int


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry as it is now.

    `position` counts from 1 while it waits and is 0 otherwise. `owner` took it; `reason` says why
    it was dropped. Once it has left the queue, `inputs` and `extra` of the run are empty.
    """

    run: QueuedRun
    state: QueueState
    position: int
    owner: str = ""
    reason: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether its run is still to begin."""
        return self.state in ("waiting", "taken")


class Queue(ABC):
    """Runs that wait for their turn. An owner is the id of a process (`store.instances`)."""

    @abstractmethod
    async def put(self, run: QueuedRun, *, limit: int) -> Queued | Full:
        """Add an entry, unless its key is known or the queue is full."""

    async def take(
        self,
        owner: str,
        *,
        passing_over: Collection[str] = (),
        among: Collection[str] | None = None,
    ) -> QueueEntry | None:
        """Hand out the next entry as `take_some` does, but none of the workflows passed over."""
        room = dict.fromkeys(passing_over, 0)
        taken = await self.take_some(owner, 1, room=room, among=among)
        return taken[0] if taken else None

    @abstractmethod
    async def take_some(
        self,
        owner: str,
        most: int,
        *,
        room: Mapping[str, int],
        among: Collection[str] | None = None,
    ) -> list[QueueEntry]:
        """Hand out the next entries: of each workflow at most as many as there is `room` for.

        A workflow that is not in `room` has room for one. With `among`, only some of these
        entries. There is none for an owner that holds.
        """

    @abstractmethod
    async def start(self, entry_id: str, run: NewRun, first: Recorded) -> int:
        """Make the entry that `run.owner` took a run, as `create_run` does; return its epoch.

        Raises Fenced, and changes nothing, if the entry is not taken by that owner.
        """

    @abstractmethod
    async def give_back(self, entry_id: str, owner: str) -> None:
        """Let an entry that `owner` took wait again, where it was; Fenced if it is not taken so."""

    @abstractmethod
    async def drop(self, entry_id: str, owner: str, reason: str) -> None:
        """Let an entry that `owner` took leave the queue without a run; Fenced if not taken so."""

    @abstractmethod
    async def remove(self, entry_id: str) -> bool:
        """Let a waiting entry leave the queue; say whether it was waiting."""

    @abstractmethod
    async def entry(self, entry_id: str) -> QueueEntry:
        """Return an entry, also one that left the queue within a day; else raise `NotFound`."""

    @abstractmethod
    async def entries(self, *, limit: int = 1000) -> list[QueueEntry]:
        """Return what is in the queue: the taken, then the waiting in their order."""

    @abstractmethod
    async def count(self) -> int:
        """Return how many entries are in the queue, the taken ones included."""

    @abstractmethod
    async def hold(self, owner: str, reason: str, since: int) -> None:
        """Hand nothing out to `owner` until it is released; a hold ends with its process."""

    @abstractmethod
    async def release(self, owner: str) -> None:
        """Let `owner` take entries again."""

    @abstractmethod
    async def owners(self) -> list[str]:
        """Return the processes that hold, or have taken something and not started it."""

    @abstractmethod
    async def forget_owner(self, owner: str) -> int:
        """End the hold of a process that died, and let wait again what it took; return how many."""


async def return_from_the_dead(queue: Queue, instances: Instances) -> int:
    """Let wait again what processes took that are dead by now; return how many entries."""
    dead = [owner for owner in await queue.owners() if await instances.liveness(owner) == "dead"]
    return sum([await queue.forget_owner(owner) for owner in dead])
