"""Input that comes in pieces while the child runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from infloop.sandbox.base import ChildRequest, ChildResult, Stream
from infloop.sandbox.levels.host import HostSandbox
from support.eventually import eventually_async

DEADLINE_S = 30.0
PATH = "/usr/local/bin:/usr/bin:/bin"
PIECE = b"x" * (1 << 16)


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def shell(script: str, cwd: Path, **fields: Any) -> ChildRequest:
    return ChildRequest(("/bin/sh", "-c", script), str(cwd), {"PATH": PATH}, **fields)


class Pieces:
    """Pieces that a test gives one by one; notes whether it was closed, and never ends by itself
    unless it is told to."""

    def __init__(self, *given: bytes) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.taken = self.closed = 0
        for piece in given:
            self.queue.put_nowait(piece)

    def end(self) -> None:
        self.queue.put_nowait(None)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.queue.get()
        if piece is None:
            raise StopAsyncIteration
        self.taken += 1
        return piece

    async def aclose(self) -> None:
        self.closed += 1


def alone() -> bool:
    """Whether no task is left but the test's own."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_child_is_answered_while_it_runs(tmp_path: Path, sandbox: HostSandbox) -> None:
    pieces = Pieces(b"1\n")
    script = "while read n; do echo $((n * 2)); done; echo end"
    heard: list[str] = []

    def hear(_: Stream, text: str) -> None:
        heard.append(text)
        if text.strip().isdigit():
            answer = int(text)
            pieces.queue.put_nowait(b"%d\n" % answer) if answer < 1000 else pieces.end()

    async with asyncio.timeout(DEADLINE_S):
        result = await sandbox.run(shell(script, tmp_path, stdin=pieces), on_output=hear)
    assert result.stdout.split() == [str(2**n) for n in range(1, 11)] + ["end"]
    assert result.exit_code == 0
    assert pieces.closed == 1
    assert alone()


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_feeding_works_under_either_event_loop(
    run_loop: Callable[[Coroutine[Any, Any, ChildResult]], ChildResult], tmp_path: Path
) -> None:
    async def said() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield PIECE
            await asyncio.sleep(0)

    async def main() -> ChildResult:
        sandbox = HostSandbox()
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await sandbox.run(shell("wc -c", tmp_path, stdin=said()))
        finally:
            await sandbox.close()

    assert int(run_loop(main()).stdout) == 100 * len(PIECE)


async def test_a_generator_is_input_too_and_its_end_is_the_end_of_stdin(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    async def said() -> AsyncIterator[bytes]:
        yield b"one "
        yield b""
        yield b"two"

    result = await sandbox.run(shell("cat; echo .", tmp_path, stdin=said()))
    assert result.stdout == "one two.\n"


async def test_pieces_are_taken_no_faster_than_the_child_reads(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    pieces = Pieces(*[PIECE] * 400)
    pieces.end()
    taken_unread: list[int] = []

    def hear(_: Stream, text: str) -> None:
        if "ready" in text:
            taken_unread.append(pieces.taken)
            (tmp_path / "go").touch()

    script = "echo ready; while [ ! -e go ]; do sleep 0.02; done; wc -c"
    async with asyncio.timeout(DEADLINE_S):
        result = await sandbox.run(shell(script, tmp_path, stdin=pieces), on_output=hear)
    assert taken_unread[0] <= 3  # what a pipe holds, and one that waits
    assert result.stdout.split() == ["ready", str(400 * len(PIECE))]


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("exit 7", []),
        ("exit 7", [PIECE] * 10),  # one of them is waiting to be written
        ("read line; exit 7", [b"line\n"]),
    ],
)
async def test_a_child_that_exits_first_ends_the_feeding(
    script: str, given: list[bytes], tmp_path: Path, sandbox: HostSandbox
) -> None:
    pieces = Pieces(*given)
    async with asyncio.timeout(DEADLINE_S):
        result = await sandbox.run(shell(script, tmp_path, stdin=pieces))
    assert result.exit_code == 7
    assert pieces.closed == 1
    assert alone()


@pytest.mark.parametrize("given", [[], [PIECE] * 10])
async def test_cancelled_the_feeding_has_ended_too(
    given: list[bytes], tmp_path: Path, sandbox: HostSandbox
) -> None:
    pieces = Pieces(*given)
    request = shell("touch began; sleep 1000", tmp_path, stdin=pieces)
    running = asyncio.create_task(sandbox.run(request))
    await eventually_async((tmp_path / "began").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert pieces.closed == 1
    assert alone()


async def test_closing_the_sandbox_ends_the_feeding(tmp_path: Path, sandbox: HostSandbox) -> None:
    pieces = Pieces()
    request = shell("touch began; sleep 1000", tmp_path, stdin=pieces)
    running = asyncio.create_task(sandbox.run(request))
    await eventually_async((tmp_path / "began").exists)
    await sandbox.close()
    assert (await running).error == "the sandbox was closed"
    assert pieces.closed == 1
    assert alone()


async def test_a_child_that_reads_no_more_lives_on(tmp_path: Path, sandbox: HostSandbox) -> None:
    pieces = Pieces()
    heard: list[str] = []

    def has_closed() -> bool:
        if heard:  # again and again: its keeper may still hold the other end for a moment
            pieces.queue.put_nowait(b"too late")
        return pieces.closed == 1

    script = "exec < /dev/null; echo closed; while [ ! -e go ]; do sleep 0.02; done; echo alive"
    request = shell(script, tmp_path, stdin=pieces)
    running = asyncio.create_task(
        sandbox.run(request, on_output=lambda _, text: heard.append(text))
    )
    await eventually_async(has_closed)
    assert not running.done()
    (tmp_path / "go").touch()
    assert (await running).stdout == "closed\nalive\n"
    assert pieces.closed == 1


async def test_a_child_that_could_not_be_started_was_fed_nothing(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    pieces = Pieces(b"x")
    result = await sandbox.run(shell("cat", tmp_path / "missing", stdin=pieces))
    assert "does not exist" in result.error
    assert result.stdout == ""
    assert pieces.closed == 1
    assert alone()


async def test_what_the_pieces_raise_ends_the_child_and_leaves_the_call(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    async def said() -> AsyncIterator[bytes]:
        yield b"a line\n"
        await eventually_async((tmp_path / "began").exists)
        raise ValueError("out of words")

    request = shell("read line; touch began; sleep 1000", tmp_path, stdin=said())
    with pytest.raises(ValueError, match="out of words"):
        async with asyncio.timeout(DEADLINE_S):
            await sandbox.run(request)
    assert alone()


async def test_many_children_are_fed_at_once(tmp_path: Path, sandbox: HostSandbox) -> None:
    async def said(number: int) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield PIECE
            await asyncio.sleep(0)
        yield b"%d" % number

    async def run(number: int) -> ChildResult:
        return await sandbox.run(shell("tail -c 2", tmp_path, stdin=said(number)))

    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(*map(run, range(10, 40)))
    assert [result.stdout for result in results] == [str(number) for number in range(10, 40)]
