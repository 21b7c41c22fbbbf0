"""Processes that own runs: which of them are alive, and which of their runs should stop.

Promises of every implementation:

- A process is `alive` from `register` until it ends, however it ends, or closes its instance.
- A process that ended is `dead`. The answer never depends on its cooperation.
- A process that exists and has not sent a heartbeat for `FROZEN_AFTER_MS` is `frozen`.
- A process that was forgotten (`sweep`) learns it from its next heartbeat.
- A store that several machines share cannot see whether a silent process exists. There it is `dead`
  after its timeout (`LOST_AFTER_MS` unless it chose another) without a heartbeat, and `frozen`
  after half of it. It stays dead: its heartbeats raise `Fenced`.
- While nobody could reach the store, nobody dies: every process has its whole timeout again when
  the store is back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from infloop.store.interfaces.run_log import StoredStatus

OwnerState: TypeAlias = Literal["alive", "frozen", "dead"]
ProcessKind: TypeAlias = Literal["serve", "worker", "run", "mcp"]
RunStatus: TypeAlias = Literal["stalled", "interrupted"] | StoredStatus

FROZEN_AFTER_MS = 15_000
"""How old the last heartbeat of a live process may be; it sends several in that time."""

LOST_AFTER_MS = 30_000
"""How old the last heartbeat may be where the process itself cannot be seen."""

HEARTBEATS_IN_TIMEOUT = 6
"""How many heartbeats a process sends until its silence would make it dead."""


def derive_status(stored: StoredStatus, owner: OwnerState) -> RunStatus:
    """Return the status of a run from its stored status and the state of its owner."""
    if stored != "running" or owner == "alive":
        return stored
    return "stalled" if owner == "frozen" else "interrupted"


class InstanceRow(msgspec.Struct, frozen=True):
    """A process that owns runs. The process id, its start time and the boot id identify it.

    `kind` is the command that it is. `labels` and `capacity` say which entries of the queue it
    takes and how many runs it drives at once; 0 means that it takes none.
    """

    id: str
    pid: int
    process_started: str
    boot_id: str
    host: str
    started_at: int
    heartbeat_at: int
    kind: ProcessKind = "run"
    labels: tuple[str, ...] = ()
    capacity: int = 0


class StopRequest(msgspec.Struct, frozen=True):
    """A request to the owner of a run to stop it."""

    run_id: str
    reason: str
    time: int


class Instance(ABC):
    """This process, registered as an owner of runs."""

    row: InstanceRow
    heartbeat_seconds: float = LOST_AFTER_MS / 1000 / HEARTBEATS_IN_TIMEOUT
    """How often it sends a heartbeat."""

    @property
    def id(self) -> str:
        """The owner id of this process."""
        return self.row.id

    @abstractmethod
    def is_late(self) -> bool:
        """Whether its last heartbeat is so old that others do not take it for alive."""

    @abstractmethod
    async def heartbeat(self) -> None:
        """Store that this process is running normally.

        Raises `Fenced` if it was taken for dead and forgotten: others have its runs and entries.
        """

    @abstractmethod
    async def renew(self) -> None:
        """Register this process again, under a new id, because it was taken for dead."""

    @abstractmethod
    async def close(self) -> None:
        """End the registration; runs that have not settled are interrupted from now on."""


class Liveness(ABC):
    """All processes that share the store. An owner id is the id of an instance."""

    @abstractmethod
    async def register(
        self, kind: ProcessKind = "run", *, labels: Collection[str] = (), capacity: int = 0
    ) -> Instance:
        """Register this process as an owner of runs; see `InstanceRow`."""

    @abstractmethod
    async def states(self, instance_ids: Collection[str]) -> dict[str, OwnerState]:
        """Return whether each of these processes is alive; an unknown one is dead."""

    async def state(self, instance_id: str) -> OwnerState:
        """Return whether a process is alive; an unknown one is dead."""
        return (await self.states((instance_id,)))[instance_id]

    @abstractmethod
    async def instance(self, instance_id: str) -> InstanceRow | None:
        """Return the description of a process, if it is known."""

    @abstractmethod
    async def instances(self) -> list[InstanceRow]:
        """Return all known processes, oldest first."""

    @abstractmethod
    async def sweep(self) -> None:
        """Forget dead processes, except those that own runs that have not settled."""

    @abstractmethod
    async def request_stop(self, run_id: str, reason: str, time: int) -> None:
        """Ask the owner of a run to stop it; the request stands until the run settles."""

    @abstractmethod
    async def stop_requests(self, instance_id: str) -> list[StopRequest]:
        """Return the requests for the unsettled runs of a process."""


async def dead_owners(liveness: Liveness, owners: list[str]) -> list[str]:
    """Return those of `owners` that are dead."""
    states = await liveness.states(owners)
    return [owner for owner in owners if states[owner] == "dead"]
