"""Level `sandbox`: what a child sees, what it reaches, and that it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import MissingPart, SettingsError
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest, ChildResult
from infloop.sandbox.keepers.child_records import RECORD_VARIABLE
from infloop.sandbox.keepers.keeper import all_processes, descendants
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.cgroup import find_parent_cgroup, remove_abandoned_cgroups
from infloop.sandbox.kernel.seccomp import as_file
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.service_relay import ServiceRelays
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from infloop.sandbox.spawn_request import BubblewrapOptions, SpawnRequest
from infloop.sandbox.view.mounts import can_be_home, refusal
from infloop.sandbox.view.program_paths import needed_paths
from support.canaries import PATH, UNPRIVILEGED, USER, outside, place
from support.confinement import give, need_bubblewrap, new_directory
from support.eventually import eventually, eventually_async
from support.parts import missing, need_program, ruled_out_if
from support.processes import DEADLINE_S, alive, new_token, program_name
from support.sandbox_attacks import IN_NAMESPACES, attack_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

SECRET = "the-canary"


class World:
    """A machine in small: a workspace, a home, a data directory, and a sandbox."""

    def __init__(self, top: Path, sandbox: BubblewrapSandbox) -> None:
        self.top = top
        self.sandbox = sandbox
        self.workspace = top / "home/me/project"
        self.home = top / "home/me"
        self.data = top / "data"

    def request(self, *argv: str, **more: Any) -> ChildRequest:
        access = more.pop("access", None) or Access(write=(str(self.workspace),), **_fence(more))
        env = {"PATH": PATH, "HOME": str(self.home), **more.pop("env", {})}
        cwd = more.pop("cwd", str(self.workspace))
        return ChildRequest(argv=argv, cwd=cwd, env=env, access=access, **more)

    async def run(self, *argv: str, **more: Any) -> ChildResult:
        calls = {name: more.pop(name) for name in ("on_output", "on_started") if name in more}
        async with asyncio.timeout(DEADLINE_S):
            return await self.sandbox.run(self.request(*argv, **more), **calls)

    async def shell(self, script: str, **more: Any) -> ChildResult:
        return await self.run("sh", "-c", script, **more)

    async def says(self, script: str, **more: Any) -> str:
        result = await self.shell(script, **more)
        assert (result.exit_code, result.error) == (0, ""), result
        return result.stdout.strip()


def _fence(more: dict[str, Any]) -> dict[str, Any]:
    names = ("read", "network", "on_listening", "local_ports", "limits", "home", "proxy_user")
    return {name: more.pop(name) for name in names if name in more}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with place() as top:
        here = World(top, BubblewrapSandbox(hidden=[str(top / "data")], user=USER))
        for folder in (here.workspace, here.data):
            new_directory(folder)
        give(top)
        try:
            yield here
        finally:
            await here.sandbox.close()


@pytest.fixture(autouse=True)
def _this_machine_has_bubblewrap() -> None:
    need_bubblewrap()


# Attacks


@pytest.mark.thorough
@pytest.mark.parametrize("attack", IN_NAMESPACES)
async def test_an_attack_reaches_nothing(attack: dict[str, Any]) -> None:
    with place() as parent, outside(parent) as around:
        sandbox = BubblewrapSandbox(user=USER)
        try:
            async with asyncio.timeout(DEADLINE_S):
                result = await sandbox.run(attack_request(attack, around))
        finally:
            await sandbox.close()
        assert (around.tripped(result), result.error, result.timed_out) == ([], "", False)


# What it sees


async def test_a_child_sees_the_system_its_workspace_and_nothing_else(world: World) -> None:
    (world.workspace / "file").write_text("mine")
    shown = (await world.says("ls -A / /home 2>/dev/null; cat file")).split()
    listed = set(shown) - {"/:"}
    assert {"usr", "bin", "proc", "dev", "tmp", "etc", "mine"} <= listed
    assert listed.isdisjoint({"root", "boot", "mnt", "srv", "opt", "sys", "work", "home:", "media"})


@pytest.mark.parametrize(
    "path", ["secret", "home/me/.ssh/id", "home/other/file", "data/journal.db", "data/runs/x"]
)
async def test_a_file_outside_the_fence_is_not_there(world: World, path: str) -> None:
    secret = world.top / path
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text(SECRET)
    give(world.top)
    assert SECRET not in await world.says(f"cat {secret} ~/.ssh/id 2>/dev/null || true")


async def test_the_data_directory_is_empty_even_below_a_shown_path(world: World) -> None:
    (world.data / "journal.db").write_text(SECRET)
    inside = new_directory(world.data / "workspaces/run-1")
    access = Access(read=(str(world.top),), write=(str(inside),))
    said = await world.says(
        f"ls -A {world.data}; touch made; cat {world.data}/journal.db || true",
        access=access,
        cwd=str(inside),
    )
    assert said == "workspaces"
    assert (inside / "made").exists()


async def test_the_deeper_path_decides_whether_it_can_be_written(world: World) -> None:
    git = new_directory(world.workspace / ".git")
    logs = new_directory(git / "logs")
    access = Access(read=(str(git),), write=(str(world.workspace), str(logs)))
    await world.shell("touch a .git/b .git/logs/c; mv .git .old; rm -rf .git", access=access)
    assert sorted(path.name for path in world.workspace.rglob("*")) == [".git", "a", "logs"]


async def test_home_and_temp_are_its_own_and_gone_with_it(world: World) -> None:
    script = f"touch ~/.bashrc /tmp/x /var/tmp/y /dev/shm/z; ls -A ~ /tmp {world.home}/.bashrc"
    assert ".bashrc" in await world.says(script)
    assert ".bashrc" not in await world.says("ls -A ~ /tmp /dev/shm")
    assert not (world.home / ".bashrc").exists()


async def test_a_home_that_is_given_stays(world: World) -> None:
    kept = new_directory(world.top / "kept")
    await world.says("echo session > ~/state", home=str(kept))
    assert (kept / "state").read_text() == "session\n"
    assert await world.says("cat ~/state", home=str(kept)) == "session"
    assert not (world.home / "state").exists()


async def test_paths_of_the_real_home_are_shown_where_they_are(world: World) -> None:
    tools = new_directory(world.home / ".tools")
    (tools / "config").write_text("found")
    read = (str(tools), str(world.home / "not-there"))
    assert await world.says("cat ~/.tools/config; ls -A ~", read=read) == "found.tools\nproject"
    refused = await world.shell("touch ~/.tools/planted", read=read)
    assert refused.exit_code != 0


async def test_without_a_fence_there_is_its_directory_and_no_network(world: World) -> None:
    request = ChildRequest(
        ("sh", "-c", "touch made; ls -A .."), str(world.workspace), {"PATH": PATH}
    )
    result = await world.sandbox.run(request)
    assert result.stdout == "project\n"
    assert (world.workspace / "made").exists()


@pytest.mark.parametrize("path", ["/", "/proc", "/etc", "/run", "/dev", "relative"])
def test_a_fence_cannot_name_what_is_everybodys(path: str) -> None:
    assert repr(path) in refusal(Access(read=(path,)))


@pytest.mark.parametrize("path", ["/usr", "/usr/local/bin", "/lib"])
def test_the_systems_programs_cannot_be_written(path: str) -> None:
    assert repr(path) in refusal(Access(write=(path,)))
    assert not refusal(Access(read=(path,)))


@pytest.mark.parametrize(
    ("path", "can"),
    [
        *((path, True) for path in ("/root", "/home/me", "/var/lib/x")),
        *((path, False) for path in ("/", "", "relative", "/usr/x", "/etc", "/proc/self")),
    ],
)
def test_a_home_lies_where_it_hides_nothing_of_the_system(path: str, *, can: bool) -> None:
    assert can_be_home(path) is can


async def test_a_child_has_a_user_name_and_no_name_servers(world: World) -> None:
    said = await world.says(
        "id -un; id -u; grep -c nameserver /etc/resolv.conf || true; ls -A /etc"
    )
    name, uid, servers, *files = said.split()
    assert (name, uid, servers) == ("agent", str(UNPRIVILEGED), "0")
    assert {"passwd", "hosts", "nsswitch.conf"} <= set(files)
    assert set(files).isdisjoint({"shadow", "ssh", "sudoers", "hostname", "crontab", "environment"})


# What it is given


@pytest.mark.claim("I29")
async def test_a_child_gets_the_variables_it_is_given_and_its_own_home(world: World) -> None:
    said = await world.says("env", env={"LC_ALL": "C", "WITH": "a=b\nc"})
    assert sorted(line.partition("=")[0] for line in said.splitlines() if "=" in line) == sorted(
        ["PATH", "HOME", "LC_ALL", "WITH", "TMPDIR", "USER", "LOGNAME", "PWD"]
    )
    assert "WITH=a=b\nc" in said
    assert f"HOME={world.home}" in said


async def test_a_variable_for_the_linker_reaches_the_child_and_not_bubblewrap(world: World) -> None:
    said = await world.says("echo $LD_PRELOAD", env={"LD_PRELOAD": "/nowhere.so"})
    assert said == "/nowhere.so"


async def test_arguments_input_results_and_exit_codes_pass(world: World) -> None:
    script = 'cat; printf "%s|" "$@" >&3; echo err >&2; exit 42'
    result = await world.run(
        "sh", "-c", script, "x", "--args", "--", "a b", stdin=b"in", want_result=True
    )
    assert (result.exit_code, result.stdout, result.stderr) == (42, "in", "err\n")
    assert result.result == b"--args|--|a b|"


@pytest.mark.parametrize(("number", "code"), [(9, 137), (11, 139), (15, 143)])
async def test_a_signal_shows_as_in_a_shell(world: World, number: int, code: int) -> None:
    assert (await world.shell(f"kill -{number} $$")).exit_code == code


@pytest.mark.parametrize(
    ("argv", "more", "error"),
    [
        ((), {}, "no program was given"),
        (("nosuchprogram",), {}, "program 'nosuchprogram' was not found on PATH"),
        (("/no/such/program",), {}, "execvp /no/such/program: No such file or directory"),
        (("sh",), {"cwd": "/no/such/dir"}, "Can't chdir to /no/such/dir"),
        (("sh",), {"env": {"A": "\0"}}, "holds a NUL character"),
        (("sh",), {"limits": ResourceLimits(processes=-5)}, "could not be set up"),
        (("sh",), {"network": "proxy"}, "no on_listening callback"),
        (("sh",), {"home": "/no/such/home"}, "/no/such"),
        (("sh",), {"read": ("tests",)}, "'tests' is not absolute"),
        (("sh",), {"read": ("/proc/self/root",)}, "'/proc/self/root' is a link or lies behind one"),
    ],
)
async def test_a_child_that_cannot_be_confined_is_not_started(
    world: World, argv: tuple[str, ...], more: dict[str, Any], error: str
) -> None:
    result = await world.run(*argv, **more)
    assert error in result.error
    assert result.exit_code is None
    assert await world.says("echo next") == "next"


# Whom root runs it as


def test_only_root_can_name_a_user() -> None:
    """In a process that root makes an ordinary user's, so that it is tried by root too."""
    pid = os.fork()
    if pid == 0:
        refused = False
        try:
            if USER:
                os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
            BubblewrapSandbox(user=(12345, 12345))
        except SettingsError as error:
            refused = "only root" in str(error)
        finally:
            os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@ruled_out_if(USER is None, "only root has a choice")
