"""Forks processes that ask a metered provider until they are killed; see test_ledger.py.

Reads a line with a number on stdin. For each, forks a child and prints `pid N` for it. On a line
`go` the child closes what dead processes left open, then lets several callers ask, one call after
the other, until nothing more may be spent; then it writes `done` and ends. It writes a line when
the provider has been asked, for each cost that is heard of, and for each answer that is complete.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from infloop.errors import BudgetError
from infloop.policy.spending import Budget
from infloop.providers.base import Cost, Part, Request
from infloop.providers.scripted import ScriptedProvider
from infloop.runtime.clock import SetClock
from infloop.runtime.ledger import Ledger, Metered, abandon_dead_calls
from infloop.sandbox.host import HostSandbox
from infloop.store.instances import Instances
from infloop.store.sqlite import open_journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLERS = 4
CAP_USD = 30.0
CALL_USD = 0.03
TURN = {"do": [{"tokens": {"input": 7}}, {"cost": 0.01}, {"text": "hm"}, {"cost": 0.02}]}


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class Announced:
    """Says when the provider is asked."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._provider = provider
        self.id = provider.id

    async def ask(self, request: Request) -> AsyncIterator[Part]:
        say(f"asked {request.path}")
        async for part in self._provider.ask(request):
            await asyncio.sleep(0)
            yield part


async def call_after_call(provider: Metered, name: str) -> None:
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
    async with await open_journal(folder) as journal:
        instances = Instances(journal, folder, clock.now_ms)
        instance = await instances.register()
        await abandon_dead_calls(journal, instances, clock)
        ledger = Ledger(journal, instance.id, clock, Budget(CAP_USD, "month"))
        scripted = ScriptedProvider("fake", folder / "fake.turns.json", sandbox, dict)
        provider = Metered(Announced(scripted), ledger, "w", 0.0)
        async with asyncio.TaskGroup() as callers:
            for caller in range(CALLERS):
                callers.create_task(call_after_call(provider, f"{number}-{caller}"))
        await instance.close()
    say("done")


def main(folder: Path) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.read(0, 16)  # until the test holds a handle on this process
            try:
                asyncio.run(work(folder, int(line)))
                os._exit(0)
            except BaseException as error:  # the parent must hear of it
                import traceback

                say(f"error {error!r} {traceback.format_exc()!r}")
                os._exit(1)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
