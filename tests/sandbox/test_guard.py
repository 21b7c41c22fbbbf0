"""Level `guard`: what a child cannot get at, what still works inside, and what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import SettingsError
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.sandbox.spawn_request import SpawnRequest
from support.canaries import PATH, PYTHON, USER, directory_for_children, outside, place
from support.confinement import need_guard
from support.parts import need_program, ruled_out
from support.sandbox_attacks import ATTACKS, WITHOUT_NAMESPACES, attack_request
from support.thorough import some

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

DEADLINE_S = 30.0
ENV = {"PATH": PATH}


@pytest.fixture(autouse=True)
def _this_machine_can_guard() -> None:
    need_guard()


@contextlib.asynccontextmanager
async def guarded(parent: Path) -> AsyncIterator[Sandbox]:
    scratch = parent / "scratch"
    scratch.mkdir(0o711)
    sandbox = GuardSandbox(str(scratch), user=USER)
    try:
        yield sandbox
    finally:
        await sandbox.close()
        assert list(scratch.iterdir()) == []


async def run(child: ChildRequest, parent: Path, **more: Any) -> ChildResult:
    async with guarded(parent) as sandbox, asyncio.timeout(DEADLINE_S):
        return await sandbox.run(child, **more)


async def shell(script: str, **more: Any) -> ChildResult:
    """Run a shell script in a fresh workspace."""
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        child = {"argv": ("sh", "-c", script), "cwd": str(workspace), "env": ENV, **more}
        return await run(ChildRequest(**child), parent)


# Attacks


def freedom(attack: Any) -> str:
    return str(attack.values[0].get("free", "yes"))


@pytest.mark.thorough
@pytest.mark.parametrize("attack", WITHOUT_NAMESPACES)
async def test_an_attack_reaches_nothing(attack: dict[str, Any]) -> None:
    with place() as parent, outside(parent) as world:
        result = await run(attack_request(attack, world), parent)
        assert (world.tripped(result), result.error, result.timed_out) == ([], "", False)


FREE = [each for each in ATTACKS if freedom(each) != "no"]


# This tests the table. A row that is no attack is found by `make test-thorough` at the latest.
@pytest.mark.thorough
@pytest.mark.parametrize("attack", some(FREE, one_in=6))
async def test_the_same_attack_succeeds_on_an_unconfined_child(attack: dict[str, Any]) -> None:
    with place() as parent, outside(parent) as world:
        request = attack_request(attack, world)
        pool = KeeperPool(user=USER)
        try:
            launch = SpawnRequest(PYTHON, request.argv, request.env, request.cwd)
            result = await pool.run(request, launch, None, None)
        finally:
            await pool.close()
        tripped = world.tripped(result)
    if not tripped and attack.get("free") == "maybe":
        ruled_out(f"this machine refuses it to everyone: {attack['name']}")
    assert tripped, result


async def test_root_is_refused_unless_another_user_is_named() -> None:
    with pytest.raises(SettingsError, match="another user"):
        GuardSandbox("/nowhere", user=(0, 0))
    if os.geteuid() == 0:
        with pytest.raises(SettingsError, match="another user"):
            GuardSandbox("/nowhere")


# What still works


async def test_the_environment_is_the_one_given_with_a_home_and_a_temp_of_its_own() -> None:
    script = (
        'env; stat -c "mode %a" "$HOME" "$TMPDIR"; touch "$HOME/a" "$TMPDIR/b" ./c && echo done'
    )
    result = await shell(script, env={**ENV, "HOME": "/root", "GIVEN": "yes"})
    lines = result.stdout.splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        *("PATH", "GIVEN", "HOME", "TMPDIR", "TMP", "TEMP"),
    }
    assert "HOME=/root" not in lines
    assert (lines.count("mode 700"), lines[-1], result.exit_code) == (2, "done", 0)


TOOLS = {
    "sh": "echo a b | tr ' ' '\\n' | sort > out && cat < out > /dev/stdout && (exit 0) | cat",
    "git": """
        git init -q . && git config user.email a@b && git config user.name a && touch f
        git add f && git commit -qm first && git log --oneline && git gc -q && git status
    """,
    "gcc": "echo 'int main(){return 0;}' > a.c && gcc a.c -o a && ./a",
    "node": """node -e "
        require('os').networkInterfaces(); require('fs').writeFileSync('x', '')
        new (require('worker_threads').Worker)('', {eval: true})
        require('child_process').execFileSync('true')
    " """,
    "npm": "npm --version && npm init -y",
    "python3": f"""
        {PYTHON} -m venv --without-pip v && v/bin/python -c '
import asyncio, getpass, socket, sqlite3, ssl, tempfile, threading
socket.socketpair()
async def child(): await (await asyncio.create_subprocess_exec("true")).wait()
asyncio.run(child())
thread = threading.Thread(target=tempfile.TemporaryFile); thread.start(); thread.join()
    '""",
    "perl": "perl -e 'fork // die; wait; print 1'",
    "rg": "echo needle > f && rg needle .",
    "make": "printf 'all:\\n\\techo made\\n' > Makefile && make",
}