async def test_children_of_root_have_no_rights_of_root(world: World) -> None:
    said = await world.says("id -u; id -G; grep CapEff /proc/self/status; cat /proc/self/uid_map")
    uid = str(UNPRIVILEGED)
    assert said.split() == [uid, uid, "CapEff:", "0" * 16, uid, "0", "1"]


@ruled_out_if(USER is None, "only root has a choice")
@pytest.mark.parametrize("obstacle", ["owned by root", "closed above"])
async def test_a_workspace_out_of_reach_is_named(world: World, obstacle: str) -> None:
    if obstacle == "owned by root":
        os.chown(world.workspace, 0, 0)
        world.workspace.chmod(0o755)
    else:
        os.chown(world.home, 0, 0)
        world.home.chmod(0o700)
    result = await world.shell("true")
    assert (
        f"{str(world.workspace)!r} cannot be written by the children's user {UNPRIVILEGED}"
        in result.error
    )
    assert "chown" in result.error


# Which bubblewrap


def test_a_bubblewrap_that_others_can_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingPart, match="apt-get install bubblewrap"):
        find_bubblewrap([str(tmp_path / "none")])
    program = tmp_path / "bwrap"
    shutil.copy("/bin/true", program)
    program.chmod(0o777)
    with pytest.raises(MissingPart, match="can be changed by other users than root"):
        find_bubblewrap([str(program)])
    program.chmod(0o755 | stat.S_ISUID)
    with pytest.raises(MissingPart, match="setuid"):
        find_bubblewrap([str(program)])


