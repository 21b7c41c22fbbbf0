"""Agents that are programs: their command lines, their variables, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from infloop.errors import StepError
from infloop.model.provider import CliProvider, parse_provider
from infloop.nodes.agent import perform
from infloop.nodes.base import Interpreters, Outcome, StepContext
from infloop.policy.environment import child_environment
from infloop.providers import SHIPPED_DIR
from infloop.providers.base import (
    Answer,
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    RateLimited,
    Stderr,
    Text,
    Usage,
)
from infloop.providers.cli.agent import CliAgent
from infloop.providers.cli.arguments import command_line
from infloop.providers.programs import program_variable
from infloop.sandbox.levels.host import HostSandbox
from support.cli_agents import CLAUDE_TEXT, DEADLINE_S, Bench, manifest, request
from support.eventually import eventually_async
from support.provider_conformance import VARIABLES, program, recorded
from support.thorough import amount

SHIPPED = ("claude", "codex", "gemini", "opencode")


def shipped(name: str) -> CliProvider:
    read, problems = parse_provider((SHIPPED_DIR / f"{name}.json").read_bytes())
    assert isinstance(read, CliProvider)
    assert problems == []
    return read


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def notices(parts: Sequence[AnswerPart]) -> list[str]:
    return [part.line for part in parts if isinstance(part, ProviderNotice)]


def said(parts: Sequence[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


# -- the command line --------------------------------------------------------------------------

ODD = "$& $1 `x` \\n {agent} {prompt}"


@pytest.mark.parametrize(
    ("args", "fields", "argv"),
    [
        (["{prompt}"], {}, ["hello"]),
        (["-p", "{prompt}"], {}, ["-p", "hello"]),
        (["--p={prompt}", "again {prompt}{prompt}"], {}, ["--p=hello", "again hellohello"]),
        (["--agent", "{agent}", "{prompt}"], {"agent": " rev "}, ["--agent", "rev", "hello"]),
        (["--agent", "{agent}", "{prompt}"], {}, ["hello"]),
        (["--agent", "{agent}", "{prompt}"], {"agent": "  "}, ["hello"]),
        (["run", "{agent}", "{prompt}"], {}, ["run", "hello"]),
        (["-v", "--agent={agent}", "{prompt}"], {}, ["-v", "hello"]),
        (["--agent={agent}", "{prompt}"], {"agent": "rev"}, ["--agent=rev", "hello"]),
        (["--model", "{model}", "{prompt}"], {"model": "m"}, ["--model", "m", "hello"]),
        (["--a", "{agent}", "--m", "{model}", "{prompt}"], {}, ["hello"]),
        (["-v", "{agent}", "{model}", "{prompt}"], {}, ["hello"]),
        (["{prompt}"], {"prompt": ODD}, [ODD]),
        (["{unknown}", "{prompt}"], {}, ["{unknown}", "hello"]),
        (["--", "{prompt}"], {"prompt": "--danger"}, ["--", "--danger"]),
        (["--prompt={prompt}"], {"prompt": "--danger"}, ["--prompt=--danger"]),
        (["{prompt}"], {"prompt": ""}, [""]),
        (["{prompt}"], {"prompt": "half \ud83d"}, ["half ?"]),
    ],
)  # fmt: skip
def test_values_take_the_places_in_the_arguments(
    args: list[str], fields: dict[str, Any], argv: list[str]
) -> None:
    command = command_line(manifest(args=args), request(**fields))
    assert command.argv == ("agent", *argv)
    assert command.stdin is None


def test_by_stdin_the_prompt_goes_there_and_its_place_is_left_alone() -> None:
    by_stdin = manifest(args=["-", "{prompt}"], promptVia="stdin")
    command = command_line(by_stdin, request("--danger \0 $&\n"))
    assert command.argv == ("agent", "-", "{prompt}")
    assert command.stdin == b"--danger \0 $&\n"


@pytest.mark.parametrize(
    ("args", "extras", "argv"),
    [
        (["-v", "{prompt}"], ["--yes"], ["--yes", "-v", "hello"]),
        (["run", "{prompt}"], ["--yes"], ["run", "--yes", "hello"]),
        (["run", "-p", "{prompt}"], ["--yes"], ["run", "--yes", "-p", "hello"]),
        (["run", "--", "{prompt}"], ["--yes"], ["run", "--yes", "--", "hello"]),
    ],
)
def test_added_arguments_come_before_the_prompt(
    args: list[str], extras: list[str], argv: list[str]
) -> None:
    some = manifest(args=args, dangerousArgs=extras)
    assert command_line(some, request(skip_permissions=True)).argv == ("agent", *argv)
    assert "--yes" not in command_line(some, request()).argv


def test_a_session_is_continued_with_the_arguments_for_it() -> None:
    some = manifest(
        args=["exec", "-"], promptVia="stdin", resumeArgs=["resume", "{session}"],
        dangerousArgs=["--yes"],
    )  # fmt: skip
    both = command_line(some, request(session_id="a-1", skip_permissions=True))
    assert both.argv == ("agent", "exec", "--yes", "resume", "a-1", "-")
    assert command_line(some, request()).argv == ("agent", "exec", "-")


def test_a_judge_of_the_shipped_agents_has_no_permission_to_change_anything() -> None:
    asked = request("Judge this", kind="judge", model="m")
    for confined in (False, True):
        claude = command_line(shipped("claude"), asked, confined=confined)
        assert claude.argv[-3:] == ("--model", "m", "Judge this")
        assert "--permission-mode" not in claude.argv
        codex = command_line(shipped("codex"), asked, confined=confined)
        assert codex.argv[codex.argv.index("--sandbox") + 1] == "read-only"
        assert (codex.argv[-3:], codex.stdin) == (("--model", "m", "-"), b"Judge this")


@pytest.mark.parametrize("prompt", ["- strict", "long " * 30_000, "NUL \0"])
def test_a_judges_prompt_that_is_no_argument_goes_to_its_input(prompt: str) -> None:
    command = command_line(shipped("claude"), request(prompt, kind="judge"))
    assert command.stdin == prompt.encode()
    assert "{prompt}" not in command.argv
    assert all(prompt not in argument for argument in command.argv)


@pytest.mark.parametrize(
    ("fields", "asked", "reason"),
    [
        ({"args": ["{prompt}"]}, {"prompt": "--dangerously-skip"}, "read as an option"),
        ({"args": ["-p", "{prompt}"]}, {"prompt": "- a list"}, "read as an option"),
        ({"args": ["-a", "{agent}", "{prompt}"]}, {"agent": "--yes"}, "read as an option"),
        ({"args": ["-m", "{model}", "{prompt}"]}, {"model": "-x"}, "read as an option"),
        ({"args": ["-v"]}, {}, "hold no '{prompt}'"),
        ({"args": ["{prompt}"]}, {"prompt": "a\0b"}, "NUL"),
        ({"args": ["{prompt}"]}, {"prompt": "x" * 200_000}, "promptVia to 'stdin'"),
        ({"args": ["{prompt}"]}, {"session_id": "../x"}, "not the id of a session"),
        ({"args": ["{prompt}"], "bin": "./agent"}, {}, "its whole path"),
    ],
)
def test_what_cannot_be_a_command_is_refused_with_the_way_out(
    fields: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(StepError, match=reason):
        command_line(manifest(**fields), request(**asked))


def test_what_a_manifest_cannot_do_for_a_request_is_noticed() -> None:
    asked = request(agent="rev", model="m", session_id="s", skip_permissions=True)
    topics = [
        notice.line.split()[0]
        for notice in command_line(manifest(args=["{prompt}"]), asked).notices
    ]
    assert topics == ["[permissions]", "[session]", "[agent]", "[model]"]
    assert command_line(manifest(args=["{prompt}"]), request()).notices == ()


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("claude", "INFLOOP_PROVIDER_BIN_CLAUDE"), ("my-agent.2", "INFLOOP_PROVIDER_BIN_MY_AGENT_2")],
)
def test_the_variable_that_names_another_program(provider: str, variable: str) -> None:
    assert program_variable(provider) == variable


# -- the manifests that come with infloop ------------------------------------------------------


def test_four_programs_come_with_infloop_as_manifests() -> None:
    manifests = {path.stem: json.loads(path.read_text()) for path in SHIPPED_DIR.glob("*.json")}
    programs = [name for name, manifest in manifests.items() if "bin" in manifest]
    assert tuple(sorted(programs)) == SHIPPED


@pytest.mark.claim("I34")
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_manifest_leaves_permission_prompts_on(name: str) -> None:
    words = ("danger", "skip-perm", "bypass", "yolo", "auto", "approv", "trust", "full-access")
    argv = command_line(shipped(name), request(agent="a", model="m", session_id="s")).argv
    assert [argument for argument in argv if any(word in argument for word in words)] == []
    assert shipped(name).dangerous_args


@pytest.mark.parametrize("name", SHIPPED)
def test_where_it_is_confined_only_codex_gives_up_its_own_sandbox(name: str) -> None:
    # It cannot start one inside ours, which allows writing in the working directory alone.
    words = ("danger", "skip-perm", "bypass", "yolo", "auto", "approv", "trust", "full-access")
    argv = command_line(shipped(name), request(), confined=True).argv
    found = [argument for argument in argv if any(word in argument for word in words)]
    assert found == (["danger-full-access"] if name == "codex" else [])


@pytest.mark.claim("I35")
@pytest.mark.parametrize("name", SHIPPED)
def test_skipping_permissions_adds_the_dangerous_arguments_to_that_request_alone(name: str) -> None:
    agent = shipped(name)
    with_them = command_line(agent, request(skip_permissions=True)).argv
    assert set(agent.dangerous_args) <= set(with_them)
    left = tuple(one for one in with_them if one not in agent.dangerous_args)
    usual = tuple(one for one in command_line(agent, request()).argv if one not in agent.host_args)
    assert left == usual


@pytest.mark.claim("I43")
@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("claude", "api.anthropic.com"),
        ("codex", "api.openai.com"),
        ("gemini", "generativelanguage.googleapis.com"),
        ("opencode", "opencode.ai"),
    ],
)
def test_a_shipped_manifest_names_the_hosts_of_its_api_one_by_one(name: str, host: str) -> None:
    hosts = shipped(name).egress_allowlist
    assert hosts is not None
    assert host in hosts
    assert [one for one in hosts if "*" in one] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_manifest_takes_any_prompt(name: str) -> None:
    prompt = "--dangerously-skip-permissions\n$& {agent}" + "x" * 300_000
    command = command_line(shipped(name), request(prompt))
    assert command.stdin == prompt.encode()


# -- asking --------------------------------------------------------------------------------------


async def test_the_program_is_asked_in_the_directory_of_the_request(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, 'echo "$@"; pwd; cat stdin', args=["--agent", "{agent}"])
    prompt = "$& `rm` {agent} — \x1b\n  end"
    parts = await bench.parts(prompt, agent="rev")
    assert said(parts) == f"--agent rev\n{tmp_path}\n{prompt}"
    assert parts[-1] == Done(0)


@pytest.mark.claim("I30")
async def test_a_manifest_adds_its_variables_and_no_others(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    planted = {
        "PATH": VARIABLES["PATH"],
        "SOME_KEY": "exact",
        "MANY_A": "by prefix",
        "MANY_B": "by prefix",
        "MANYX": "not below the prefix",
        "OTHER_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "INFLOOP_API_TOKEN": "secret",
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
    }
    names = ["SOME_KEY", "MANY_*", "CLAUDECODE", "CLAUDE_CODE_*", "NOT_SET"]
    some = manifest(bin=str(program(tmp_path, "env")), promptVia="stdin", envPassthrough=names)
    agent = CliAgent(some, sandbox, lambda wanted: child_environment(planted, wanted, {}))
    parts = [part async for part in agent.ask(request(cwd=str(tmp_path)))]
    got = dict(line.split("=", 1) for line in said(parts).splitlines())
    assert {name for name in got if name in planted} == {"PATH", "SOME_KEY", "MANY_A", "MANY_B"}
    assert got["MANY_B"] == "by prefix"


SECRETS = """
CLAUDECODE CLAUDE_CODE_ENTRYPOINT CLAUDE_CODE_SSE_PORT CLAUDE_CODE_SESSION_ID
CODEX_SANDBOX CODEX_SANDBOX_NETWORK_DISABLED GEMINI_CLI INFLOOP_API_TOKEN
INFLOOP_SECRET_KEY AWS_SECRET_ACCESS_KEY GH_TOKEN SSH_AUTH_SOCK LD_PRELOAD
"""


@pytest.mark.claim("I30")
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_agent_never_learns_of_another_agents_session_or_our_secrets(name: str) -> None:
    planted = dict.fromkeys(SECRETS.split(), "planted")
    keys = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY"}
    key = keys.get(name, "GEMINI_API_KEY")
    got = child_environment({**planted, key: "its own"}, shipped(name).env_passthrough, {})
    assert got == {key: "its own"}


async def test_another_program_takes_the_place_of_the_manifests(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    other = str(program(tmp_path, "echo other"))
    some = manifest(bin="not-there", promptVia="stdin")
    agent = CliAgent(some, sandbox, lambda _: dict(VARIABLES), program=other)
    assert said([part async for part in agent.ask(request(cwd=str(tmp_path)))]) == "other\n"


@pytest.mark.parametrize("missing", ["no-such-agent", "/no/such/agent"])
async def test_a_program_that_is_not_there_cannot_be_asked(
    missing: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    agent = CliAgent(manifest(bin=missing, promptVia="stdin"), sandbox, lambda _: dict(VARIABLES))
    with pytest.raises(StepError, match=f"{missing}.*INFLOOP_PROVIDER_BIN_SOME"):
        await anext(agent.ask(request(cwd=str(tmp_path))))


async def test_diagnostics_are_kept_apart(tmp_path: Path, sandbox: HostSandbox) -> None:
    parts = await Bench(tmp_path, sandbox, "echo out; echo err >&2").parts()
    assert said(parts) == "out\n"
    assert "".join(part.text for part in parts if isinstance(part, Stderr)) == "err\n"


# -- how it ends ---------------------------------------------------------------------------------

CLAUDE = {"outputFormat": "claude-stream-json"}


def beats(frame: dict[str, Any]) -> str:
    return f"echo $$ > pids; while true; do echo; echo '{json.dumps(frame)}'; sleep 0.05; done"


HANG = "sleep 1000 & echo $! > pids; echo $$ >> pids; wait"


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("cat claude.text", Done(0, "It is DONE")),
        ("cat claude.text; exit 1", Done(1, "It is DONE", "the agent left with exit code 1")),
        (
            "cat claude.text; kill -15 $$",
            Done(None, "It is DONE", "the agent was ended by signal 15"),
        ),
        (
            'sed s/\\"is_error\\":false/\\"is_error\\":true/ claude.text',
            Done(0, "It is DONE", "It is DONE"),
        ),
        (
            "sed s/:.success./:null/ claude.text; exit 2",
            Done(2, "It is DONE", "It is DONE"),
        ),
        ("head -n 6 claude.text", Done(0)),
        ("head -c 4000 claude.text", Done(0)),
        ("head -n 6 claude.text; exit 4", Done(4, None, "the agent left with exit code 4")),
        ("echo just text", Done(0)),
        ("true", Done(0)),
    ],
)
async def test_it_is_finished_only_if_its_result_and_its_exit_code_say_so(
    script: str, ending: Done, tmp_path: Path, sandbox: HostSandbox
) -> None:
    assert await Bench(tmp_path, sandbox, script, **CLAUDE).done() == ending


@pytest.mark.parametrize("output_format", ["claude-stream-json", "codex-json", "plain"])
@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("true", True),
        ("echo just text", True),
        ("head -n 2 claude.text", True),
        ("cat claude.text", False),
        ("exit 3", False),
        ("kill -9 $$", False),
    ],
)
async def test_a_program_that_exits_with_0_and_printed_no_result_is_warned_about(
    script: str, warned: bool, output_format: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    if output_format == "codex-json":
        script = script.replace("claude.text", "codex.text")
        (tmp_path / "codex.text").write_text(recorded("codex.text.jsonl"))
    parts = await Bench(tmp_path, sandbox, script, outputFormat=output_format).parts()
    warnings = [part for part in parts if isinstance(part, ProviderNotice) and part.is_warning]
    assert bool(warnings) == (warned and output_format != "plain"), parts


async def test_a_program_that_hangs_after_its_result_is_ended_and_has_finished(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, f"cat claude.text; {HANG}", **CLAUDE, after_result_ms=300)
    parts = await bench.parts()
    assert parts[-1] == Done(0, "It is DONE")
    assert Cost(0.000865) in parts
    assert bench.running() == []


async def test_what_a_program_says_after_its_result_does_not_keep_it_alive(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    chatter = "cat claude.text; while true; do cat claude.text; echo x >&2; sleep 0.05; done"
    bench = Bench(tmp_path, sandbox, chatter, **CLAUDE, after_result_ms=300)
    parts = await bench.parts()
    assert parts[-1] == Done(0, "It is DONE")
    assert [part for part in parts if isinstance(part, Cost)] == [Cost(0.000865)]


async def test_a_failed_program_that_hangs_after_its_result_has_failed(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    (tmp_path / "limit").write_text(recorded("claude.limit.jsonl"))
    bench = Bench(tmp_path, sandbox, f"cat limit; {HANG}", **CLAUDE, after_result_ms=300)
    parts = await bench.parts()
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert ending.exit_code is None
    assert ending.error == "rate limited until 2027-01-15T08:00:00Z"
    assert RateLimited(1_800_000_000_000) in parts


@pytest.mark.parametrize(
    "silence",
    [
        HANG,
        f"head -n 6 claude.text; {HANG}",
        beats({"type": "keep_alive"}),
        beats({"type": "stream_event", "event": {"type": "ping"}}),
    ],
)
async def test_a_program_that_says_nothing_for_too_long_has_stalled(
    silence: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, silence, **CLAUDE)
    assert await bench.done(idle_timeout_ms=1500) == Done(
        None, error="stalled: no output for 1500 ms"
    )
    assert bench.running() == []


async def test_cancelled_again_and_again_it_still_leaves_no_process(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    stubborn = (
        f"trap '' TERM; {HANG.replace('sleep 1000', '(trap - TERM; sleep 1000)')}; sleep 1000"
    )
    bench = Bench(tmp_path, sandbox, stubborn)
    task = asyncio.create_task(bench.parts())
    pids = tmp_path / "pids"
    await eventually_async(lambda: pids.exists() and len(pids.read_text().split()) == 2)

    def cancelled() -> bool:
        task.cancel()
        return task.done()

    await eventually_async(cancelled, every_s=0.1)
    assert task.cancelled()
    assert bench.running() == []


async def test_what_outlives_the_program_is_ended_and_told(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    outliving = "sleep 1000 > /dev/null 2>&1 & echo $! > pids; cat claude.text"
    bench = Bench(tmp_path, sandbox, outliving, **CLAUDE)
    parts = await bench.parts()
    assert notices(parts) == ["[processes] 1 outlived the agent and were ended"]
    assert parts[-1] == Done(0, "It is DONE")
    assert bench.running() == []


@pytest.mark.thorough
async def test_very_many_frames_are_heard_to_their_end_in_bounded_memory(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    lines = CLAUDE_TEXT.splitlines(keepends=True)
    word = next(line for line in lines if '"text_delta"' in line)
    frame = word.replace('"text":"It"', f'"text":"{"x" * 1000}"')
    (tmp_path / "piece").write_text(frame * 1000)
    pieces = amount(120 << 20, thorough=200 << 20) // len(frame * 1000) + 1
    begin, rest = "head -n 5 claude.text", "tail -n +6 claude.text"
    flood = f"{begin}; i=0; while [ $i -lt {pieces} ]; do cat piece; i=$((i+1)); done; {rest}"
    bench = Bench(tmp_path, sandbox, flood, **CLAUDE)
    process, message_text, ending = psutil.Process(), 0, None
    before = most = process.memory_info().rss
    async with asyncio.timeout(4 * DEADLINE_S), aclosing(bench.ask()) as parts:
        async for part in parts:
            match part:
                case Text(text):
                    message_text += len(text)
                    most = max(most, process.memory_info().rss)
                case ProviderNotice():
                    raise AssertionError(part)
                case Done():
                    ending = part
    assert ending == Done(0, "It is DONE")
    assert message_text == pieces * 1000 * 1000 + len("It is DONE")
    assert most - before < 64 << 20


async def test_a_line_without_end_is_cut_and_the_rest_is_read(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    flood = "head -c 100000000 /dev/zero | tr '\\0' x; echo; cat claude.text"
    parts = await Bench(tmp_path, sandbox, flood, **CLAUDE).parts(idle_timeout_ms=20_000)
    assert notices(parts) == ["[output] a line was cut after 8388608 characters"]
    assert said(parts) == "It is DONE"
    assert parts[-1] == Done(0, "It is DONE")


async def test_a_program_that_says_more_than_is_taken_has_to_wait_and_has_not_stalled(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    flood = "seq -f %0200.0f 50000"  # ten megabytes, which no buffer holds
    bench = Bench(tmp_path, sandbox, f"echo $$ > pids; {flood}; touch all-said")
    async with asyncio.timeout(DEADLINE_S), aclosing(bench.ask(idle_timeout_ms=500)) as parts:
        heard = [await anext(parts)]
        writer = psutil.Process(bench.running()[0])
        await eventually_async(
            lambda: any(waits_for_a_reader(child) for child in writer.children())
        )
        assert not (tmp_path / "all-said").exists()
        heard += [part async for part in parts]
    assert said(heard).count("\n") == 50_000
    assert heard[-1] == Done(0)


def waits_for_a_reader(process: psutil.Process) -> bool:
    return "pipe_write" in Path(f"/proc/{process.pid}/wchan").read_text()


async def test_a_slow_listener_gets_everything(tmp_path: Path, sandbox: HostSandbox) -> None:
    bench = Bench(tmp_path, sandbox, "seq 20000")
    heard = []
    async with asyncio.timeout(DEADLINE_S), aclosing(bench.ask()) as parts:
        async for part in parts:
            heard.append(part)
            if len(heard) % 100 == 0:
                await asyncio.sleep(0)
    assert said(heard) == "".join(f"{n}\n" for n in range(1, 20_001))
    assert len(heard) < 1000


# -- through the node ----------------------------------------------------------------------------


async def through_the_node(
    tmp_path: Path, sandbox: HostSandbox, agent: CliAgent, **config: Any
) -> tuple[Outcome, list[tuple[str, str]]]:
    shown: list[tuple[str, str]] = []

    async def drain() -> None: ...

    async def allows_directory(_: str) -> bool:
        return True

    step = StepContext(
        run_id="r",
        path="n",
        node="n",
        iteration=0,
        attempt=1,
        workdir=str(tmp_path),
        allows_directory=allows_directory,
        write_output=lambda text, stream, _tool=None: shown.append((text, stream)),
        drain=drain,
        sandbox=lambda: sandbox,
        environment=lambda extra=None: dict(VARIABLES),
        provider=lambda _: agent,
        interpreters=Interpreters(),
        max_output_bytes=1 << 20,
        max_command_ms=60_000,
    )
    return await perform(step, {"providerId": "some", "prompt": "hello", **config}), shown


@pytest.mark.claim("I1")
@pytest.mark.parametrize(
    ("output_format", "transcript", "said_by_it", "extra"),
    [
        ("plain", "claude.text.jsonl", CLAUDE_TEXT, {}),
        ("claude-stream-json", "claude.text.jsonl", "It is DONE", {"costUsd": 0.000865}),
        ("codex-json", "codex.text.jsonl", "It is DONE", {}),
    ],
)
async def test_an_agent_node_starts_the_program_that_a_manifest_describes(
    output_format: str, transcript: str, said_by_it: str, extra: dict[str, Any],
    tmp_path: Path, sandbox: HostSandbox,
) -> None:  # fmt: skip
    (tmp_path / "printed").write_text(recorded(transcript))
    bench = Bench(tmp_path, sandbox, "cat printed", outputFormat=output_format)
    outcome, shown = await through_the_node(tmp_path, sandbox, bench.agent)
    assert outcome.handle == "next", outcome
    assert outcome.outputs["stdout"] == said_by_it
    assert outcome.outputs["exitCode"] == 0
    assert {key: outcome.outputs.get(key) for key in extra} == extra
    assert "".join(text for text, stream in shown if stream == "stdout") == said_by_it
    assert (tmp_path / "stdin").read_text() == "hello"


@pytest.mark.claim("I35")
async def test_skipping_permissions_on_a_node_reaches_its_program_and_no_other(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, 'echo "$@"', args=["run"], dangerousArgs=["--yes"])
    skipping, _ = await through_the_node(tmp_path, sandbox, bench.agent, skipPermissions=True)
    asking, _ = await through_the_node(tmp_path, sandbox, bench.agent)
    assert skipping.outputs["stdout"] == "run --yes\n"
    assert asking.outputs["stdout"] == "run\n"


# -- what was collected --------------------------------------------------------------------------


def test_an_answer_adds_up_what_was_used() -> None:
    answer = Answer(1 << 10)
    for part in (Usage(10, 1, 5, 2, "m"), Usage(5, 2), RateLimited(7), ProviderNotice("[x] y")):
        answer.add(part)
    assert answer.usage == Usage(15, 3, 5, 2, "m")
    assert answer.rate_limited_until_ms == 7
    assert "[x] y" in answer.transcript
    assert answer.text == ""


def test_usage_beyond_what_was_counted_is_never_less_than_nothing() -> None:
    counted = Usage(10, 10, 10, 10)
    assert Usage(15, 5, 10, 12, "m").since(counted) == Usage(5, 0, 0, 2, "m")
    assert replace(counted, model="m").since(counted).has_tokens is False