@pytest.mark.parametrize(("program", "script"), TOOLS.items(), ids=TOOLS)
async def test_a_tool_works_inside(program: str, script: str) -> None:
    need_program(program, PATH)
    result = await shell(script)
    assert (result.exit_code, result.error, result.leftovers) == (0, "", 0), result


async def test_input_and_result_reach_a_confined_child_and_come_back() -> None:
    result = await shell("cat; echo result >&3", stdin=b"hello", want_result=True)
    assert (result.stdout, result.result) == ("hello", b"result\n")


@pytest.mark.parametrize("writable", [False, True])
async def test_a_path_of_the_fence_is_reached_as_it_says(writable: bool) -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        listed = directory_for_children(parent, "listed")
        (listed / "file").write_text("content")
        paths = (str(listed),)
        access = Access(read=paths, write=(str(workspace), *(paths if writable else ())))
        script = "cat ../listed/file; echo new > ../listed/new"
        child = ChildRequest(("sh", "-c", script), str(workspace), ENV, access=access)
        result = await run(child, parent)
        assert (result.stdout, (listed / "new").exists()) == ("content", writable)


async def test_a_fence_may_name_what_is_not_there() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        access = Access(read=("/nowhere",), write=(str(workspace), "/nowhere/else"))
        result = await run(ChildRequest(("true",), str(workspace), ENV, access=access), parent)
        assert (result.exit_code, result.error) == (0, "")


async def test_with_an_open_network_a_child_connects_where_it_likes() -> None:
    with place() as parent, outside(parent) as world:
        code = """
socket.create_connection(("127.0.0.1", int(E["TCP"])))
socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(E["UDP"])))
"""
        attack = attack_request({"code": code}, world)
        child = ChildRequest(
            attack.argv, attack.cwd, attack.env, access=Access(write=(attack.cwd,), network="open")
        )
        assert world.tripped(await run(child, parent)) == ["TCP", "UDP"]


# What is left


def alive(token: str) -> list[int]:
    """Living processes with the token on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                int(entry.name) != os.getpid()
                and token.encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found


async def test_nothing_outlives_a_child_that_hides_its_children() -> None:
    token = secrets.token_hex(16)
    code = f"""
import os, signal, time
token = "{token}"
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
reading, writing = os.pipe()
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            os.write(writing, b"x")
            time.sleep(1000)
        os._exit(0)
for n in range(3):
    os.read(reading, 1)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
    result = await shell("", argv=(PYTHON, "-c", code), timeout_ms=2_000, grace_ms=100)
    assert (result.stdout, result.timed_out, result.error) == ("ready\n", True, "")
    assert alive(token) == []


async def test_what_a_child_leaves_in_its_private_directories_is_removed() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        code = (
            "import os\n"
            "os.mkdir(os.environ['HOME'] + '/locked'); os.mkdir(os.environ['HOME'] + '/locked/x')\n"
            "os.chmod(os.environ['HOME'] + '/locked', 0)\n"
            "os.symlink('/etc', os.environ['HOME'] + '/link')\n"
            "os.chmod(os.environ['HOME'], 0)\n"
            "os.chdir(os.environ['TMPDIR'])\n"
            "for n in range(1_200): os.mkdir('directory'); os.chdir('directory')\n"
            "for n in range(1_500): os.close(os.open(str(n), os.O_CREAT))\n"
            "print('left')"
        )
        result = await run(ChildRequest((PYTHON, "-c", code), str(workspace), ENV), parent)
        assert (result.stdout, result.error) == ("left\n", "")
        # That its directory is empty again is checked wherever a guard is closed.


async def test_a_cancelled_child_leaves_nothing() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        started = asyncio.Event()
        child = ChildRequest(
            ("sh", "-c", 'echo x > "$HOME/x"; echo started; exec sleep 1000'), str(workspace), ENV
        )
        async with guarded(parent) as sandbox:
            task = asyncio.create_task(sandbox.run(child, on_output=lambda *_: started.set()))
            async with asyncio.timeout(DEADLINE_S):
                await started.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert list((parent / "scratch").iterdir()) == []


# Limits


async def with_limits(code: str, limits: ResourceLimits) -> tuple[ChildResult, dict[str, int]]:
    """Run Python code under limits; return the result and the sizes of what it wrote."""
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        access = Access(write=(str(workspace),), limits=limits)
        child = ChildRequest((PYTHON, "-c", code), str(workspace), ENV, access=access)
        result = await run(child, parent)
        return result, {path.name: path.stat().st_size for path in workspace.iterdir()}


async def test_a_fork_bomb_meets_a_limit() -> None:
    code = """
import os, time
try:
    for count in range(100_000):
        if os.fork() == 0:
            time.sleep(1000)
except BlockingIOError:
    print("limit", flush=True)
"""
    result, _ = await with_limits(code, ResourceLimits(processes=20))
    assert result.stdout == "limit\n"


