"""Commands that must succeed, and checks that must be able to run, with real children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.runs import Finished, world
from support.workflows import edges, node, workflow

START = node("s", "start")


async def one(tmp_path: Path, made: dict[str, Any], *, inputs: Any = None) -> Finished:
    tree = workflow([START, made], edges("s next n"), strict=True)
    async with world(tmp_path) as here:
        return await here.run(tree, inputs=inputs)


def command(cmd: str, **config: Any) -> dict[str, Any]:
    return node("n", "command", cmd=cmd, **config)


def check(cmd: str, **config: Any) -> dict[str, Any]:
    return node("n", "condition", kind="command", command={"cmd": cmd, **config})


async def test_a_command_that_succeeds_gives_what_it_printed(tmp_path: Path) -> None:
    Path(tmp_path, "work", "there").mkdir(parents=True)
    made = command('echo "$X" in ${PWD##*/}; echo oops >&2', cwd="there", env={"X": "{{inputs.x}}"})
    done = await one(tmp_path, made, inputs={"x": "$(id)"})
    out = done.scope["n"]
    assert done.status == "succeeded", done.result
    assert (out["stdout"], out["stderr"], out["exitCode"]) == ("$(id) in there\n", "oops\n", 0)
    assert out["timedOut"] is False
    assert out["durationMs"] >= 0


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (command("echo so be it; exit 3"), "exit 3: so be it"),
        (command("no-such-program-here"), "no-such-program-here"),
        (command("kill -9 $$"), "killed by signal 9"),
        (command("sleep 60", timeoutMs=50), "command timed out after 50ms"),
        (command("true", cwd="gone"), "is not a directory"),
        (command("  "), "the command is empty"),
    ],
)
async def test_a_command_that_fails_says_why(
    tmp_path: Path, made: dict[str, Any], reason: str
) -> None:
    done = await one(tmp_path, made)
    assert done.status == "failed"
    assert reason in done.result.error
    assert reason in done.scope["n"]["errorMessage"]


async def test_a_check_that_must_run_is_an_error_when_it_cannot(tmp_path: Path) -> None:
    script = Path(tmp_path, "work", "not-executable")
    script.parent.mkdir()
    script.write_text("")
    for cmd in ("no-such-program-here", "./not-executable"):
        done = await one(tmp_path, check(cmd, mustRun=True))
        assert done.status == "failed"
        assert "the check cannot run" in done.result.error
    done = await one(tmp_path, check("exit 127", mustRun=False))
    assert "its condition was not met (exit 127)" in done.result.error
