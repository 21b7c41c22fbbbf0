"""Spawns of `true` at each isolation level, one after another, beside the least that can be done.

At `guard` and `sandbox` the child has no network but its proxy's listener, as under an egress
allowlist. The floor is `posix_spawn` and `waitpid`. Two peers:

- bubblewrap alone, with the namespaces and the view of level `sandbox`. It has no proxy, no system
  call filter and no limits, and nothing ends its children. How long the kernel takes for namespaces
  and mounts differs from machine to machine more than anything else here, so the ratio to it counts
  beside the milliseconds. When the aims were set, it took 6.1 ms.
- the library of `@anthropic-ai/sandbox-runtime`, installed by npm into the benchmark's folder (with
  `socat` and `rg` on PATH; left out where it cannot be had): its proxies run, each command is
  wrapped and spawned.

As root, children and peers run as a user without rights. CPU is that of the process that asks for
spawns, without keepers and children.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

import original
from benchmark import Benchmark, Contender, Sample, Target, each, ratio, stopwatch, wall
from infloop.app import run_async
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest, Sandbox
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from infloop.sandbox.view.mounts import etc_files, mounts, view
from infloop.sandbox.view.root_directory import read_root_layout

if TYPE_CHECKING:
    from benchmark import Rounds

WARM_UP = 10
TRUE = "/bin/true"
HOME = "/home/agent"
NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--unshare-net", "--hostname", "sandbox", "--new-session", "--cap-drop", "ALL"),
    *("--die-with-parent", "--clearenv"),
)
FIRST_FILE = 10
USER = (65534, 65534) if os.geteuid() == 0 else None
PACKAGE = "@anthropic-ai/sandbox-runtime"
SCRIPT = """
import { SandboxManager } from '@anthropic-ai/sandbox-runtime'
import { spawn } from 'node:child_process'
const [count, warmUp] = process.argv.slice(2).map(Number)
await SandboxManager.initialize({
  network: { allowedDomains: ['example.com'], deniedDomains: [] },
  filesystem: { denyRead: ['~/.ssh'], allowWrite: ['.'], denyWrite: [] },
})
async function once() {
  const line = await SandboxManager.wrapWithSandbox('true')
  const code = await new Promise((done) =>
    spawn(line, { shell: true, stdio: 'ignore' }).on('exit', done))
  if (code !== 0) throw new Error(`exit code ${code}`)
}
for (let i = 0; i < warmUp; i++) await once()
const began = process.hrtime.bigint(), used = process.cpuUsage()
for (let i = 0; i < count; i++) await once()
const { user, system } = process.cpuUsage(used)
const wall = Number(process.hrtime.bigint() - began) / 1e9
console.log(JSON.stringify({ count, wall, cpu: (user + system) / 1e6 }))
process.exit(0)
"""


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Give a directory that the children's user can use, unlike the benchmark's own."""
    with tempfile.TemporaryDirectory(prefix="infloop-spawn-") as name:
        if USER:
            os.chown(name, *USER)
        yield Path(name)


def measure_posix_spawn(count: int, folder: Path) -> Sample:
    """Spawn and wait, nothing else."""
    with stopwatch(count) as sample:
        for _ in range(count):
            wait_for(os.posix_spawn(TRUE, [TRUE], {}))
    return sample


def measure_bubblewrap(count: int, folder: Path) -> Sample:
    """Spawn bubblewrap with the view that level `sandbox` gives it, and wait."""
    program = find_bubblewrap()
    with place() as here:
        argv, files = bubblewrap_arguments(here)
        with user_without_rights():
            for _ in range(WARM_UP):
                if wait_for(os.posix_spawn(program, argv, {}, file_actions=files)):
                    raise RuntimeError("bubblewrap failed")
            with stopwatch(count) as sample:
                for _ in range(count):
                    wait_for(os.posix_spawn(program, argv, {}, file_actions=files))
    return sample


def bubblewrap_arguments(here: Path) -> tuple[list[str], list[tuple[int, int, str, int, int]]]:
    """Return the arguments, and what opens the files that bubblewrap copies into /etc."""
    uid, gid = USER or (os.geteuid(), os.getegid())
    root, access = read_root_layout(), Access(write=(str(here),), network="none")
    argv, files = ["bwrap", *NAMESPACES], []
    made = etc_files(root, access, uid=uid, gid=gid, home=HOME)
    for number, (path, data) in enumerate(made.items(), FIRST_FILE):
        copy = here / f"file-{number}"
        copy.write_bytes(data)
        files.append((os.POSIX_SPAWN_OPEN, number, str(copy), os.O_RDONLY, 0))
        argv += ["--perms", "0644", "--file", str(number), path]
    argv += view(root, access, mounts(access, programs={}, home=HOME, hidden=()))
    return [*argv, "--chdir", str(here), "--", TRUE], files