async def test_a_bubblewrap_in_the_workspace_is_not_used(world: World) -> None:
    planted = world.workspace / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {world.top}/planted\n")
    planted.chmod(0o755)
    await world.says("true", env={"PATH": f"{world.workspace}:{PATH}"})
    assert not (world.top / "planted").exists()


# Its network


@contextlib.asynccontextmanager
async def service(answer: bytes) -> AsyncIterator[int]:
    """A service on the machine's loopback that answers what it hears, behind a greeting."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.read(100)
        writer.write(answer + heard)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def ask(port: int, said: str = "hello") -> str:
    """A script that says something to a port and prints the answer, or `refused`."""
    return (
        f"python3 -c \"import socket; s = socket.create_connection(('127.0.0.1', {port}), 5);"
        f" s.sendall(b'{said}'); s.shutdown(1); print(s.makefile().read())\""
        " 2>/dev/null || echo refused"
    )


async def test_without_a_network_nothing_answers(world: World) -> None:
    async with service(b"") as port:
        assert await world.says(ask(port)) == "refused"
        assert await world.says(ask(port), network="open") == "hello"
    assert await world.says("cat /proc/net/dev | tail -n +3 | cut -d: -f1") == "lo"


async def test_the_only_listener_is_the_proxy_and_it_is_there_from_the_start(world: World) -> None:
    heard: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\n\r\nrefused")
        writer.close()

    async with contextlib.AsyncExitStack() as stack:

        async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
            assert list(listeners) == [3128]
            server = await asyncio.start_server(proxy, sock=listeners[3128])
            await stack.enter_async_context(server)

        script = (
            "import os, urllib.request as r\n"
            "print(os.environ['HTTPS_PROXY'])\n"
            "try: r.urlopen('http://example.invalid/x')\n"
            "except r.HTTPError as error: print(error.code)\n"
        ).replace("r.HTTPError", "__import__('urllib.error').error.HTTPError")
        result = await world.run(
            "python3", "-c", script, network="proxy", on_listening=on_listening, proxy_user="t"
        )
    assert result.stdout.split() == ["http://t@127.0.0.1:3128", "403"], result
    assert heard == [b"GET http://example.invalid/x HTTP/1.1\r\n"]


async def test_a_child_does_not_begin_when_its_proxy_cannot(world: World) -> None:
    async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
        raise OSError("no proxy today")

    with pytest.raises(OSError, match="no proxy today"):
        await world.shell("touch began", network="proxy", on_listening=on_listening)
    assert not (world.workspace / "began").exists()
    assert await world.says("echo next") == "next"


async def test_a_child_cancelled_before_its_proxy_stands_never_begins(world: World) -> None:
    asked = asyncio.Event()

    async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(
        world.shell("touch began", network="proxy", on_listening=on_listening)
    )
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (world.workspace / "began").exists()


async def test_listed_local_ports_lead_to_the_machines_services(world: World) -> None:
    async with service(b"db:") as listed, service(b"api:") as other:
        said = await world.says(f"{ask(listed)}; {ask(other)}", local_ports=(listed,))
        assert said.split() == ["db:hello", "refused"]


async def test_much_passes_through_a_local_port(world: World) -> None:
    async with service(b"x" * (8 << 20)) as port:
        script = f"({ask(port)}) | wc -c"
        assert int(await world.says(script, local_ports=(port,))) == (8 << 20) + len("hello\n")


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    """Allow this process more than the 1024 descriptors that a user's shell usually allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_descriptors")
async def test_a_child_cannot_use_up_the_servers_descriptors_by_local_connections() -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read()
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(hold, "127.0.0.1", 0))
        listener = socket.create_server(("127.0.0.1", 0), backlog=400)
        place = listener.getsockname()
        relays = ServiceRelays()
        stack.push_async_callback(relays.close)
        await relays.open({server.sockets[0].getsockname()[1]: listener})
        clients = [await asyncio.open_connection(*place) for _ in range(300)]
        ended = [asyncio.create_task(reader.read(1)) for reader, _ in clients]
        await eventually_async(lambda: len(held) + sum(task.done() for task in ended) == 300)
        assert len(held) == 256
        for _, writer in clients:
            writer.close()
        await asyncio.wait(ended)
        while len(held) == 256:  # as soon as there is room for it again
            reader, writer = await asyncio.open_connection(*place)
            clients.append((reader, writer))
            writer.write_eof()
            await reader.read(1)
        for each in (*(writer for _, writer in clients), *held):
            each.close()
            await each.wait_closed()


