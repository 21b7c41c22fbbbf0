"""The tool that runs commands, at every level that this machine has."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infloop.model.capabilities import ToolRule
from infloop.policy.environment import ChildEnvironment
from infloop.tools.gate import MAX_TEXT_CHARS
from support.confinement import LEVELS
from support.eventually import eventually
from support.paths import ROOT
from support.processes import DEADLINE_S, ENV, alive, new_token
from support.tools import Person, shell_bench

levels = pytest.mark.parametrize("level", LEVELS)
MADE = frozenset({"PWD", "SHLVL", "_", "HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME"})
"""Variables that bash sets, and those that a level sets for a private home and temp."""
CONFINING = [level for level in LEVELS if level != "host"]


@pytest.mark.claim("L8")
@levels
async def test_a_command_runs_in_bash_and_its_exit_code_is_told(level: str) -> None:
    async with shell_bench(level) as bench:
        said = await bench.text(
            "shell", command='[[ -n $BASH_VERSION ]] && a=(x y) && echo "${a[1]}"'
        )
        assert said == "exit code 0\ny"
        said = await bench.text("shell_exec", command="echo out; echo err >&2; exit 7")
        assert said == "exit code 7\nout\n[standard error]\nerr"
        assert (await bench.text("shell", command="nosuchprogram")).startswith("exit code 127\n")
        killed = await bench.text("shell", command="kill -9 $$")
        assert killed.startswith("exit code 137" if level == "sandbox" else "killed by signal 9")
        assert await bench.text("shell", command="read line; echo [$line]") == "exit code 0\n[]"


async def test_without_bash_it_is_sh(tmp_path: Path) -> None:
    (tmp_path / "echo").symlink_to("/bin/echo")
    tmp_path.chmod(0o755)
    async with shell_bench("host", env={"PATH": str(tmp_path)}) as bench:
        said = await bench.text("shell", command="echo ${BASH_VERSION:-none} $0")
        assert said.startswith("exit code 0\n")
        assert said.endswith("/bin/sh")


@pytest.mark.claim("L5")
@levels
async def test_a_command_starts_in_the_workspace(level: str) -> None:
    async with shell_bench(level) as bench:
        said = await bench.text("shell", command="pwd -P; echo made > here; cat here")
        assert said == f"exit code 0\n{os.path.realpath(bench.directory)}\nmade"
        assert (bench.directory / "here").read_text() == "made\n"


@pytest.mark.claim("L5")
@pytest.mark.parametrize("level", CONFINING)
async def test_a_confined_command_changes_nothing_outside_the_workspace(level: str) -> None:
    async with shell_bench(level) as bench:
        out = bench.outside
        (out / "file").write_text("intact")
        (out / "file").chmod(0o666)
        tries = (
            f"echo x > {out}/file",
            f"echo x > {out}/new",
            "echo x > ../outside/new",
            f"ln -s {out} link && echo x > link/new",
            f"ln {out}/file hard && echo x > hard",
            f"cd {out} && echo x > new",
            f"rm {out}/file < /dev/null",
            f"cat {out}/file",
        )
        for line in tries:
            said = await bench.text("shell", command=line)
            assert not said.startswith("exit code 0"), (line, said)
            assert "intact" not in said
        assert (bench.outside / "file").read_text() == "intact"
        assert [path.name for path in bench.outside.iterdir()] == ["file"]


SECRET_SCENE = """
import asyncio, json, os, sys
from infloop.policy.environment import ChildEnvironment
from infloop.sandbox.kernel.hardening import hide_from_children
from support.tools import shell_bench

async def main():
    env = ChildEnvironment(os.environ, ())()
    said = {}
    for level in sys.argv[1:]:
        async with shell_bench(level, env=env) as bench:
            said[level] = [
                (await bench.result("shell", command=line)).text
                for line in (
                    "env",
                    "cat /proc/$PPID/environ",
                    "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ",
                    f"cat /proc/{os.getpid()}/environ",
                )
            ]
    print(json.dumps(said))

