"""A tool call through the gate: policy, audit, leak guard and cap, without the work of a tool.

The gate is the real one with the shipped leak rules and the audit log of a data directory. The
floor is the same tool called directly.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import uvloop

from benchmark import Benchmark, Contender, Sample, Target, each, stopwatch, wall
from infloop.model.audit import Actor
from infloop.model.capabilities import Need
from infloop.model.values import JsonObject
from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.leaks.rules import shipped_rules
from infloop.policy.tool_policy import ToolPolicy
from infloop.store.audit.log import AuditLog
from infloop.tools.base import Arguments, Tool, ToolFamily
from infloop.tools.gate import Gate, ToolEvent

TEXT = "tests/test_runs.py::test_a_run_ends PASSED\n" * 100


class Nothing(Arguments, frozen=True):
    path: str = ""


class NothingTool(Tool[Nothing]):
    """Returns some text at once."""

    name: ClassVar[str] = "nothing"
    description: ClassVar[str] = "Does nothing."
    arguments: ClassVar[type[Any]] = Nothing

    def needs(self, arguments: Nothing) -> tuple[Need, ...]:
        return (Need("read", arguments.path),)

    async def run(self, arguments: Nothing) -> str:
        return TEXT


class Family(ToolFamily):
    tools = (NothingTool(),)


def measure_gate(calls: int, folder: Path) -> Sample:
    """Call the tool through the gate, one call after the other."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as infloop does
        return runner.run(_through_the_gate(calls, folder))


async def _through_the_gate(calls: int, folder: Path) -> Sample:
    actor = Actor("system")
    async with AuditLog(folder / "audit", lambda: 0, max_bytes=16 << 20, max_files=12) as audit:

        async def record(event: ToolEvent, outcome: str, details: JsonObject) -> None:
            await audit.record(event, actor, outcome=outcome, details=details)

        leaks = LeakGuard((), shipped_rules)
        gate = Gate([Family()], [ToolPolicy()], record=record, leaks=leaks)
        await gate.call("nothing", {"path": "a"})
        with stopwatch(calls) as sample:
            for _ in range(calls):
                await gate.call("nothing", {"path": "src/infloop/__init__.py"})
    return sample


def measure_direct(calls: int, folder: Path) -> Sample:
    """Call the tool without the gate."""

    async def call() -> Sample:
        (tool,) = Family.tools
        with stopwatch(calls) as sample:
            for _ in range(calls):
                await tool.run(Nothing("src/infloop/__init__.py"))
        return sample

    return asyncio.run(call())


GATE = "infloop, through the gate"

BENCHMARK = Benchmark(
    title="A tool call without the work of a tool",
    unit="call",
    contenders=(Contender(GATE, measure_gate), Contender("the tool alone", measure_direct)),
    targets=(Target("a call through the gate", each(GATE, wall, 1000), 1, "ms"),),
    size=2_000,
    quick_size=500,
)