@contextlib.contextmanager
def user_without_rights() -> Iterator[None]:
    """Let what is spawned inside run as the children's user."""
    if USER is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    uid, gid = USER
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def wait_for(pid: int) -> int:
    """Return the wait status of a child."""
    return os.waitpid(pid, 0)[1]


def level(make: Callable[[str], Sandbox]) -> Callable[[int, Path], Sample]:
    """Return how a level is measured."""
    return lambda count, _: run_async(_measure(make, count))


async def _measure(make: Callable[[str], Sandbox], count: int) -> Sample:
    with place() as here:
        sandbox = make(str(here))
        access = Access(write=(str(here),), network="proxy", on_listening=_close)
        request = ChildRequest((TRUE,), str(here), {"PATH": "/usr/bin:/bin"}, access=access)
        try:
            for _ in range(WARM_UP):
                await sandbox.run(request)
            with stopwatch(count) as sample:
                for _ in range(count):
                    result = await sandbox.run(request)
                    if result.exit_code != 0:
                        raise RuntimeError(result.error or result.stderr)
        finally:
            await sandbox.close()
    return sample


async def _close(listeners: Mapping[int, socket]) -> None:
    for listener in listeners.values():
        listener.close()


def prepare(size: int, folder: Path) -> None:
    """Install the peer; where that fails, it is left out."""
    peer = folder / "peer"
    peer.mkdir()
    (peer / "measure.mjs").write_text(SCRIPT)
    npm = shutil.which("npm")
    if npm:
        argv = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(peer), PACKAGE]
        subprocess.run(argv, check=False, capture_output=True)


def measure_peer(count: int, folder: Path) -> Sample:
    """Let the peer's library wrap and spawn."""
    node = shutil.which("node")
    if node is None or not (folder / "peer/node_modules").is_dir():
        raise RuntimeError("it is not installed")
    with place() as here:
        shutil.copytree(folder / "peer", here / "peer", symlinks=True)
        here.chmod(0o755)
        who = {"user": USER[0], "group": USER[1], "extra_groups": []} if USER else {}
        done = subprocess.run(
            [node, str(here / "peer/measure.mjs"), str(count), str(WARM_UP)],
            cwd=here,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(here)},
            capture_output=True,
            text=True,
            check=False,
            **who,  # type: ignore[call-overload]
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return Sample(**json.loads(done.stdout))


FLOOR, HOST, GUARD, SANDBOX = "posix_spawn and wait", "host", "guard", "sandbox"
BUBBLEWRAP = "bubblewrap alone"

BENCHMARK = Benchmark(
    title="Spawns of `true`, by isolation level",
    unit="spawn",
    contenders=(
        Contender(FLOOR, measure_posix_spawn),
        Contender(HOST, level(lambda _: HostSandbox(user=USER))),
        Contender(GUARD, level(lambda scratch: GuardSandbox(scratch, user=USER))),
        Contender(SANDBOX, level(lambda _: BubblewrapSandbox(user=USER))),
        Contender(BUBBLEWRAP, measure_bubblewrap),
        Contender("sandbox-runtime", measure_peer, optional=True),
    ),
    targets=(
        Target("guard, with its proxy's listener", each(GUARD, wall, 1000), 4, "ms"),
        Target("sandbox, with its proxy's listener", each(SANDBOX, wall, 1000), 7, "ms"),
        Target("guard, to bubblewrap alone", ratio(GUARD, BUBBLEWRAP, wall), 0.66, "times"),
        Target("sandbox, to bubblewrap alone", ratio(SANDBOX, BUBBLEWRAP, wall), 1.15, "times"),
        Target(
            "sandbox-runtime's time, to sandbox",
            ratio("sandbox-runtime", SANDBOX, wall),
            3,
            "times",
            at_least=True,
        ),
    ),
    size=100,
    quick_size=40,
    rounds=7,
    prepare=prepare,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [
        original.row(original.GUARD_COMMAND, each(GUARD, wall, 1e3)(rounds)),
        original.row(original.SANDBOX_COMMAND, each(SANDBOX, wall, 1e3)(rounds)),
    ]
