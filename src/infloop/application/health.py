"""Whether runs can be stored and started, and the figures that monitoring reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model
from infloop.errors import InfloopError, Overloaded
from infloop.store.interfaces.ledger import CallFilter

if TYPE_CHECKING:
    from infloop.application.resources import Resources

TIMEOUT_SECONDS = 5.0


class Health(Model, kw_only=True):
    """The server is well."""

    status: Literal["ok"] = "ok"


class Load(Model, kw_only=True):
    """How much goes on in this process."""

    live_runs: int
    queued_runs: int
    cost_usd: float


class HealthChecks:
    """Asks the store."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def ready(self) -> Health:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._resources.store.queue.count()
        except (InfloopError, TimeoutError) as error:
            raise Overloaded("the store does not answer", "not-ready", 5) from error
        return Health()

    async def load(self) -> Load:
        service = self._resources.driving()
        assert service is not None
        calls = CallFilter(instance=service.instance.id)
        spent = await self._resources.store.ledger.total(calls)
        return Load(
            live_runs=len(service.live()),
            queued_runs=await self._resources.store.queue.count(),
            cost_usd=spent.usd,
        )
