"""Runs a command on an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import uvloop

from infloop.app.process import collect_rarely

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


def run_async(main: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on the fast event loop."""
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