async def test_a_local_service_that_is_not_there_only_closes(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await world.says(ask(port), local_ports=(port,)) in ("", "refused")


# What it may use


@pytest.mark.parametrize(
    ("name", "limits", "bound"),
    [
        ("Max processes", ResourceLimits(processes=77), 77),
        ("Max open files", ResourceLimits(open_files=99), 99),
        ("Max file size", ResourceLimits(file_bytes=2 << 20), 2 << 20),
        ("Max data size", ResourceLimits(memory_bytes=1 << 30), 1 << 30),
        ("Max core file size", ResourceLimits(), 1),
    ],
)
async def test_limits_hold_before_the_child_begins(
    world: World, name: str, limits: ResourceLimits, bound: int
) -> None:
    said = await world.says(f"grep '{name}' /proc/self/limits", limits=limits)
    assert said.removeprefix(name).split()[:2] == [str(bound)] * 2


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "~"])
async def test_a_full_temp_is_full_inside_only(world: World, place: str) -> None:
    script = f"head -c 3000000 /dev/zero > {place}/large; test $(wc -c < {place}/large) -lt 2500000"
    await world.says(script, limits=ResourceLimits(temp_bytes=2_000_000))


@pytest.mark.parametrize("place", ["/", "/dev", "/etc", "/run", "/var", "/home", "/usr"])
async def test_the_view_itself_cannot_be_written(world: World, place: str) -> None:
    assert (await world.shell(f"touch {place}/planted")).exit_code != 0


