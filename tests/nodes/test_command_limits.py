"""A script, a command or an agent's shell past its time limit: an error, and nobody is left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import SettingsError
from infloop.model.events import StepFinished
from infloop.nodes.base import Interpreters, StepContext
from infloop.nodes.node_types import NODE_TYPES
from infloop.sandbox.base import SandboxWrapper
from infloop.sandbox.levels.host import HostSandbox
from infloop.settings import load_settings
from support.canaries import place
from support.confinement import need_level
from support.processes import ENV, alive, new_token
from support.runs import Finished, scripted, world
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from infloop.sandbox.base import ChildRequest, ChildResult, OnOutput, OnStarted

USER = "nobody" if os.geteuid() == 0 else ""
TWO_HOURS_MS = 7_200_000

STUBBORN = """
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM; touch a; sleep {token}; true' {token} &
( ( setsid sh -c 'trap "" TERM; touch b; sleep {token} & sleep {token}; true' {token} & ) & )
touch c; sleep {token}; true
"""
"""What it starts has sessions of its own, is nobody's child and hears no TERM."""


@pytest.fixture
def top() -> Iterator[Path]:
    """A place with `work`, where the children's user works."""
    with place() as folder:
        (folder / "work").mkdir()
        if USER:
            shutil.chown(folder / "work", USER)
        yield folder


def a_script(line: str, **more: Any) -> dict[str, Any]:
    code = f"import subprocess\ndef run():\n    subprocess.run(['/bin/sh', '-c', {line!r}])\n"
    return node("n", "script", language="py", code=code, **more)


def a_command(line: str, **more: Any) -> dict[str, Any]:
    return node("n", "condition", kind="command", command={"cmd": line, **more})


def an_agent(line: str, folder: Path) -> dict[str, Any]:
    scripted(folder / "data/providers", "bot", {"do": [{"shell": line}]})
    return node("n", "agent", providerId="bot", prompt="go")


async def ended_late(top: Path, level: str, kind: str, limit: str) -> tuple[Finished, int]:
    """Let a stubborn tree come to life, and then to its limit; return the run and the limit."""
    need_level(level)
    for limit_ms in (1_000, 4_000, 16_000):
        token = new_token()
        line = STUBBORN.format(token=token)
        own = {"timeoutMs": limit_ms if limit == "its own" else {"none": 0}.get(limit, 86_400_000)}
        if kind == "shell":
            made = an_agent(line, top)
        else:
            made = a_script(line, **own) if kind == "script" else a_command(line, **own)
        most = {} if limit == "its own" else {"max_command_ms": limit_ms}
        flow = workflow([node("s", "start"), made], edges("s next n"))
        async with world(
            top, isolation=level, service_user=USER, snapshots=False, python_bin="/usr/bin/python3",
            **most,
        ) as here:  # fmt: skip
            done = await here.run(flow)
            assert alive(token) == []
        if {each.name for each in (top / "work").iterdir()} == {"a", "b", "c"}:
            return done, limit_ms
    raise AssertionError(f"the tree never came to life: {done}")


def told(done: Finished) -> str:
    """What the step says of how it ended."""
    step = next(each for each in done.events if isinstance(each, StepFinished) and each.node == "n")
    return " ".join((step.error, str(step.outputs.get("detail", "")), done.said("tool")))


@pytest.mark.claim("L7")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
@pytest.mark.parametrize(
    ("kind", "limit", "says"),
    [
        ("script", "its own", "the script did not finish within {} ms"),
        ("command", "its own", "command timed out after {}ms"),
        ("shell", "the operator's", "the command did not finish within {} ms"),
    ],
)
async def test_of_a_command_past_its_limit_an_error_is_left_and_no_process(
    top: Path, level: str, kind: str, limit: str, says: str
) -> None:
    done, limit_ms = await ended_late(top, level, kind, limit)
    assert says.format(limit_ms) in told(done)
    if kind == "script":
        assert done.status == "failed"


@pytest.mark.claim("L7")
@pytest.mark.parametrize("asked", ["none", "a day"])
@pytest.mark.parametrize("kind", ["script", "command"])
async def test_no_workflow_asks_for_more_than_the_operator_allows(
    top: Path, kind: str, asked: str
) -> None:
    done, limit_ms = await ended_late(top, "host", kind, asked)
    assert f"{limit_ms}" in told(done)
    assert "the operator's limit for every command (INFLOOP_MAX_COMMAND_MS)" in told(done)


class Noted(SandboxWrapper):
    """A sandbox that keeps what it was asked for."""

    asked: ChildRequest | None = None

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        self.asked = request
        return await self._inner.run(request, on_output=on_output, on_started=on_started)


@pytest.fixture
async def noted() -> AsyncIterator[Noted]:
    host = HostSandbox()
    try:
        yield Noted(host)
    finally:
        await host.close()


@pytest.mark.claim("L7")
@pytest.mark.parametrize(
    ("made", "most_ms", "limit_ms"),
    [
        (a_script("true"), TWO_HOURS_MS, 60_000),
        (a_script("true", timeoutMs=100_000), TWO_HOURS_MS, 100_000),
        (a_script("true", timeoutMs=0), TWO_HOURS_MS, TWO_HOURS_MS),
        (a_script("true"), 5_000, 5_000),
        (a_command("true"), TWO_HOURS_MS, 30_000),
        (a_command("true", timeoutMs=100_000), TWO_HOURS_MS, 100_000),
        (a_command("true", timeoutMs=0), TWO_HOURS_MS, TWO_HOURS_MS),
        (a_command("true"), 5_000, 5_000),
    ],
)
async def test_a_command_has_a_limit_whether_its_author_thought_of_one_or_not(
    tmp_path: Path, noted: Noted, made: dict[str, Any], most_ms: int, limit_ms: int
) -> None:
    async def drain() -> None: ...

    async def allows_directory(_: str) -> bool:
        return True

    def provider(_: str) -> Any:
        raise AssertionError

    step = StepContext(
        run_id="r", path="n", node="n", iteration=0, attempt=1, workdir=str(tmp_path),
        allows_directory=allows_directory, write_output=lambda *_: None, drain=drain,
        sandbox=lambda: noted,
        environment=lambda extra=None: {**ENV, **(extra or {})}, provider=provider,
        interpreters=Interpreters(), max_output_bytes=1 << 20, max_command_ms=most_ms,
    )  # fmt: skip
    outcome = await NODE_TYPES[made["type"]](step, made["config"])
    assert outcome.handle in ("next", "met"), outcome
    assert noted.asked is not None
    assert noted.asked.timeout_ms == limit_ms


@pytest.mark.claim("L7")
@pytest.mark.parametrize("given", ["0", "-1", "999", "604800001", "none"])
def test_there_is_always_a_limit_for_commands(given: str) -> None:
    with pytest.raises(SettingsError, match="INFLOOP_MAX_COMMAND_MS"):
        load_settings({"INFLOOP_MAX_COMMAND_MS": given, "HOME": "/nonexistent"})
    assert load_settings({"HOME": "/nonexistent"}).max_command_ms == TWO_HOURS_MS