hide_from_children()
asyncio.run(main())
"""


@pytest.mark.claim("L6")
def test_a_secret_of_infloop_is_not_in_the_environment_nor_in_proc() -> None:
    secret = "the-planted-secret-value"
    done = subprocess.run(
        [sys.executable, "-c", SECRET_SCENE, *LEVELS],
        env={**os.environ, "SECRET_TOKEN": secret, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    said = json.loads(done.stdout)
    assert [*said] == [*LEVELS]
    for level, texts in said.items():
        assert not any(secret in text or "SECRET_TOKEN" in text for text in texts), level
        names = {line.partition("=")[0] for line in texts[0].splitlines()[1:] if "=" in line}
        assert "PATH" in names
        assert names <= {*ChildEnvironment(os.environ, ())(), *MADE}


@pytest.mark.claim("L6")
@levels
async def test_the_environment_is_what_the_caller_gave(level: str) -> None:
    async with shell_bench(level, env={**ENV, "GIVEN": "1"}) as bench:
        said = await bench.text("shell", command="env")
        names = {line.partition("=")[0] for line in said.splitlines()[1:]}
        assert names <= {*ENV, "GIVEN", *MADE}
        assert "GIVEN=1" in said


@pytest.mark.claim("L7")
@levels
async def test_nothing_of_a_command_is_left_after_its_time_limit(level: str) -> None:
    async with shell_bench(level) as bench:
        token = new_token()
        line = (
            f"echo before; trap '' TERM INT HUP; (setsid sleep {token} &) ; nohup sleep {token} & "
            f"sleep {token}"
        )
        result = await bench.result("shell", command=line, timeout_ms=700)
        assert result.code == "timed-out"
        assert "after 700 ms" in result.text
        assert result.text.endswith("before")
        assert alive(token) == []


@pytest.mark.claim("L7")
@pytest.mark.parametrize("level", ["host"])
async def test_the_operators_limit_holds_whatever_is_asked_for(level: str) -> None:
    async with shell_bench(level, max_command_ms=300) as bench:
        for extra in ({}, {"timeout_ms": 10**9}):
            result = await bench.result("shell", command="sleep 100", **extra)
            assert result.code == "timed-out"
            assert "INFLOOP_MAX_COMMAND_MS" in result.text
        assert (await bench.result("shell", command="true", timeout_ms=0)).code == "bad-arguments"
    (shell,) = [each for each in bench.gate.definitions() if each.name == "shell"]
    assert shell.schema["properties"]["timeout_ms"]["default"] == 60_000


@levels
async def test_processes_that_a_command_leaves_behind_are_ended(level: str) -> None:
    async with shell_bench(level) as bench:
        token = new_token()
        said = await bench.text("shell", command=f"setsid sleep {token} > /dev/null 2>&1 & echo ok")
        assert said.startswith("exit code 0\nok")
        assert alive(token) == []


async def test_a_cancelled_call_leaves_nothing() -> None:
    async with shell_bench("host") as bench:
        token = new_token()
        call = asyncio.create_task(bench.result("shell", command=f"sleep {token}"))
        await asyncio.to_thread(eventually, lambda: alive(token))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert alive(token) == []
        assert bench.audit.entries[-1].outcome == "interrupted"


async def test_long_output_keeps_its_start_and_its_end() -> None:
    async with shell_bench("host") as bench:
        said = await bench.text("shell", command="echo first; seq 1000000; echo last; exit 3")
        assert said.startswith("exit code 3\nfirst\n")
        assert said.endswith("\nlast")
        assert len(said) < MAX_TEXT_CHARS + 100


async def test_a_command_that_no_shell_takes_is_refused() -> None:
    async with shell_bench("host") as bench:
        for line in ("", "  \n"):
            assert (await bench.result("shell", command=line)).code in (
                "command-is-empty",
                "bad-arguments",
            )
        assert (await bench.result("shell", command="echo a\0b")).code == "command-invalid"


# -- permission ------------------------------------------------------------------------------------


async def test_a_person_is_asked_about_a_destructive_command_and_not_about_others() -> None:
    person = Person(allows=False)
    async with shell_bench("sandbox", rules=(), ask=person) as bench:
        await bench.text("shell", command="echo hello | grep h")
        assert not person.questions
        (bench.directory / "x").write_text("x")
        for tool in ("shell", "shell_exec"):
            result = await bench.result(tool, command="echo hello; rm -f x")
            assert result.code == "denied"
        assert (bench.directory / "x").exists()
        assert [each.title for each in person.questions] == ["shell: echo hello; rm -f x"] * 2


async def test_a_rule_for_one_command_does_not_allow_another_in_the_same_line() -> None:
    rules = [ToolRule("execute", "allow", "touch *"), ToolRule("execute", "deny", "cat *")]
    async with shell_bench("sandbox", rules=rules) as bench:
        await bench.text("shell", command="touch a")
        for line in (
            "touch a; rm b",
            "touch $(rm b)",
            "touch a && env cat b",
            "touch a | xargs -n 1 cat b",
            "touch a; c''at b",
            "touch a; sh -c 'cat b'",
        ):
            assert (await bench.result("shell", command=line)).code == "denied", line


async def test_a_person_is_asked_about_everything_at_level_host() -> None:
    person = Person(allows=True)
    async with shell_bench("host", rules=(), ask=person) as bench:
        assert await bench.text("shell", command="echo hello") == "exit code 0\nhello"
        assert len(person.questions) == 1
    async with shell_bench("host", rules=()) as bench:
        assert (await bench.result("shell", command="echo hello")).code == "denied"