async def test_a_fork_bomb_harms_nobody_else(world: World) -> None:
    script = "for i in $(seq 200); do sleep 100 & done; echo alive"
    result = await world.shell(script, limits=ResourceLimits(processes=40), timeout_ms=20_000)
    assert "fork" in result.stderr
    assert await world.says("echo next") == "next"


def test_memory_is_bounded_where_a_group_is_ours_to_divide(tmp_path: Path) -> None:
    own = tmp_path / "own"
    group = tmp_path / "cgroup/user.slice/app.slice/infloop.scope"
    group.mkdir(parents=True)
    own.write_text("1:name=x:/y\n0::/user.slice/app.slice/infloop.scope\n")
    assert find_parent_cgroup(tmp_path / "cgroup", own) is None
    for folder, handed_down in ((group, "pids"), (group.parent, "memory pids")):
        (folder / "cgroup.subtree_control").write_text(handed_down)
        (folder / "cgroup.procs").write_text("")
    assert find_parent_cgroup(tmp_path / "cgroup", own) == group.parent
    assert find_parent_cgroup(tmp_path / "cgroup", tmp_path / "none") is None


def test_groups_that_a_killed_server_left_are_removed_and_those_of_the_living_are_not(
    tmp_path: Path,
) -> None:
    for name in ("infloop-left", "infloop-held", "infloop-used/member", "other"):
        (tmp_path / name).mkdir(parents=True)
    held = os.open(tmp_path / "infloop-held", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_abandoned_cgroups(tmp_path)
    finally:
        os.close(held)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "infloop-held",
        "infloop-used",
        "other",
    ]


async def test_the_held_process_joins_its_group_before_it_begins(tmp_path: Path) -> None:
    members = tmp_path / "cgroup.procs"
    members.touch()
    arguments = ["--ro-bind", "/", "/", "--unshare-user", "--unshare-pid"]
    arguments += ["--json-status-fd", "4", "--seccomp", "5", "--", "cat", str(members)]
    fd = os.open(members, os.O_WRONLY)
    allows_all = as_file(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))
    pool = KeeperPool(modules=("bubblewrap_child",))
    try:
        request = ChildRequest(("cat",), "/", {})
        spawn = SpawnRequest(
            find_bubblewrap(),
            ("bwrap", *arguments),
            {},
            "/",
            (allows_all, fd),
            bubblewrap=BubblewrapOptions(joins_cgroup=True),
        )
        result = await pool.run(request, spawn, None, None)
    finally:
        os.close(fd)
        os.close(allows_all)
        await pool.close()
    assert result.stdout == members.read_text() != "", result


# Its end


