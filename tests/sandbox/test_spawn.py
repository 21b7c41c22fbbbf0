"""Children: how they start, what they are given, what they leave behind (nothing)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox
from infloop.sandbox.keepers import keeper
from infloop.sandbox.keepers.capture import Capture
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.keeper_sandbox import find_program
from support.eventually import eventually_async
from support.parts import ruled_out_if
from support.processes import (
    DEADLINE_S,
    ENV,
    SERVER,
    alive,
    new_token,
    peak_kib,
    program_name,
    reset_peak,
)
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MIB = 1 << 20

both_loops = pytest.mark.parametrize(
    "run_loop", [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
)


@contextlib.asynccontextmanager
async def host() -> AsyncIterator[Sandbox]:
    sandbox: Sandbox = HostSandbox()
    try:
        yield sandbox
    finally:
        await sandbox.close()


def request(*argv: str, **more: Any) -> ChildRequest:
    return ChildRequest(argv=argv, **{"cwd": "/tmp", "env": ENV, **more})


def shell(script: str, **more: Any) -> ChildRequest:
    return request("sh", "-c", script, **more)


async def run_one(child: ChildRequest, **more: Any) -> ChildResult:
    async with host() as sandbox:
        return await asyncio.wait_for(sandbox.run(child, **more), DEADLINE_S)


async def run_out_of_time(script: str, **more: Any) -> ChildResult:
    """Let a script that says `ready` reach that point, and then its timeout."""
    for timeout_ms in (200, 1_000, 5_000):
        result = await run_one(shell(script, timeout_ms=timeout_ms, **more))
        if result.stdout.startswith("ready\n"):
            return result
    raise AssertionError(f"never ready: {result}")


FORGOTTEN: set[int] = set()


def keepers() -> list[int]:
    """The keepers that this test has, dead ones that were not reaped included."""
    children = map(int, Path("/proc/thread-self/children").read_text().split())
    ours = [pid for pid in children if pid not in FORGOTTEN]
    return [pid for pid in ours if "keeper" in program_name(pid)]


@pytest.fixture(autouse=True)
def _forget_keepers_of_other_tests() -> None:
    """What a killed server leaves is adopted by this process, and stays until the tests end."""
    FORGOTTEN.clear()
    FORGOTTEN.update(keepers())


# How it ends


@pytest.mark.parametrize(
    ("script", "code", "by_signal"),
    [
        ("true", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("kill -KILL $$", None, signal.SIGKILL),
        ("kill -SEGV $$", None, signal.SIGSEGV),
        ("trap 'exit 7' TERM; kill -TERM $$", 7, None),
    ],
)
async def test_the_exit_code_or_the_signal_is_reported(
    script: str, code: int | None, by_signal: int | None
) -> None:
    result = await run_one(shell(script))
    assert (result.exit_code, result.signal) == (code, by_signal)
    assert (result.error, result.timed_out, result.leftovers) == ("", False, 0)


@both_loops
def test_output_and_exit_code_arrive_under_either_event_loop(run_loop: Callable[..., Any]) -> None:
    pieces: list[tuple[str, str]] = []
    child = shell("echo out; echo err >&2; exit 4")
    result = run_loop(run_one(child, on_output=lambda *piece: pieces.append(piece)))
    assert (result.exit_code, result.stdout, result.stderr) == (4, "out\n", "err\n")
    assert sorted(pieces) == [("stderr", "err\n"), ("stdout", "out\n")]


@pytest.mark.parametrize(
    ("argv", "more", "error"),
    [
        ((), {}, "no program was given"),
        (("",), {}, "program '' was not found on PATH"),
        (("nosuchprogram",), {}, "program 'nosuchprogram' was not found on PATH"),
        (("/no/such/program",), {}, "program '/no/such/program' does not exist"),
        (("/etc/passwd",), {}, "program '/etc/passwd' could not be started: Permission denied"),
        (("sh",), {"cwd": "/no/such/dir"}, "cwd '/no/such/dir' does not exist"),
        (("sh",), {"cwd": "/etc/passwd"}, "cwd '/etc/passwd' is not a directory"),
        (("sh",), {"cwd": "/no\n\udcff"}, "cwd '/no\\n\\udcff' does not exist"),
        (("sh", "a\0b"), {}, "the child could not be started: 'a\\x00b' holds a NUL character"),
        (("sh",), {"cwd": "/\0"}, "the child could not be started: '/\\x00' holds a NUL character"),
        (
            ("/bin/sh",),
            {"env": {"A=B": "c"}},
            "the child could not be started: 'A=B' cannot be the name of an environment variable",
        ),
    ],
)
async def test_what_cannot_be_started_is_an_error_that_says_why(
    argv: tuple[str, ...], more: dict[str, Any], error: str
) -> None:
    result = await run_one(request(*argv, **more))
    assert msgspec.structs.replace(result, duration_ms=0) == ChildResult(error=error)


async def test_a_missing_interpreter_is_told_from_a_missing_program(tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = await run_one(request(str(script)))
    assert (
        result.error == f"program '{script}' names an interpreter that does not exist (first line)"
    )


async def test_a_keeper_survives_a_child_that_could_not_be_started() -> None:
    async with host() as sandbox:
        await sandbox.run(request("sh", cwd="/no/such/dir"))
        first = keepers()
        assert (await sandbox.run(shell("echo ok"))).stdout == "ok\n"
        assert keepers() == first


def test_programs_are_looked_up_on_the_absolute_entries_of_the_childs_path(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    tool = tmp_path / "here" / "tool"
    tool.write_text("")
    assert find_program("tool", f"{tmp_path}/here") is None
    tool.chmod(0o755)
    (tmp_path / "tool").mkdir()
    assert find_program("tool", f"{tmp_path}:{tmp_path}/here") == str(tool)
    with contextlib.chdir(tmp_path / "here"):
        assert find_program("tool", "::.:") is None
    assert find_program("./tool", "") == "./tool"


# What it is given


async def test_a_child_leads_its_own_session_and_group() -> None:
    result = await run_one(shell("cut -d' ' -f1,5,6 /proc/$$/stat; true"))
    pid, group, session = result.stdout.split()
    assert pid == group == session


async def test_a_child_that_lives_a_moment_is_told_with_the_process_that_runs(
    tmp_path: Path,
) -> None:
    told: list[tuple[int, int]] = []

    def note(pid: int, start_time: int) -> None:
        told.append((pid, start_time))
        (tmp_path / "told").touch()

    lines = "cut -d' ' -f1,22 /proc/$$/stat; while [ ! -e told ]; do sleep 0.01; done"
    result = await run_one(shell(lines, cwd=str(tmp_path)), on_started=note)
    assert [tuple(map(int, result.stdout.split()))] == told


@pytest.mark.parametrize(("want_result", "expected"), [(False, "0 1 2"), (True, "0 1 2 3")])
async def test_a_child_inherits_stdio_and_its_result_pipe_and_no_other_descriptor(
    want_result: bool, expected: str
) -> None:
    with Path("/etc/passwd").open() as file:
        planted = os.dup2(file.fileno(), 57, inheritable=True)
    try:
        result = await run_one(shell("ls /proc/$$/fd; true", want_result=want_result))
    finally:
        os.close(planted)
    assert result.stdout.split() == expected.split()


async def test_signals_that_the_server_ignores_or_blocks_are_back_to_normal_in_a_child() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        result = await run_one(request("grep", "^Sig[BI]", "/proc/self/status"))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGHUP, before)
    _, blocked, _, ignored = result.stdout.split()
    # 32 and 33 are glibc's own; its posix_spawn leaves them ignored in every program.
    assert (int(blocked, 16), int(ignored, 16) & ~(0b11 << 31)) == (0, 0)


async def test_children_are_watched_also_where_sigchld_is_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = await run_one(shell("exit 5"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (result.exit_code, result.error) == (5, "")


async def test_the_working_directory_is_the_requested_one(tmp_path: Path) -> None:
    async with host() as sandbox:
        assert (await sandbox.run(request("pwd", cwd=str(tmp_path)))).stdout == f"{tmp_path}\n"


@ruled_out_if(os.geteuid() != 0, "only root sees where a keeper works")
async def test_the_working_directory_is_let_go_afterwards(tmp_path: Path) -> None:
    async with host() as sandbox:
        await sandbox.run(request("pwd", cwd=str(tmp_path)))
        (pid,) = keepers()
        await eventually_async(lambda: str(Path(f"/proc/{pid}/cwd").readlink()) == "/")


async def test_without_input_a_child_reads_nothing() -> None:
    assert (await run_one(request("wc", "-c"))).stdout == "0\n"
    assert (await run_one(request("wc", "-c", stdin=b""))).stdout == "0\n"


@both_loops
def test_input_larger_than_a_pipe_arrives_whole(run_loop: Callable[..., Any]) -> None:
    data = random.randbytes(300_000)
    child = request("cat", stdin=data.hex().encode(), max_output_bytes=MIB)
    assert run_loop(run_one(child)).stdout == data.hex()


@both_loops
def test_input_that_is_never_read_does_not_hold_anyone_up(run_loop: Callable[..., Any]) -> None:
    assert run_loop(run_one(request("true", stdin=b"x" * 10 * MIB))).exit_code == 0


async def test_arguments_larger_than_the_socket_buffer_arrive_whole() -> None:
    arguments = [str(number) * 1000 for number in range(400)]
    result = await run_one(
        request("sh", "-c", 'printf %s "$@" | md5sum; echo $#', "sh", *arguments)
    )
    assert result.stdout.split()[-1] == "400"
    check = subprocess.run(
        ["md5sum"], input="".join(arguments), capture_output=True, text=True, check=True
    )
    assert result.stdout.split()[0] == check.stdout.split()[0]


# Its result


async def test_the_result_comes_from_its_own_descriptor_and_cannot_be_printed() -> None:
    script = """echo '{"real": 1}' >&3; echo '{"forged": 1}'; echo '{"forged": 2}' >&2"""
    result = await run_one(shell(script, want_result=True))
    assert result.result == b'{"real": 1}\n'
    assert "real" not in result.stdout + result.stderr


async def test_a_child_that_writes_no_result_gives_an_empty_one() -> None:
    assert (await run_one(shell("echo '{}'", want_result=True))).result == b""


async def test_a_result_that_was_not_asked_for_has_nowhere_to_go() -> None:
    result = await run_one(shell("echo x >&3"))
    assert (result.result, result.exit_code) == (None, 2)


async def test_an_oversized_result_is_refused_and_does_not_hang_the_child() -> None:
    child = shell("head -c 1000000 /dev/zero >&3; echo done", want_result=True)
    fits = await run_one(child)
    assert fits.result == bytes(1_000_000)
    result = await run_one(msgspec.structs.replace(child, max_result_bytes=999_999))
    assert (result.result, result.result_too_large) == (None, True)
    assert (result.stdout, result.exit_code) == ("done\n", 0)


# Its output


SIZE = amount(1 << 27, thorough=1 << 30)


@pytest.mark.thorough
@pytest.mark.parametrize("redirect", ["", ">&2"])
@both_loops
def test_an_endless_line_is_drained_in_constant_memory(
    run_loop: Callable[..., Any], redirect: str
) -> None:
    pieces: list[str] = []
    reset_peak()
    before = peak_kib()
    flood = f"echo first {redirect}; head -c {SIZE} /dev/zero {redirect}; echo last {redirect}"
    result: ChildResult = run_loop(
        run_one(shell(flood, max_output_bytes=MIB), on_output=lambda _, text: pieces.append(text))
    )
    assert peak_kib() - before < 64 * 1024
    text, omitted = max(
        (result.stdout, result.stdout_omitted), (result.stderr, result.stderr_omitted)
    )
    assert omitted == SIZE + len("first\nlast\n") - MIB
    assert text.startswith("first\n\0")
    assert text.endswith("\0last\n")
    assert f"\n[… {omitted} bytes left out …]\n" in text
    assert "".join(pieces).startswith("first\n\0")
    assert len("".join(pieces)) < MIB + 100
    assert "not shown live" in pieces[-1]


async def test_a_flood_does_not_keep_the_server_from_other_work() -> None:
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with host() as sandbox, asyncio.TaskGroup() as group:
        working = group.create_task(other_work())
        assert (await sandbox.run(shell("head -c 100M /dev/zero"))).exit_code == 0
        working.cancel()
    # One pipe holds 64 KiB, so this is many times less than one turn for each piece.
    assert turns > 100


async def test_bytes_that_are_not_utf8_are_replaced() -> None:
    pieces: list[str] = []
    child = shell(r"printf 'a\377\200b\303'; printf '\251\303' >&2")
    result = await run_one(child, on_output=lambda _, text: pieces.append(text))
    assert (result.stdout, result.stderr) == ("a\ufffd\ufffdb\ufffd", "\ufffd\ufffd")
    assert sorted("".join(pieces)) == sorted(result.stdout + result.stderr)


@given(
    chunks=st.lists(st.binary(max_size=40) | st.text("aé€😀\n", max_size=12).map(str.encode)),
    limit=st.integers(0, 64),
)
def test_capture_keeps_both_ends_and_accounts_for_every_byte(
    chunks: list[bytes], limit: int
) -> None:
    live: list[str] = []
    capture = Capture("stdout", limit, lambda _, text: live.append(text))
    for chunk in chunks:
        capture.feed(chunk)
    text, omitted = capture.finish()
    whole = b"".join(chunks)
    if len(whole) <= limit:
        assert (text, omitted) == (whole.decode("utf-8", "replace"), 0)
        assert "".join(live) == text
        return
    head, marker, tail = text.rpartition(f"\n[… {omitted} bytes left out …]\n")
    assert marker
    assert whole.decode("utf-8", "replace").startswith(head)
    assert whole.decode("utf-8", "replace").endswith(tail)
    assert len(whole) - limit <= omitted <= len(whole) - limit + 6
    assert "not shown live" in live[-1]


async def test_a_callback_that_raises_ends_the_child_and_is_raised() -> None:
    token = new_token()

    def refuse(*_: object) -> None:
        raise LookupError("no room")

    async with host() as sandbox:
        for callback in ("on_output", "on_started"):
            with pytest.raises(LookupError, match="no room"):
                await sandbox.run(shell(f"echo hello; sleep {token}"), **{callback: refuse})
            assert alive(token) == []


async def test_an_outsider_who_holds_the_pipe_open_does_not_hold_the_result_up(
    tmp_path: Path,
) -> None:
    held: list[int] = []

    def hold(_: str, text: str) -> None:
        if not held:
            held.append(os.open(f"/proc/{int(text)}/fd/1", os.O_WRONLY))
            (tmp_path / "go").touch()

    script = "echo $$; while [ ! -e go ]; do sleep 0.01; done; echo done"
    result = await run_one(shell(script, cwd=str(tmp_path)), on_output=hold)
    os.close(held[0])
    assert result.stdout.endswith("\ndone\n")
    assert result.exit_code == 0


# Its time


async def test_a_child_that_heeds_term_ends_within_its_grace() -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    result = await run_out_of_time(script, grace_ms=10_000)
    assert result.stdout == "ready\nbye\n"
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, None)
    assert result.duration_ms < 10_000


async def test_what_a_child_starts_to_clean_up_gets_no_term() -> None:
    clean_up = "i=0; while [ $i -lt 40 ]; do sleep 0.01 && echo $i; i=$((i + 1)); done; exit"
    script = f"trap '{clean_up}' TERM; echo ready; while :; do sleep 0.01; done"
    result = await run_out_of_time(script, grace_ms=30_000)
    assert result.stdout.split() == ["ready", *map(str, range(40))]


async def test_a_child_that_ignores_term_is_killed_after_its_grace() -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    result = await run_out_of_time(script, grace_ms=200)
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, signal.SIGKILL)
    assert result.duration_ms >= 400


async def test_time_spent_on_leftovers_is_not_the_childs() -> None:
    script = f"trap '' TERM; sleep {new_token()} & exit 6"
    result = await run_one(shell(script, timeout_ms=1_500, grace_ms=2_000))
    assert (result.exit_code, result.timed_out, result.leftovers) == (6, False, 1)
    assert result.duration_ms < 1_500


# What it leaves behind

ESCAPES = {
    "background": "sleep {token} &",
    "subshell": "(sh -c 'sleep {token}; true' &)",
    "pipeline": "sleep {token} | sleep {token} &",
    "nohup": "nohup sleep {token} >/dev/null 2>&1 &",
    "own session": "setsid sleep {token} >/dev/null 2>&1 &",
    "double fork": "( ( setsid sh -c 'sleep {token} & sleep {token}' & ) & )",
    "ignores signals": "sh -c \"trap '' TERM HUP INT; sleep {token}; true\" &",
    "ignores signals in its own session": "setsid sh -c \"trap '' TERM; sleep {token}; true\" &",
    "stopped": "sleep {token} & kill -STOP $!",
    "stopped in its own session": "setsid sh -c 'kill -STOP $$; sleep {token}' {token} &",
    "respawns": "setsid sh -c 'trap \"\" TERM; while :; do sleep {token}; done' {token} &",
    "clears its environment": "env -i setsid sleep {token} &",
    "closed all descriptors": "setsid sleep {token} <&- >&- 2>&- &",
}
escapes = pytest.mark.parametrize("escape", ESCAPES.values(), ids=list(ESCAPES))


@escapes
async def test_nothing_outlives_the_childs_own_exit(escape: str) -> None:
    token = new_token()
    script = f"{escape.format(token=token)}\nexit 9"
    result = await run_one(shell(script, grace_ms=200))
    assert alive(token) == []
    assert (result.exit_code, result.error) == (9, "")
    assert result.leftovers >= 1


async def test_nobody_gets_away_by_dying_at_the_right_moment() -> None:
    """A process that dies leaves its children to the keeper, perhaps between two of its scans."""
    token = new_token()
    hop = f"hop() {{ test $1 = 0 && exec sleep {token}; (hop $(($1 - 1)) &); exit; }}"
    async with host() as sandbox:
        for hops in range(60):
            script = f"trap '' TERM\n{hop}\n(hop {hops} &)\nexit 9"
            result = await sandbox.run(shell(script, grace_ms=1))
            assert alive(token) == [], hops
            assert (result.exit_code, result.error) == (9, "")


@escapes
async def test_nothing_outlives_a_timeout(escape: str) -> None:
    token = new_token()
    script = f"echo ready\n{escape.format(token=token)}\nsleep {token}"
    result = await run_out_of_time(script, grace_ms=200)
    assert alive(token) == []
    assert (result.timed_out, result.exit_code) == (True, None)


@escapes
async def test_nothing_outlives_a_cancelled_call(escape: str) -> None:
    token = new_token()
    ready = asyncio.Event()
    script = f"{escape.format(token=token)}\necho ready; sleep {token}"
    async with host() as sandbox:
        running = asyncio.create_task(
            sandbox.run(shell(script, grace_ms=200), on_output=lambda *_: ready.set())
        )
        async with asyncio.timeout(DEADLINE_S):
            await ready.wait()
        await eventually_async(lambda: alive(token) != [])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert alive(token) == []


@both_loops
def test_cancelling_again_and_again_does_not_cut_the_end_short(
    run_loop: Callable[..., Any],
) -> None:
    token = new_token()
    script = f"trap '' TERM; setsid sleep {token} & echo ready; sleep {token}"

    async def scene() -> None:
        ready = asyncio.Event()
        async with host() as sandbox:
            running = asyncio.create_task(
                sandbox.run(shell(script, grace_ms=300), on_output=lambda *_: ready.set())
            )
            async with asyncio.timeout(DEADLINE_S):
                await ready.wait()

            def cancelled() -> bool:
                running.cancel()
                return running.done()

            await eventually_async(cancelled)
            assert running.cancelled()
            assert alive(token) == []

    run_loop(scene())


async def test_a_deadline_of_the_caller_ends_the_tree() -> None:
    token = new_token()
    async with host() as sandbox:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sandbox.run(shell(f"setsid sleep {token} & sleep {token}"))
        assert alive(token) == []


async def test_a_cancelled_call_leaves_a_keeper_that_can_be_used_again() -> None:
    async with host() as sandbox:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sandbox.run(request("sleep", "1000"))
        before = keepers()
        assert (await sandbox.run(shell("echo ok"))).stdout == "ok\n"
        assert keepers() == before


async def test_closing_ends_children_and_keepers() -> None:
    token = new_token()
    sandbox = HostSandbox()
    ready = asyncio.Event()
    running = asyncio.create_task(
        sandbox.run(
            shell(f"setsid sleep {token} & echo ready; sleep {token}"),
            on_output=lambda *_: ready.set(),
        )
    )
    async with asyncio.timeout(DEADLINE_S):
        await ready.wait()
    await sandbox.close()
    assert alive(token) == []
    assert keepers() == []
    result = await running
    assert (result.exit_code, result.error) == (None, "the sandbox was closed")
    assert (await sandbox.run(shell("true"))).error == "the sandbox is closed"
    await sandbox.close()


@pytest.mark.parametrize("escape", ["own session", "double fork", "ignores signals", "stopped"])
async def test_a_tree_dies_with_its_server_even_by_kill_9(escape: str) -> None:
    token = new_token()
    script = f"{ESCAPES[escape].format(token=token)}\necho ready; sleep {token}"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, script], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        await eventually_async(lambda: len(alive(token)) > 2)
        server.kill()
    await eventually_async(lambda: alive(token) == [])


# Its keeper


@pytest.mark.parametrize("escape", ["background", "own session", "double fork", "ignores signals"])
async def test_a_child_that_kills_its_keeper_is_ended_by_the_server(escape: str) -> None:
    token = new_token()
    script = f"{ESCAPES[escape].format(token=token)}\nkill -9 $PPID; sleep {token}"
    async with host() as sandbox:
        result = await sandbox.run(shell(script))
        assert alive(token) == []
        assert "the keeper of the child was lost (killed by signal 9)" in result.error
        assert (result.exit_code, result.timed_out) == (None, False)
        assert (await sandbox.run(shell("echo ok"))).stdout == "ok\n"


async def test_a_lost_keeper_costs_the_other_children_nothing() -> None:
    async with host() as sandbox, asyncio.TaskGroup() as group:
        others = [group.create_task(sandbox.run(shell("sleep 1; echo ok"))) for _ in range(3)]
        with subprocess.Popen(["sleep", "1"]) as own_child:
            assert "lost" in (await sandbox.run(shell("kill -9 $PPID"))).error
            assert own_child.wait() == 0
    assert [task.result().stdout for task in others] == ["ok\n"] * 3


async def test_a_keeper_cannot_be_talked_into_leaving() -> None:
    async with host() as sandbox:
        script = "for s in HUP INT QUIT TERM USR1 USR2 ALRM PIPE RTMIN; do kill -$s $PPID; done"
        assert (await sandbox.run(shell(f"{script}; exit 8"))).exit_code == 8


async def test_a_child_that_stops_its_keeper_is_still_ended() -> None:
    token = new_token()
    stopped = asyncio.Event()
    script = f"setsid sleep {token} & kill -STOP $PPID; echo ready; sleep {token}"
    async with host() as sandbox:
        running = asyncio.create_task(
            sandbox.run(shell(script, grace_ms=0), on_output=lambda *_: stopped.set())
        )
        async with asyncio.timeout(DEADLINE_S):
            await stopped.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert alive(token) == []


async def test_orphans_that_died_are_buried_while_their_child_runs_on() -> None:
    orphans: list[int] = []

    def children_of_the_keeper() -> str:
        (pid,) = keepers()
        return Path(f"/proc/{pid}/task/{pid}/children").read_text()

    async with host() as sandbox:
        running = asyncio.create_task(
            sandbox.run(
                shell("for i in 1 2 3; do (sh -c 'echo $$' &); done; sleep 1000"),
                on_output=lambda _, text: orphans.extend(map(int, text.split())),
            )
        )
        await eventually_async(lambda: len(orphans) == 3)
        await eventually_async(lambda: len(children_of_the_keeper().split()) == 1)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_an_idle_keeper_that_was_killed_is_replaced() -> None:
    async with host() as sandbox:
        first = int((await sandbox.run(shell("echo $PPID; true"))).stdout)
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        result = await sandbox.run(shell("echo $PPID; true"))
        assert int(result.stdout) != first
        await eventually_async(lambda: first not in keepers())


async def test_one_keeper_serves_one_child_after_the_other() -> None:
    async with host() as sandbox:
        used = {(await sandbox.run(shell("echo $PPID; true"))).stdout for _ in range(20)}
    assert len(used) == 1


AT_ONCE = amount(60, thorough=200)


@pytest.mark.thorough
async def test_very_many_children_at_once_get_their_own_output() -> None:
    async with host() as sandbox:
        results = await asyncio.gather(
            *(sandbox.run(shell(f"echo {number}; exit {number % 7}")) for number in range(AT_ONCE))
        )
        await eventually_async(lambda: len(keepers()) <= 4)
    for number, result in enumerate(results):
        assert (result.stdout, result.exit_code) == (f"{number}\n", number % 7), result
    assert keepers() == []


def test_a_keeper_starts_with_nothing_of_the_servers_environment() -> None:
    async def scene() -> bytes:
        async with host() as sandbox:
            await sandbox.run(shell("true"))
            (pid,) = keepers()
            if os.geteuid() != 0:  # not even its own user sees it
                with pytest.raises(PermissionError):
                    Path(f"/proc/{pid}/environ").read_bytes()
                return b""
            return Path(f"/proc/{pid}/environ").read_bytes()

    os.environ["PLANTED_SECRET"] = "canary"
    try:
        assert b"canary" not in asyncio.run(scene())
    finally:
        del os.environ["PLANTED_SECRET"]


# The server itself

HIDE = """
import os, sys
from infloop.sandbox.kernel.hardening import hide_from_children
from infloop.sandbox.keepers.keeper import PR_SET_DUMPABLE, prctl

