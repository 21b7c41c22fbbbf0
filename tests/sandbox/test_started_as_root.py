"""infloop started by root, as in containers and on machines for CI: its children are confined."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import MissingPart
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.choice import choose
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.self_check.battery import self_check
from infloop.workspace.worktrees.clone import CloneKind
from support.canaries import place
from support.confinement import need_bubblewrap, need_guard
from support.parts import missing, ruled_out_if
from support.repositories import git, repository

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = ruled_out_if(os.geteuid() != 0, "only root can start infloop as root")

NOBODY = 65534
PYTHON = "/usr/bin/python3"
PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def top() -> Iterator[Path]:
    """A place that only root can enter."""
    need_bubblewrap()
    with place() as folder:
        folder.chmod(0o700)
        (folder / "work").mkdir()
        yield folder


async def confined(top: Path, code: str, **access: Any) -> str:
    """Run a Python program as a child of root; return what it says."""
    sandbox = BubblewrapSandbox()
    argv = (PYTHON, "-c", code)
    asked = Access(write=(str(top / "work"),), **access)
    try:
        request = ChildRequest(argv, str(top / "work"), {"PATH": PATH}, access=asked)
        result = await sandbox.run(request)
    finally:
        await sandbox.close()
    assert (result.error, result.exit_code) == ("", 0), result
    return result.stdout


async def test_a_child_of_root_withstands_the_whole_battery() -> None:
    need_bubblewrap()
    with place() as folder:
        sandbox = BubblewrapSandbox()
        try:
            check = await self_check(sandbox, str(folder))
        finally:
            await sandbox.close()
    assert (check.error, check.broken) == ("", ())


AS_ROOT = """
import os, stat, subprocess
print(os.getuid(), os.getgid(), open("/etc/passwd").read().split(":")[0], flush=True)
open("made", "w").close()
os.chmod("made", 0o600)
subprocess.run(["git", "status", "--short"], check=True)
for mode in (0o4755, 0o2755):
    for act in (lambda: os.chmod("made", mode), lambda: os.open(f"{mode}", os.O_CREAT, mode)):
        try: act(); print("set", oct(mode))
        except PermissionError: pass
for name in ("kpageflags", "slabinfo", "sys/net/ipv4/tcp_fastopen_key", "sys/vm/mmap_rnd_bits"):
    try: data = open(f"/proc/{name}", "rb").read(8)
    except OSError: data = b""
    if data: print("read", name)
for name in ("self/oom_score_adj", "self/net/anything", "pressure/cpu", "mtrr"):
    try: open(f"/proc/{name}", "w"); print("wrote", name)
    except OSError: pass
open("/proc/self/fd/1", "w").write("its own output\\n")
"""


async def test_root_is_an_ordinary_user_inside_with_its_own_files(top: Path) -> None:
    git("init", "-q", cwd=top / "work")
    said = await confined(top, AS_ROOT)
    assert said.splitlines() == ["1000 1000 agent", "?? made", "its own output"]
    made = (top / "work/made").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (0, 0, 0o600)


FORK = """
import os, signal
started = 0
try:
    while started < 2000:
        if os.fork() == 0: signal.pause()
        started += 1
except OSError: pass
print(started)
"""


async def test_the_processes_of_a_child_of_root_are_limited(top: Path) -> None:
    """The kernel does not count those of root where it counts those of others."""
    before = Path("/proc/sys/kernel/pid_max").read_text()
    said = await confined(top, FORK, limits=ResourceLimits(processes=100))
    assert 50 <= int(said) <= 100 + 301
    assert Path("/proc/sys/kernel/pid_max").read_text() == before
    with pytest.raises(MissingPart, match="a limit on their processes"):
        BubblewrapSandbox(release="6.13.0")


async def test_a_server_that_lets_root_in_is_not_reached_by_a_child_of_root(top: Path) -> None:
    """The server is another user's; its own rules would accept a socket of root."""
    server = """
import os, socket
os.setgroups([]); os.setresgid(1, 1, 1); os.setresuid(60001, 60001, 60001)
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
held.bind(f"\\0infloop-port/{port}"); held.listen(9)
print(port, flush=True)
input()
"""
    command = [sys.executable, "-c", server]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        port = int(other.stdout.readline())
        connect = f"""
import socket
try: socket.create_connection(("127.0.0.1", {port}), timeout=10); print("reached")
except PermissionError: print("refused")
"""
        try:
            assert await confined(top, connect, network="open") == "refused\n"
        finally:
            other.communicate("\n")


async def test_auto_confines_root_without_any_setting() -> None:
    need_bubblewrap()
    with place() as folder:
        choice = await choose("auto", SandboxOptions(str(folder)))
    assert (choice.level, choice.user) == ("sandbox", None)


def infloop(top: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Run a command on a machine without bubblewrap; return its exit code and what it says."""
    hide = 'mount --bind /dev/null /usr/bin/bwrap && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, "sh", sys.executable, "-m", "infloop", *arguments],
        cwd=top / "work",
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(top),
            "INFLOOP_DATA_DIR": str(top / "data"),
            **settings,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        missing("this machine lets nobody change its mounts")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_without_namespaces_children_become_another_user_and_get_the_worktree(top: Path) -> None:
    need_guard()
    top.chmod(0o711)
    (top / "work").rmdir()
    repository(top / "work", {"file": "x\n"})
    (top / "beside").mkdir()
    line = f"id -u > made; chmod 777 {top}/beside; true"
    nodes = [
        {"id": "start", "type": "start"},
        {"id": "c", "type": "command", "config": {"cmd": line, "useWorktree": True}},
    ]
    edges = [{"source": "start", "target": "c"}]
    file = {"id": "w", "name": "W", "nodes": nodes, "edges": edges}
    (top / "w.workflow.json").write_text(json.dumps(file))
    code, said = infloop(top, "run", str(top / "w.workflow.json"))
    assert code == 0, said
    assert (top / "beside").stat().st_mode & 0o7777 == 0o755
    assert not (top / "work/made").exists()
    code, said = infloop(top, "apply", "last")
    assert code == 0, said
    made = top / "work/made"
    assert made.read_text() == f"{NOBODY}\n"
    assert made.stat().st_uid == 0
    code, said = infloop(top, "doctor", "--level", "guard")
    assert f"isolation: guard, and children run as user {NOBODY}" in said
    assert "INFLOOP_SERVICE_USER" in said


def test_giving_a_worktree_away_follows_no_link(tmp_path: Path) -> None:
    """A child that works there exchanges a directory for a link at the worst moment."""
    tree, victim = tmp_path / "tree", tmp_path / "victim"
    for folder in (tree / "sub", victim):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    exchanged: list[str] = []

    def exchange(event: str, _: tuple[object, ...]) -> None:
        if event == "os.chown" and watching and not exchanged:
            exchanged.append(event)
            (tree / "sub").rename(tree / "other")
            (tree / "sub").symlink_to(victim)

    watching = True
    sys.addaudithook(exchange)
    try:
        CloneKind(None, (NOBODY, NOBODY)).set_owner(tree)
    finally:
        watching = False
    assert exchanged
    assert (victim / "file").stat().st_uid == 0
    assert victim.stat().st_uid == 0