async def test_a_file_grows_to_its_limit_and_no_further() -> None:
    code = """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("sparse", "wb") as f:
    try: f.truncate(1 << 40)
    except OSError: pass
with open("full", "wb") as f:
    try: os.posix_fallocate(f.fileno(), 0, 1 << 30)
    except OSError: pass
    try: f.write(bytes(1 << 21))
    except OSError: pass
"""
    _, sizes = await with_limits(code, ResourceLimits(file_bytes=1 << 20))
    assert set(sizes) == {"sparse", "full"}
    assert max(sizes.values()) <= 1 << 20


async def test_descriptors_memory_and_core_files_are_limited() -> None:
    code = """
import os, resource
print(resource.getrlimit(resource.RLIMIT_CORE))
try: [os.open("/dev/null", 0) for n in range(10_000)]
except OSError: print("descriptors")
for fd in range(3, 100): os.closerange(3, 200)
try: bytearray(1 << 30)
except MemoryError: print("memory")
"""
    result, _ = await with_limits(code, ResourceLimits(open_files=100, memory_bytes=256 << 20))
    assert result.stdout.splitlines() == ["(1, 1)", "descriptors", "memory"]


# Failing closed


async def test_a_child_that_cannot_be_confined_never_begins() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        null = os.open(os.devnull, os.O_RDWR)
        request = ChildRequest(("touch", "began"), str(workspace), ENV)
        launch = SpawnRequest(
            "/usr/bin/touch", request.argv, ENV, str(workspace), (null, null, null), guard=True
        )
        pool = KeeperPool(user=USER, modules=("guard_child",))
        try:
            result = await pool.run(request, launch, None, None)
        finally:
            await pool.close()
            os.close(null)
        assert "Landlock was refused" in result.error
        assert (result.exit_code, list(workspace.iterdir())) == (None, [])


async def test_a_proxy_that_cannot_start_keeps_the_child_from_beginning() -> None:
    async def refuse(_: Mapping[int, socket.socket]) -> None:
        raise OSError("no proxy today")

    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        access = Access(write=(str(workspace),), network="proxy", on_listening=refuse)
        child = ChildRequest(("touch", "began"), str(workspace), ENV, access=access)
        result = await run(child, parent)
        assert "no proxy today" in result.error
        assert list(workspace.iterdir()) == []


async def test_a_program_runs_wherever_it_is_installed() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        installed = directory_for_children(parent, "bin")
        (installed / "real").write_text("#!/bin/sh\necho ran\n")
        (installed / "real").chmod(0o755)
        (installed / "tool").symlink_to("real")
        child = ChildRequest(("tool",), str(workspace), {"PATH": f"{installed}:{PATH}"})
        assert (await run(child, parent)).stdout == "ran\n"


@pytest.mark.parametrize(
    "way", ["as a link", "by its first line", "as a link on the way", "on PATH"]
)
async def test_a_program_that_a_child_planted_opens_nothing(way: str) -> None:
    """Where programs are is found out from outside; what a child wrote has no say in it."""
    with place() as parent, outside(parent) as world:
        planted, target = world.workspace / "planted", world.folder / "tool"
        program = planted
        if way == "by its first line":
            planted.write_text(f"#!{target}\n")
            planted.chmod(0o755)
        else:
            planted.symlink_to(target)
        if way == "as a link on the way":
            program = directory_for_children(parent, "bin") / "installed"
            program.symlink_to(planted)
        attack = f"cat {world.folder}/secret.txt"
        path = [str(world.workspace), PATH]
        if way == "on PATH":
            (world.workspace / "tools").symlink_to(world.folder)
            (directory_for_children(parent, "opt") / "tools").symlink_to(world.workspace / "tools")
            path.insert(0, str(parent / "opt" / "tools"))
        env = {"PATH": ":".join(path)}
        for argv in ((str(program),), ("planted",), ("sh", "-c", f"{program}; {attack}")):
            result = await shell("", argv=argv, cwd=str(world.workspace), env=env)
            assert world.tripped(result) == []


async def test_a_fence_around_what_is_hidden_is_refused() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        data = directory_for_children(workspace, "data")
        mine = directory_for_children(data, "mine")
        sandbox = GuardSandbox(str(parent), hidden=[str(data)], user=USER)
        outcomes = []
        for path in (workspace, data, mine):
            request = ChildRequest(("true",), "/", ENV, access=Access(write=(str(path),)))
            outcomes.append((await sandbox.run(request)).error)
        await sandbox.close()
        assert [bool(error) for error in outcomes] == [True, True, False]


async def test_a_home_that_is_kept_is_used_and_stays() -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        home = directory_for_children(parent, "home")
        access = Access(write=(str(workspace),), home=str(home))
        child = ChildRequest(("sh", "-c", 'echo kept > "$HOME/file"'), "/", ENV, access=access)
        await run(child, parent)
        assert (home / "file").read_text() == "kept\n"


@pytest.mark.parametrize("argv", [(), ("no-such-program",), ("/no/such/program",)])
async def test_a_program_that_is_not_there_is_an_error(argv: tuple[str, ...]) -> None:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        result = await run(ChildRequest(argv, str(workspace), ENV), parent)
        assert result.error
        assert result.exit_code is None