async def test_what_a_child_leaves_behind_is_gone_when_it_has_ended(world: World) -> None:
    token = new_token()
    script = (
        f"(setsid sh -c 'trap \"\" TERM HUP; sleep {token}; sleep {token}' &) ; sleep 0.1; exit 5"
    )
    result = await world.shell(script)
    assert result.exit_code == 5
    assert alive(token) == []


async def test_a_child_that_is_ended_may_clean_up_first(world: World) -> None:
    clean_up = "sleep 0.1 && sleep 0.2 && echo bye; exit 0"
    script = f"trap '{clean_up}' TERM; echo ready; while :; do sleep 0.05; done"
    for timeout_ms in (500, 2_000, 10_000):
        result = await world.shell(script, timeout_ms=timeout_ms, grace_ms=5_000)
        if "ready" in result.stdout:
            break
    assert result.stdout == "ready\nbye\n"
    assert (result.timed_out, result.exit_code, result.error) == (True, None, "")


async def test_a_child_that_will_not_end_is_killed_after_its_grace(world: World) -> None:
    token = new_token()
    script = f"trap '' TERM; echo ready; while :; do sleep {token}; done"
    result = await world.shell(script, timeout_ms=2_000, grace_ms=200)
    assert alive(token) == []
    assert (result.timed_out, result.exit_code, result.error) == (True, None, "")


async def test_a_cancelled_child_is_gone_before_the_call_returns(world: World) -> None:
    token = new_token()
    ready = asyncio.Event()
    script = f"setsid sleep {token} & echo ready; sleep {token}"
    running = asyncio.create_task(world.shell(script, grace_ms=0, on_output=lambda *_: ready.set()))
    async with asyncio.timeout(DEADLINE_S):
        await ready.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(token) == []


@pytest.mark.parametrize(("scope", "is_said"), [("1", False), ("2", True), ("3", True)])
async def test_where_a_keeper_cannot_trace_that_is_said(
    world: World, scope: str, is_said: bool
) -> None:
    (world.top / "scope").write_text(scope)
    sandbox = BubblewrapSandbox(user=USER, ptrace_scope=world.top / "scope")
    try:
        assert any("ptrace_scope" in each for each in sandbox.not_covered) == is_said
        script = "(setsid sleep 300 &) ; exit 5"
        assert (await sandbox.run(world.request("sh", "-c", script))).exit_code == 5
    finally:
        await sandbox.close()


async def test_signals_to_the_first_process_of_the_namespace_have_no_effect(world: World) -> None:
    script = "for s in STOP TSTP TERM HUP INT USR1 CHLD TRAP KILL; do kill -$s 1; done; exit 7"
    assert (await world.shell(script)).exit_code == 7


async def test_a_child_cannot_reach_its_keeper(world: World) -> None:
    assert (await world.shell("kill -9 $PPID; kill -9 -1; exit 6")).exit_code in (6, 137)


