"""Shared by all tests: the path to `support`, event loops, and what a skip means."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from support import parts

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]

# How long an example takes says how busy the machine is, and nothing else.
SLOW = (HealthCheck.too_slow,)
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=SLOW)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Let children be interrupted although a shell started these tests in the background.

    Such a shell has SIGINT ignored, and children inherit that; of a handler they inherit nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run one more test at a time than there are cores: tests wait for children and sockets."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Run the tests of a module under each of the loops that it names as LOOPS."""
    module = item.getparent(pytest.Module)
    loops: Loops = getattr(module.obj if module else None, "LOOPS", {})
    return loops or {"asyncio": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, fail a test that is skipped for a missing part."""
    report = yield
    if parts.required():
        parts.fail_for_a_missing_part(report)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was not tested, and which command brings it."""
    whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    deselected = config.getoption("markexpr") if whole_suite else ""
    left_out = [mark for mark in parts.RUNS_OF_THEIR_OWN if f"not {mark}" in deselected]
    if lines := list(parts.summary(terminalreporter.stats.get("skipped", ()), left_out)):
        terminalreporter.section("not tested here")
        for line in lines:
            terminalreporter.line(line)
