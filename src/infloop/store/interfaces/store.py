"""One opened database, as the interfaces that the rest of infloop uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.store.interfaces.approvals import ApprovalStore
    from infloop.store.interfaces.changes import Changes
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.liveness import Liveness
    from infloop.store.interfaces.queue import RunQueue
    from infloop.store.interfaces.rate_limits import RateLimits
    from infloop.store.interfaces.refusals import RefusedFirings
    from infloop.store.interfaces.results import RunResults
    from infloop.store.interfaces.run_log import RunLog


class Store(msgspec.Struct, frozen=True):
    """Everything that survives a restart, except the audit log.

    `close` commits what is queued and closes the database; `async with` calls it.
    """

    run_log: RunLog
    ledger: CallLedger
    queue: RunQueue
    refusals: RefusedFirings
    rates: RateLimits
    approvals: ApprovalStore
    liveness: Liveness
    results: RunResults
    changes: Changes
    close: Callable[[], Awaitable[None]]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
