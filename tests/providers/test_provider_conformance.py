"""Every scene of the conformance suite, on every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest

from infloop.providers.base import (
    Answer,
    AnswerPart,
    Done,
    Provider,
    ProviderNotice,
    Request,
    Stderr,
    Text,
)
from infloop.sandbox.levels.host import HostSandbox
from support.eventually import eventually_async
from support.provider_conformance import STANDS, Stand

DEADLINE_S = 30.0


def on(scene: str) -> pytest.MarkDecorator:
    """Every stand that can play the scene."""
    able = [stand for stand in STANDS if scene in stand.scenes]
    return pytest.mark.parametrize("stand", able, ids=lambda stand: stand.name)


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def asked(provider: Provider, folder: Path) -> AsyncGenerator[AnswerPart]:
    return cast("AsyncGenerator[AnswerPart]", provider.ask(Request("Say DONE", str(folder))))


async def all_of(provider: Provider, folder: Path) -> list[AnswerPart]:
    async with asyncio.timeout(DEADLINE_S), aclosing(asked(provider, folder)) as parts:
        return [part async for part in parts]


def answer_of(parts: list[AnswerPart]) -> Answer:
    answer = Answer(1 << 20)
    for part in parts:
        answer.add(part)
    return answer


@on("text")
async def test_it_starts_and_ends_with_one_done(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    (tmp_path / "go").touch()
    parts = await all_of(stand.provider("text", tmp_path, sandbox), tmp_path)
    assert [part for part in parts if isinstance(part, Done)] == [parts[-1]]
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert (ending.exit_code, ending.error) == (0, "")
    assert answer_of(parts).text == stand.said


@on("text")
async def test_it_streams(stand: Stand, tmp_path: Path, sandbox: HostSandbox) -> None:
    provider = stand.provider("text", tmp_path, sandbox)
    async with asyncio.timeout(DEADLINE_S), aclosing(asked(provider, tmp_path)) as parts:
        first = await anext(parts)
        assert not isinstance(first, Done)
        (tmp_path / "go").touch()
        rest = [part async for part in parts]
    assert answer_of([first, *rest]).text == stand.said


@on("text")
async def test_it_counts_tokens_and_money(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    (tmp_path / "go").touch()
    answer = answer_of(await all_of(stand.provider("text", tmp_path, sandbox), tmp_path))
    assert answer.usage == stand.usage
    assert answer.cost_usd == pytest.approx(stand.cost_usd)


@pytest.mark.claim("I36")
@on("denied")
async def test_a_denied_tool_is_noticed(stand: Stand, tmp_path: Path, sandbox: HostSandbox) -> None:
    parts = await all_of(stand.provider("denied", tmp_path, sandbox), tmp_path)
    (notice,) = [part for part in parts if isinstance(part, ProviderNotice)]
    assert notice.line.startswith("[permissions] denied: ")
    assert "[permissions]" not in answer_of(parts).text


@on("text")
async def test_nothing_is_noticed_when_nothing_was_denied(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    (tmp_path / "go").touch()
    parts = await all_of(stand.provider("text", tmp_path, sandbox), tmp_path)
    assert [part for part in parts if isinstance(part, ProviderNotice)] == []


@on("hang")
async def test_cancelled_it_leaves_nothing_behind(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    task = asyncio.create_task(all_of(stand.provider("hang", tmp_path, sandbox), tmp_path))
    await eventually_async(lambda: stand.is_under_way(tmp_path))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stand.left_behind(tmp_path) == []


@on("hang")
async def test_timed_out_it_leaves_nothing_behind(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    provider = stand.provider("hang", tmp_path, sandbox)
    limit = asyncio.timeout(DEADLINE_S)

    async def listen() -> None:
        async with limit, aclosing(asked(provider, tmp_path)) as parts:
            async for _ in parts:
                pass

    listening = asyncio.create_task(listen())
    await eventually_async(lambda: stand.is_under_way(tmp_path))
    limit.reschedule(asyncio.get_running_loop().time())
    with pytest.raises(TimeoutError):
        await listening
    assert stand.left_behind(tmp_path) == []


@on("killed")
async def test_a_listener_that_stops_leaves_nothing_behind(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    provider = stand.provider("hang", tmp_path, sandbox)
    async with asyncio.timeout(DEADLINE_S), aclosing(asked(provider, tmp_path)) as parts:
        await anext(parts)
        await eventually_async(lambda: stand.is_under_way(tmp_path))
    assert stand.left_behind(tmp_path) == []


@on("crash")
async def test_a_crash_is_its_exit_code_and_a_reason(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    ending = (await all_of(stand.provider("crash", tmp_path, sandbox), tmp_path))[-1]
    assert isinstance(ending, Done)
    exit_code, reason = stand.crash
    assert ending.exit_code == exit_code
    assert reason in ending.error


@on("killed")
async def test_a_killed_program_has_no_exit_code_and_is_a_failure(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    ending = (await all_of(stand.provider("killed", tmp_path, sandbox), tmp_path))[-1]
    assert isinstance(ending, Done)
    assert ending.exit_code is None
    assert "signal 9" in ending.error


@on("garbage")
async def test_garbage_does_not_keep_the_rest_from_being_read(
    stand: Stand, tmp_path: Path, sandbox: HostSandbox
) -> None:
    parts = await all_of(stand.provider("garbage", tmp_path, sandbox), tmp_path)
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert (ending.exit_code, ending.error) == (0, "")
    assert answer_of(parts).text.endswith(stand.said)
    for part in parts:
        if isinstance(part, Text | Stderr):
            part.text.encode()
    noticed = [part.line for part in parts if isinstance(part, ProviderNotice)]
    assert noticed == ["[output] a line was cut after 8388608 characters"]
