"""Shared by all tests: the path to `support`, event loops, and what a skip means."""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

sys.path.insert(0, str(Path(__file__).parent))

from support import forkserver, parts, thorough

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]

# How long an example takes says how busy the machine is, and nothing else. In CI the examples are
# the same in every run; elsewhere each run draws new ones.
settings.register_profile(
    "patient",
    settings(),
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow,),
    max_examples=thorough.amount(20, thorough=100),
    derandomize=parts.required(),
)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Let children be interrupted, and start what all workers share.

    A shell ignores SIGINT for what it starts in the background, `nohup` ignores SIGHUP. Children
    inherit that; of a handler they inherit nothing.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if config.getoption("numprocesses", None):  # this is the process that starts the workers
        forkserver.serve()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run two more tests at a time than there are cores: tests wait for children and sockets."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker compile a part of the tests before all of them read them all.

    To rewrite the asserts of all tests takes twelve seconds of CPU time, in each of the workers if
    all begin with the same file. What one has compiled the others load.
    """
    gc.disable()  # until everything is collected: hardly anything of it becomes garbage
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    if not worker:
        return
    roots = [Path(each.partition("::")[0]) for each in session.config.args]
    files = sorted(
        file for root in roots for file in ([root], root.rglob("test_*.py"))[root.is_dir()]
    )
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in files[number::count]:
        sys.path.insert(0, str(file.parent))
        with suppress(Exception):  # it comes again when the file is collected
            importlib.import_module(file.stem)
        sys.path.pop(0)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not marked
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark property tests, and those that are run by `make test-thorough` only."""
    drawn = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
    if drawn or item.get_closest_marker("heavy"):
        item.add_marker("thorough")


@pytest.hookimpl(trylast=True)  # after pytest has left out what is not marked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every worker begin with its share of the slow tests.

    Each worker gets as many tests as the others, and whoever has none left takes over the last ones
    of another. So no worker begins a slow test when the others are about to end.
    """
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = (item for item in items if not item.get_closest_marker("slow"))
    ordered: list[pytest.Item] = []
    for number in range(workers):
        head = slow[number::workers]
        share = (len(items) - len(ordered)) // (workers - number)
        ordered += [*head, *itertools.islice(others, max(0, share - len(head)))]
    items[:] = [*ordered, *others]


def pytest_collection_finish() -> None:
    """Leave what was collected out of every garbage collection from here on."""
    gc.freeze()
    gc.enable()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Run the tests of a module under each of the loops that it names as LOOPS."""
    module = item.getparent(pytest.Module)
    loops: Loops = getattr(module.obj if module else None, "LOOPS", {})
    return loops or {"asyncio": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, fail a test that is skipped for a missing part."""
    report = yield
    parts.note_claims(report, item)
    if parts.required():
        parts.fail_for_a_missing_part(report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, fail when every test of a claim was skipped: such a claim is not proved."""
    if parts.required() and _unproved_claims(session.config):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _unproved_claims(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(reporter, pytest.TerminalReporter):  # a worker, which sees only its own tests
        return []
    return parts.unproved_claims(
        reporter.stats.get("skipped", []) + reporter.stats.get("xfailed", []),
        reporter.stats.get("passed", []),
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was not tested, and which command brings it."""
    if parts.required() and (unproved := _unproved_claims(config)):
        terminalreporter.section("claims without proof: all their tests were skipped")
        terminalreporter.line(", ".join(unproved))
    whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    deselected = config.getoption("markexpr") if whole_suite else ""
    left_out = [mark for mark in parts.RUNS_OF_THEIR_OWN if f"not {mark}" in deselected]
    if deselected and not thorough.FACTOR:
        left_out.append("thorough")
    if lines := list(parts.summary(terminalreporter.stats.get("skipped", ()), left_out)):
        terminalreporter.section("not tested here")
        for line in lines:
            terminalreporter.line(line)