def a_child_reads_our_environment():
    child = os.fork()
    if child == 0:
        try:
            os.close(os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY))
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
    prctl(PR_SET_DUMPABLE, 1)
print(a_child_reads_our_environment())
hide_from_children()
print(a_child_reads_our_environment())
"""


def test_a_hidden_server_does_not_show_its_environment_to_the_same_user() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert done.stdout.split() == ["True", "False"]


def test_a_process_whose_id_was_recycled_is_not_signalled() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        bystander = subprocess.Popen(["sleep", "1000"])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

    def pending() -> int:
        status = Path(f"/proc/{bystander.pid}/status").read_text()
        return int(status.split("ShdPnd:")[1].split()[0], 16)

    process = keeper.read_process(bystander.pid)
    assert process is not None
    try:
        process.start -= 1
        keeper.send_signal(process, signal.SIGUSR1)
        assert pending() == 0
        process.start += 1
        keeper.send_signal(process, signal.SIGUSR1)
        assert pending() == 1 << signal.SIGUSR1 - 1
    finally:
        bystander.kill()
        bystander.wait()
    keeper.send_signal(process, signal.SIGUSR1)
    assert keeper.read_process(bystander.pid) is None


def test_a_process_cannot_hide_behind_a_name_that_imitates_the_process_table() -> None:
    script = "printf ') Z 1 1 1 1 1 (' > /proc/$$/comm; echo ready; read wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as imitator:
        assert imitator.stdout is not None
        assert imitator.stdout.readline() == "ready\n"
        process = keeper.read_process(imitator.pid)
        assert process is not None
        assert (process.parent, process.session) == (os.getpid(), os.getsid(0))
        assert process.alive
        imitator.kill()
