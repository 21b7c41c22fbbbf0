"""Output without end: all of it is shown, in bounded memory, and the child can be made to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infloop.sandbox.base import ChildRequest, FlowControl, Stream
from infloop.sandbox.levels.host import HostSandbox
from support.eventually import eventually_async

DEADLINE_S = 60.0


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def shell(script: str, cwd: Path, flow: FlowControl | None, limit: int = 1 << 16) -> ChildRequest:
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    command = ("/bin/sh", "-c", script)
    return ChildRequest(command, str(cwd), variables, max_output_bytes=limit, flow_control=flow)


def waits_for_a_reader(pid: int) -> bool:
    return "pipe_write" in Path(f"/proc/{pid}/wchan").read_text()


async def test_with_flow_control_all_output_is_shown_and_little_is_kept(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    shown = {"stdout": 0, "stderr": 0}

    def hear(stream: Stream, text: str) -> None:
        shown[stream] += len(text)

    script = "head -c 30000000 /dev/zero; head -c 20000000 /dev/zero >&2"
    async with asyncio.timeout(DEADLINE_S):
        result = await sandbox.run(shell(script, tmp_path, FlowControl()), on_output=hear)
    assert shown == {"stdout": 30_000_000, "stderr": 20_000_000}
    assert len(result.stdout) + len(result.stderr) < 200_000
    assert result.stdout_omitted == 30_000_000 - (1 << 16)


async def test_while_the_output_is_paused_the_child_waits(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    flow = FlowControl()
    heard: list[str] = []

    def hear(_: Stream, text: str) -> None:
        heard.append(text)
        flow.pause()

    script = "echo $$ > pid; exec head -c 10000000 /dev/zero"
    running = asyncio.create_task(sandbox.run(shell(script, tmp_path, flow), on_output=hear))
    pieces = 0
    await eventually_async(lambda: bool(heard))
    child = int((tmp_path / "pid").read_text())
    while pieces < 5:
        await eventually_async(lambda: waits_for_a_reader(child))
        pieces += 1
        assert len(heard) == pieces  # and not one more by itself
        flow.resume()
        await eventually_async(lambda seen=pieces: len(heard) > seen)  # type: ignore[misc]
    opened = asyncio.create_task(keep_open(flow))
    async with asyncio.timeout(DEADLINE_S):
        await running
    opened.cancel()
    assert sum(map(len, heard)) == 10_000_000


async def keep_open(flow: FlowControl) -> None:
    while True:
        flow.resume()
        await asyncio.sleep(0)


async def test_what_a_child_leaves_in_its_pipes_is_delivered_although_paused(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    flow = FlowControl()
    heard: list[str] = []

    def hear(_: Stream, text: str) -> None:
        heard.append(text)
        flow.pause()

    script = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last"
    running = asyncio.create_task(sandbox.run(shell(script, tmp_path, flow), on_output=hear))
    await eventually_async(lambda: flow.paused)
    (tmp_path / "go").touch()
    async with asyncio.timeout(DEADLINE_S):
        result = await running
    assert "".join(heard) == result.stdout == "first\nlast\n"


async def test_a_child_whose_output_is_paused_can_be_cancelled(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    flow = FlowControl()
    flow.pause()
    script = "echo $$ > pid; exec head -c 10000000 /dev/zero"
    running = asyncio.create_task(sandbox.run(shell(script, tmp_path, flow)))
    file = tmp_path / "pid"
    await eventually_async(
        lambda: file.exists() and waits_for_a_reader(int(file.read_text() or "0"))
    )
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
