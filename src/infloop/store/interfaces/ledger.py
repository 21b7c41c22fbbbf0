"""What provider calls cost, and how much may still be spent.

Promises of every implementation:

- A call that was reserved stays in the ledger, whatever happens to its process or its run.
- Money that a call holds for requests in progress counts for the caps until it is released. When
  the process of a call dies, what the call held counts as spent.
- Amounts of a call only grow: a smaller bill that arrives late changes nothing.
- Sums of money are exact to a billionth of a dollar.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

Grouping: TypeAlias = Literal["day", "workflow", "provider", "run"]


class NewCall(msgspec.Struct, frozen=True):
    """A provider call that is about to be made; `instance` is the process that makes it."""

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
    """What a call has cost so far, in total."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""


class CallFilter(msgspec.Struct, frozen=True):
    """Selects calls: of runs, a workflow, one process, since a time. All by default."""

    run_id: str = ""
    run_ids: tuple[str, ...] = ()
    workflow_id: str = ""
    instance: str = ""
    since: int = 0


class Cap(NamedTuple):
    """The most that the selected calls may cost together; 0 means no limit."""

    calls: CallFilter
    limit_usd: float


class CapReached(NamedTuple):
    """A cap that leaves nothing to spend: what was spent, and what requests in progress hold."""

    cap: Cap
    spent_usd: float
    held_usd: float = 0.0


class Spending(msgspec.Struct, frozen=True):
    """What a group of calls cost together.

    Of the `calls`, `unknown` have ended without reporting their full cost, `open` have not ended,
    and `abandoned` were open when their process died. `usd` is what they reported.
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

    @property
    def known_usd(self) -> float | None:
        """What they cost as far as that is known; None if there was no call or nothing is known."""
        return None if not self.calls or (self.incomplete and not self.usd) else self.usd


class TrackedCall(ABC):
    """A call under no cap. Changes are written soon, together with other writes.

    A charge of money is committed at the latest with the next append to a run log.
    """

    @abstractmethod
    def charge(self, bill: Bill) -> None:
        """Note what the call has cost so far."""

    @abstractmethod
    def settle(self, bill: Bill, *, known: bool, time: int) -> None:
        """Note that the call has ended; `known` says whether `bill` is its full cost."""


class CallLedger(ABC):
    """The calls of all processes that share the store."""

    @abstractmethod
    async def reserve(
        self, call: NewCall, caps: Sequence[Cap] = (), hold_usd: float = 0.0
    ) -> int | CapReached:
        """Store a call before it is made and return its id, or the cap that forbids it.

        Checking the caps and reserving are one transaction. A call that holds money is forbidden
        if nothing is left of a cap beside what other calls hold; one that holds nothing, only if
        the cap is spent.
        """

    @abstractmethod
    async def hold(self, call: int, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        """Let a reserved call hold more money, or return the cap that forbids it.

        Checking the caps and holding are one transaction.
        """

    @abstractmethod
    def charge(self, call: int, bill: Bill, release_usd: float = 0.0) -> asyncio.Future[None]:
        """Queue what a reserved call has cost so far, and what it no longer holds."""

    @abstractmethod
    def settle(self, call: int, bill: Bill, *, known: bool, time: int) -> asyncio.Future[None]:
        """Queue the end of a reserved call; `known` says whether `bill` is its full cost.

        It holds nothing afterwards.
        """

    @abstractmethod
    def track(self, call: NewCall) -> TrackedCall:
        """Store a call that needs no reservation, soon."""

    @abstractmethod
    async def abandon(self, instance: str, time: int) -> int:
        """Close the open calls of a process that died; return how many there were."""

    @abstractmethod
    async def owners(self) -> list[str]:
        """Return the processes that have open calls."""

    @abstractmethod
    async def total(self, calls: CallFilter | None = None) -> Spending:
        """Return what the selected calls cost together."""

    @abstractmethod
    async def totals(self, by: Grouping, calls: CallFilter | None = None) -> list[Spending]:
        """Return what the selected calls cost by local day, workflow, provider or run."""
