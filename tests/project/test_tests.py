"""The tests themselves: where they are, what they import, and how they wait."""

from __future__ import annotations

import ast
import asyncio
import functools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.eventually import eventually, eventually_async
from support.paths import CHILDREN, ROOT, TESTS

NOT_OF_A_PACKAGE = {
    *("agents", "attacks", "cluster", "console", "fixtures", "mutants", "project", "support")
}

SLEEPS = {
    ("support/eventually.py", "eventually"): "the interval of its polling",
    ("support/eventually.py", "eventually_async"): "the interval of its polling",
    (
        "store/test_audit.py",
        "test_routine_entries_are_written_in_a_thread_while_the_disk_is_slow",
    ): "a slow disk",
    (
        "runtime/test_runs.py",
        "test_no_effect_begins_before_its_start_is_durable",
    ): "a time in which something must not happen",
    ("web/test_web_connection.py", "test_requests_one_after_the_other_each_have_their_own_time"): (
        "a client that sends slowly"
    ),
    (
        "supervisor/test_dev_events.py",
        "test_while_nothing_happens_nothing_is_printed_or_started",
    ): "a time in which nothing must happen",
    ("tools/test_web_fetch.py", "test_a_server_that_only_drips_meets_the_deadline"): (
        "a server that sends slowly"
    ),
    ("web/test_webhook_load.py", "send"): "a client that retries later, as it was told to",
}
"""Where a test may sleep, by file and function, and why that is no waiting for something."""


def files() -> list[Path]:
    return sorted(TESTS.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """Return the last part of the name of every module that a file may import."""
    return _read(file)[0]


def sleeps(file: Path) -> set[str]:
    """Return the function around every sleep that takes time; `sleep(0)` only lets others go on."""
    return _read(file)[1]


@functools.cache  # to parse all tests takes seconds
def _read(file: Path) -> tuple[set[str], set[str]]:
    imports: set[str] = set()
    sleeping: set[str] = set()
    for top in ast.parse(file.read_text()).body:
        for node in ast.walk(top):
            match node:
                case ast.Import(names):
                    imports |= {alias.name.rpartition(".")[2] for alias in names}
                case ast.ImportFrom(module, names):
                    imports |= {(module or "").rpartition(".")[2], *(each.name for each in names)}
                case ast.Call(ast.Name("sleep") | ast.Attribute(_, "sleep"), [first, *_]) if (
                    ast.unparse(first) != "0"
                ):
                    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                    sleeping.add(top.name if isinstance(top, functions) else "another place")
    return imports, sleeping


def test_no_test_file_imports_another() -> None:
    found = [
        f"{file.relative_to(TESTS)} imports {name}"
        for file in files()
        for name in imported(file)
        if (name.startswith("test_") and list(TESTS.rglob(f"{name}.py")))
    ]
    assert found == [], "what two test files use belongs into tests/support"


def test_the_tests_are_read_in_an_environment_without_pip() -> None:
    assert [
        file.name for file in files() if {"pip", "setuptools", "ensurepip"} & imported(file)
    ] == []


def test_the_folders_are_those_of_the_source() -> None:
    packages = {path.parent.name for path in (ROOT / "src/infloop").glob("*/__init__.py")}
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders - NOT_OF_A_PACKAGE <= packages
    assert [path.name for path in TESTS.glob("test_*.py")] == []


def test_every_file_has_a_name_of_its_own() -> None:
    names = Counter(file.name for file in files() if file.stem not in ("__init__", "conftest"))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_is_repeated_more_often_in_another_run_is_marked() -> None:
    found = [
        file.relative_to(TESTS).as_posix()
        for file in TESTS.rglob("test_*.py")
        if "amount" in imported(file)
        and not re.search(r"pytest\.mark\.(thorough|heavy)|^@given", file.read_text(), re.MULTILINE)
    ]
    assert found == [], "mark the test with pytest.mark.thorough"


def test_no_test_waits_by_sleeping() -> None:
    """The programs in children are not tests; the others wait with `eventually` or for an event."""
    found = {
        (file.relative_to(TESTS).as_posix(), function)
        for file in files()
        if CHILDREN not in file.parents
        for function in sleeps(file)
    }
    assert found == set(SLEEPS)


INTERRUPTING = """
import signal, subprocess

def test_a_child_is_interrupted():
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == -signal.SIGINT
"""


def test_a_command_can_be_interrupted_when_the_tests_run_in_the_background(tmp_path: Path) -> None:
    """There SIGINT is ignored, as it is for whatever a shell starts with `&`."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_interrupting.py").write_text(INTERRUPTING)
    configuration = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path))
    pytest_alone = [sys.executable, "-m", "pytest", "-q", *configuration, str(tmp_path)]
    ran = subprocess.run(
        ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *pytest_alone],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


# -- eventually ------------------------------------------------------------------------------------


async def test_eventually_gives_what_it_saw() -> None:
    numbers = iter([None, 0, 7])
    assert eventually(lambda: next(numbers), every_s=0) == 7
    texts = iter(["", "text"])
    assert await eventually_async(lambda: next(texts), every_s=0) == "text"

    async def look() -> str:
        return "awaited"

    assert await eventually_async(look) == "awaited"


async def test_eventually_says_what_did_not_come_true(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"not true after 0\.02 s: there is a cat"):
        eventually(list, "there is a cat", within_s=0.02)
    with pytest.raises(AssertionError, match=r"eventually_async\(lambda: 1 > 2"):
        await eventually_async(lambda: 1 > 2, within_s=0.02)
    with pytest.raises(AssertionError, match=r"not true .* Path\.exists of .*cat"):
        eventually((tmp_path / "cat").exists, within_s=0.02)
    with pytest.raises(AssertionError, match="last seen: 0"):
        eventually(lambda: 0, lambda: "zero", within_s=0.02)


async def test_eventually_gives_up_on_a_look_that_takes_too_long() -> None:
    with pytest.raises(AssertionError, match="not true after"):
        await eventually_async(asyncio.Event().wait, within_s=0.02)


async def test_an_error_of_the_look_is_not_hidden() -> None:
    def look() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        eventually(look)
    with pytest.raises(TimeoutError, match="of its own"):
        await eventually_async(look)
