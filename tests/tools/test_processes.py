"""The tools for processes that keep running."""

from __future__ import annotations

import asyncio

import pytest

from infloop.tools.gate import MAX_TEXT_CHARS
from infloop.tools.shell.processes import MAX_ENDED, MAX_PENDING_INPUT_BYTES, MAX_RUNNING
from support.confinement import LEVELS
from support.eventually import eventually_async
from support.processes import alive, new_token
from support.tools import Person, ShellBench, shell_bench

levels = pytest.mark.parametrize("level", LEVELS)


async def said_by(bench: ShellBench, process: int, text: str) -> str:
    """Poll until a process has printed something."""
    seen = ""

    async def look() -> bool:
        nonlocal seen
        seen += await bench.text("process_poll", process=process, wait_ms=1000) + "\n"
        return text in seen

    await eventually_async(look)
    return seen


@levels
async def test_a_process_is_started_polled_written_to_listed_and_killed(level: str) -> None:
    async with shell_bench(level) as bench:
        token = new_token()
        line = (
            "echo $PWD; while read line; do echo got $line; done; "
            f"setsid sleep {token} & sleep {token}"
        )
        assert await bench.text("process_start", command=line) == "process 1: running"
        await said_by(bench, 1, str(bench.directory))
        await bench.text("process_write", process=1, text="hello")
        await said_by(bench, 1, "got hello")
        assert await bench.text("process_poll", process=1) == "process 1: running"
        await bench.text("process_write", process=1, text="", newline=False, close=True)
        assert (await bench.result("process_write", process=1, text="x")).code == "input-closed"
        await eventually_async(lambda: len(alive(token)) >= 2)
        assert (await bench.text("process_list")).startswith("process 1: running: 'echo $PWD")
        assert await bench.text("process_kill", process=1) == "process 1: killed"
        assert alive(token) == []
        assert (await bench.text("process_list")).startswith("process 1: killed")


async def test_the_end_of_a_process_is_told() -> None:
    async with shell_bench("host") as bench:
        await bench.text("process_start", command="echo out; echo err >&2; exit 3")
        seen = await said_by(bench, 1, "exit code 3")
        assert {"out", "err"} <= set(seen.split())
        assert (await bench.result("process_write", process=1, text="x")).code == "input-closed"
        assert await bench.text("process_kill", process=1) == "process 1: exit code 3"


async def test_only_some_run_at_a_time_and_ended_ones_do_not_count() -> None:
    async with shell_bench("host") as bench:
        for _ in range(MAX_RUNNING + 1):
            await bench.text("process_start", command="true")
        await eventually_async(lambda: _ended(bench))
        for number in range(MAX_RUNNING):
            assert "running" in await bench.text("process_start", command="sleep 1000"), number
        refused = await bench.result("process_start", command="sleep 1000")
        assert refused.code == "too-many-processes"
        await bench.text("process_kill", process=MAX_RUNNING + 2)
        for _ in range(MAX_ENDED + 5):
            await bench.text("process_start", command="true")
            await eventually_async(lambda: _running(bench, MAX_RUNNING - 1))
        listed = (await bench.text("process_list")).splitlines()
        assert len(listed) <= MAX_RUNNING + MAX_ENDED
        assert (await bench.result("process_poll", process=1)).code == "no-such-process"


async def _ended(bench: ShellBench) -> bool:
    return "running" not in await bench.text("process_list")


async def _running(bench: ShellBench, number: int) -> bool:
    return (await bench.text("process_list")).count(": running:") == number


@levels
async def test_processes_end_with_the_gate(level: str) -> None:
    token = new_token()
    async with shell_bench(level) as bench:
        line = f"trap '' HUP; setsid sleep {token} & sleep {token}"
        await bench.text("process_start", command=line)
        await eventually_async(lambda: len(alive(token)) >= 2)
        await bench.gate.close()  # the sandbox, which would end them too, is still open
        assert alive(token) == []


async def test_a_process_ends_at_the_operators_limit() -> None:
    async with shell_bench("host", max_command_ms=300) as bench:
        token = new_token()
        await bench.text("process_start", command=f"sleep {token}")
        assert "ended at the time limit" in await said_by(bench, 1, "limit")
        assert alive(token) == []


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async with shell_bench("host") as bench:
        token = new_token()
        call = asyncio.create_task(bench.result("process_start", command=f"sleep {token}"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert alive(token) == []
        assert await bench.text("process_list") == "[no processes]"


async def test_output_and_input_of_a_process_are_bounded() -> None:
    async with shell_bench("host") as bench:
        await bench.text("process_start", command="echo first; seq 1000000; echo last; sleep 1000")
        seen = await said_by(bench, 1, "last")
        assert "first" in seen
        assert len(await bench.text("process_poll", process=1)) < MAX_TEXT_CHARS
        big = "x" * (MAX_PENDING_INPUT_BYTES // 2)
        codes = [(await bench.result("process_write", process=1, text=big)).code for _ in range(4)]
        assert codes[-1] == "input-full"


async def test_a_person_is_asked_before_a_process_starts_and_before_destructive_input() -> None:
    person = Person(allows=True)
    async with shell_bench("sandbox", rules=(), ask=person) as bench:
        await bench.text("process_start", command="bash")
        assert [each.title for each in person.questions] == ["process_start: bash"]
        await bench.text("process_write", process=1, text="echo hello")
        await bench.text("process_poll", process=1)
        await bench.text("process_list")
        assert len(person.questions) == 1
        person.allows = False
        result = await bench.result("process_write", process=1, text="rm -rf x")
        assert result.code == "denied"
        assert person.questions[-1].title == "process_write: process 1: rm -rf x"
        await bench.text("process_kill", process=1)
    async with shell_bench("sandbox", rules=()) as bench:
        assert (await bench.result("process_start", command="sleep 1")).code == "denied"
