"""Forks processes that ask a metered provider until they are killed; see test_ledger.py.

A child closes what dead processes left open, then lets several callers ask, one call after the
other, until nothing more may be spent; then it is `done` (see forking). It says when the provider
has been asked, each cost that is heard of, and each answer that is complete.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))


from infloop.errors import BudgetError
from infloop.policy.spending import Budget
from infloop.providers.base import AnswerPart, Cost, Request
from infloop.providers.scripted import ScriptedAgent
from infloop.runtime.clock import SetClock
from infloop.runtime.spending.ledger import Ledger, abandon_dead_calls
from infloop.runtime.spending.metered_provider import MeteredProvider
from infloop.sandbox.levels.host import HostSandbox
from infloop.store.opening import open_store
from support.forking import fork_for_each_line, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLERS = 4
CAP_USD = 30.0
CALL_USD = 0.03
TURN = {"do": [{"tokens": {"input": 7}}, {"cost": 0.01}, {"text": "hm"}, {"cost": 0.02}]}


class Announced:
    """Says when the provider is asked."""

    def __init__(self, provider: ScriptedAgent) -> None:
        self._provider = provider
        self.id = provider.id

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        say(f"asked {request.path}")
        async for part in self._provider.ask(request):
            await asyncio.sleep(0)
            yield part


async def call_after_call(provider: MeteredProvider, name: str) -> None:
    number = 0
    while True:
        number += 1
        request = Request("go", "/", run_id=f"run-{number % 7}", path=f"{name}-{number}")
        try:
            async with aclosing(provider.ask(request)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, Cost):
                        say(f"heard {request.path} {part.usd}")
        except BudgetError:
            return
        say(f"finished {request.path}")


async def work(folder: Path, number: int) -> None:
    clock, sandbox = SetClock(), HostSandbox()
    async with await open_store(folder, clock.now_ms) as store:
        instance = await store.liveness.register()
        await abandon_dead_calls(store.ledger, store.liveness, clock)
        ledger = Ledger(store.ledger, instance.id, clock, Budget(CAP_USD, "month"))
        scripted = ScriptedAgent("fake", folder / "fake.turns.json", sandbox, dict)
        provider = MeteredProvider(Announced(scripted), ledger, "w", 0.0)
        async with asyncio.TaskGroup() as callers:
            for caller in range(CALLERS):
                callers.create_task(call_after_call(provider, f"{number}-{caller}"))
        await instance.close()
    say("done")


if __name__ == "__main__":
    fork_for_each_line(work)