SERVER = """
import asyncio, sys
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox

async def main(uid, folder, script):
    user = (int(uid), int(uid)) if uid else None
    child = ChildRequest(argv=("sh", "-c", script), cwd=folder, env={"PATH": "/usr/bin:/bin"})
    sandbox = BubblewrapSandbox(user=user)
    print(await sandbox.run(child, on_output=lambda stream, text: print(text, flush=True)))

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.contextmanager
def server(world: World, script: str) -> Iterator[subprocess.Popen[str]]:
    uid = str(USER[0]) if USER else ""
    argv = [sys.executable, "-c", SERVER, uid, str(world.workspace), script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


ESCAPE = (
    "(setsid sh -c 'trap \"\" TERM HUP; sleep {token}; sleep {token}' &); echo ready; sleep {token}"
)


@pytest.mark.parametrize("victim", ["server", "keeper"])
async def test_a_child_dies_at_once_with_its_server_and_with_its_keeper(
    world: World, victim: str
) -> None:
    token = new_token()
    with server(world, ESCAPE.format(token=token)) as process:
        await eventually_async(lambda: len(alive(token)) > 2)
        if victim == "server":
            process.kill()
        else:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            (keeper,) = (pid for pid in children if "keeper" in program_name(int(pid)))
            os.kill(int(keeper), 9)
        await eventually_async(lambda: alive(token) == [])


async def test_bubblewrap_bears_the_name_of_its_childs_record(world: World) -> None:
    """Killed before it has asked to die with its keeper, it is found by that alone."""
    seen: list[list[bytes]] = []

    def look(pid: int, _: int) -> None:
        # Until it is bubblewrap it is still what its keeper was.
        eventually(lambda: Path(f"/proc/{pid}/environ").read_bytes())
        for each in [pid, *(each.pid for each in descendants({pid}, all_processes()))]:
            with contextlib.suppress(OSError):  # one that prepares the view may just have ended
                if Path(f"/proc/{each}/comm").read_text() == "bwrap\n":
                    seen.append(Path(f"/proc/{each}/environ").read_bytes().split(b"\0"))
        (world.workspace / "seen").touch()

    child = {"env": {RECORD_VARIABLE: "i-0.1", "OTHER": "x"}, "on_started": look}
    waits = "while [ ! -e seen ]; do sleep 0.02; done"
    assert (await world.shell(waits, **child)).exit_code == 0
    named = [words for words in seen if words[0]]
    assert named == [[b"RUN_BY_INFLOOP=i-0.1", b""]] * len(named)
    assert named


# What it needs outside the system's directories


def made(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_an_installation_is_shown_and_a_home_never(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made(home / "bin/tool")
    made(home / ".nvm/v20/bin/node")
    made(home / ".nvm/v20/lib/node_modules/agent/cli.js", "#!/usr/bin/env node\n")
    (home / ".nvm/v20/bin/agent").symlink_to("../lib/node_modules/agent/cli.js")
    made(home / ".local/share/app/1.0/app", "#!/bin/sh\n")
    made(home / ".local/share/keyrings/secret")
    (home / ".local/bin").mkdir()
    (home / ".local/bin/app").symlink_to("../share/app/1.0/app")
    env = {"PATH": f"{home}/bin:{home}/.nvm/v20/bin:{home}/.local/bin:relative:/usr/bin"}
    shown = needed_paths(f"{home}/.local/bin/app", env, {str(home)})
    ours = {path.removeprefix(f"{home}/") for path in shown if path.startswith(str(tmp_path))}
    assert {"bin", ".nvm/v20/bin", ".nvm/v20/lib", ".local/share/app/1.0/app"} <= ours
    assert ours.isdisjoint({"", ".local", ".local/share", ".nvm", ".nvm/v20", str(home)})
    agent = needed_paths(f"{home}/.nvm/v20/bin/agent", {"PATH": "/usr/bin"}, {str(home)})
    assert f"{home}/.nvm/v20/lib" in agent


def test_a_virtual_environment_brings_the_python_it_was_made_with(tmp_path: Path) -> None:
    base = made(tmp_path / "pythons/3.11/bin/python3.11").parent.parent
    made(base / "lib/python3.11/os.py")
    made(tmp_path / "venv/pyvenv.cfg")
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(base / "bin/python3.11")
    script = made(tmp_path / "venv/bin/pytest", f"#!{tmp_path}/venv/bin/python\n")
    shown = needed_paths(str(script), {"PATH": "/usr/bin"}, set())
    assert {str(tmp_path / "venv"), str(base)} <= set(shown)


async def test_a_link_planted_in_the_workspace_shows_nothing(world: World) -> None:
    secret = made(world.home / ".ssh/id", f"#!/bin/sh\n# {SECRET}\n")
    (world.workspace / "tool").symlink_to(secret)
    made(world.workspace / "script", f"#!{world.home}/.ssh/id\n")
    give(world.top)
    for name in ("tool", "script"):
        await world.run(str(world.workspace / name))
    env = {"PATH": f"{world.workspace}:{PATH}"}
    assert SECRET not in await world.says(f"cat tool {secret} || true", env=env)


async def test_a_program_in_the_home_runs_and_the_rest_of_the_home_is_hidden(world: World) -> None:
    made(world.home / ".local/share/tool/tool", "#!/bin/sh\nls -A ~ ~/.local/share\n")
    made(world.home / ".local/share/keyrings/login", SECRET)
    (world.home / ".local/bin").mkdir()
    (world.home / ".local/bin/tool").symlink_to("../share/tool/tool")
    give(world.top)
    result = await world.run("tool", env={"PATH": f"{world.home}/.local/bin:{PATH}"})
    assert result.exit_code == 0, result
    assert "keyrings" not in result.stdout


# Tools that agents use


async def test_git_works(world: World) -> None:
    script = (
        "git init -q . && git config user.name me && git config user.email me@example.org &&"
        " echo text > file && git add . && git commit -qm first && git status --short && git log -1"
        " --format=%s && git worktree add -q ../project/tree -b other && git -C tree branch -a"
    )
    assert (await world.says(script)).split("\n")[0] == "first"
    assert (world.workspace / ".git/HEAD").exists()
    assert (world.workspace / "tree/file").read_text() == "text\n"


async def test_python_and_its_processes_and_threads_work(world: World) -> None:
    need_program("python3", PATH)
    script = (
        "import concurrent.futures as c, multiprocessing as m, sqlite3, ssl, tempfile\n"
        "print(sum(m.Pool(2).map(abs, [-1, -2])))\n"
        "with c.ThreadPoolExecutor(2) as pool: print(sum(pool.map(abs, [-3])))\n"
        "print(len(ssl.create_default_context().get_ca_certs()) >= 0, tempfile.gettempdir())\n"
    )
    result = await world.run("python3", "-c", script)
    assert result.stdout.split() == ["3", "3", "True", "/tmp"], result


async def test_pip_installs_a_wheel(world: World) -> None:
    need_program("python3", PATH)
    wheel = world.workspace / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "print('installed')\n")
        archive.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    give(world.workspace)
    packages, env = pure_packages()
    if (await world.shell("python3 -m pip --version", read=packages, env=env)).exit_code != 0:
        missing(f"pip is missing: run `{sys.executable} -m ensurepip`")
    result = await world.shell(
        f"python3 -m pip install -q --no-index --target out ./{wheel.name}"
        " && PYTHONPATH=out python3 -m tiny",
        read=packages,
        env=env,
    )
    assert result.stdout.strip() == "installed", result


def pure_packages() -> tuple[tuple[str, ...], dict[str, str]]:
    """Where this test's own packages are, and the variable that makes any Python find them."""
    folder = str(Path(pytest.__file__).parent.parent)
    return (folder,), {"PYTHONPATH": folder, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


async def test_pytest_works(world: World) -> None:
    need_program("python3", PATH)
    (world.workspace / "test_x.py").write_text(
        "def test_x(tmp_path):\n    assert tmp_path.exists()\n"
    )
    packages, env = pure_packages()
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    result = await world.shell("python3 -m pytest -q test_x.py", read=packages, env=env)
    assert "1 passed" in result.stdout, result


async def test_node_and_its_workers_work(world: World) -> None:
    need_program("node", PATH)
    script = (
        "const {Worker} = require('node:worker_threads');"
        "const {execSync} = require('node:child_process');"
        "console.log(execSync('echo child').toString().trim());"
        "console.log(Object.keys(require('os').networkInterfaces()));"
        "new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', {eval: true})"
        ".on('message', (m) => console.log(m));"
    )
    result = await world.run("node", "-e", script)
    assert result.stdout.split()[0] == "child", result
    assert "42" in result.stdout


async def test_npm_installs_and_runs(world: World) -> None:
    need_program("node", PATH)
    need_program("npm", PATH)
    made(
        world.workspace / "dep/package.json", '{"name": "dep", "version": "1.0.0", "main": "i.js"}'
    )
    made(world.workspace / "dep/i.js", "module.exports = 'from-dep'")
    run = "node -e \\\"console.log(require('dep'))\\\""
    made(
        world.workspace / "package.json",
        f'{{"name": "x", "version": "1.0.0", "scripts": {{"go": "{run}"}}}}',
    )
    give(world.workspace)
    result = await world.shell("npm install --offline --no-audit --no-fund ./dep && npm run -s go")
    assert "from-dep" in result.stdout, result


async def test_deno_works(world: World) -> None:
    deno = Path(sys.prefix) / "bin/deno"
    (world.workspace / "x.ts").write_text("const n: number = 6; console.log(n * 7);\n")
    result = await world.run(str(deno), "run", "--allow-all", "--no-check", "x.ts")
    assert result.stdout == "42\n", result


async def test_gcc_works(world: World) -> None:
    need_program("gcc", PATH)
    (world.workspace / "x.c").write_text('#include <stdio.h>\nint main(void) { puts("built"); }\n')
    assert await world.says("gcc -o x x.c && ./x") == "built"


async def test_ripgrep_works(world: World) -> None:
    need_program("rg", PATH)
    (world.workspace / "x.txt").write_text("needle\n")
    assert await world.says("rg -n needle") == "x.txt:1:needle"
