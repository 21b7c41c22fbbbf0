"""Children that take all the time of the processor: they wait for others, and they can be ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.base import ChildRequest
from infloop.sandbox.keepers.orphans import KEEPER_PIDS
from infloop.sandbox.levels.host import HostSandbox
from support.canaries import PYTHON, place
from support.eventually import eventually_async
from support.processes import alive, new_token
from support.runs import world
from support.small_disk import settings_at, workplace
from support.thorough import amount
from support.user_machine import command, script
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from typing import Any

LEVELS = ["host", "guard", "sandbox"]
DEADLINE_S = 100.0
NICE, LOWEST = 10, 19

# Where the kernel has autogroups, the keeper lowers the session's priority soon after the start.
PRIORITIES = """
import os, subprocess, sys, time
def of_the_session():
    try:
        return int(open('/proc/self/autogroup').read().split()[-1])
    except (FileNotFoundError, IndexError):
        return None
deadline = time.monotonic() + 30
while of_the_session() == 0 and time.monotonic() < deadline:
    time.sleep(0.01)
try:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
except PermissionError:
    pass
ask = 'import os; print(os.nice(0))'
return {
    'own': os.nice(0),
    'of a process it started': int(subprocess.check_output([sys.executable, '-c', ask])),
    'of its session': of_the_session(),
}
"""

# Every fork takes a byte of the pipe, because the kernel does not limit the processes of root. One
# that gets none tries again, at once or after a rest.
BOMB = """
import os, signal, sys, time
_, token, limit, way, rest, ready = sys.argv
signal.signal(signal.SIGTERM, signal.SIG_IGN)
left, given = os.pipe()
os.set_blocking(left, False)
os.write(given, b'.' * int(limit))
open(ready, 'w').close()
while True:
    signal.alarm(120)
    try:
        os.read(left, 1)
    except BlockingIOError:
        time.sleep(float(rest))
        continue
    pid = os.fork()
    if pid == 0 and way == 'sessions':
        os.setsid()
    if pid == 0 and way == 'groups':
        os.setpgid(0, 0)
"""
PROCESSES = 60
REST_S = (
    amount(1, thorough=0) / 20
)  # what takes all the time of the processor until its end is slow


def flow(step: dict[str, Any]) -> dict[str, Any]:
    return workflow([node("start", "start"), step], edges(f"start next {step['id']}"))


@pytest.mark.parametrize("level", LEVELS)
async def test_a_child_has_a_lower_priority_than_the_server_and_cannot_raise_it(level: str) -> None:
    with place() as parent:
        workplace(parent / "work")
        async with world(parent, **settings_at(level)) as app, asyncio.timeout(DEADLINE_S):
            done = await app.run(flow(script("s", PRIORITIES)))
            keepers = [nice_of(pid) for pid in KEEPER_PIDS]
    seen = done.scope["s"]["result"]
    assert seen.pop("of its session") in (None, NICE)
    assert seen == {"own": NICE, "of a process it started": NICE}
    assert set(keepers) == {nice_of("self")}


async def test_children_beyond_the_number_of_processors_have_the_lowest_priority(
    tmp_path: Path,
) -> None:
    processors = len(os.sched_getaffinity(0))
    line = "nice > $0.part; mv $0.part $0; until [ -e end ]; do sleep 0.01; done"
    sandbox = HostSandbox()
    try:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            for number in range(processors + 1):
                argv = ("sh", "-c", line, str(number))
                request = ChildRequest(argv, str(tmp_path), {"PATH": "/usr/bin:/bin"})
                tasks.create_task(sandbox.run(request))
                await eventually_async((tmp_path / str(number)).exists)
            (tmp_path / "end").touch()
    finally:
        await sandbox.close()
    seen = [int((tmp_path / str(number)).read_text()) for number in range(processors + 1)]
    assert seen == [NICE] * processors + [LOWEST]


def nice_of(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


@pytest.mark.thorough
@pytest.mark.claim("I54")
@pytest.mark.parametrize(
    ("level", "way", "rest_s"),
    [
        *(("host", "one group", 0), ("host", "groups", REST_S), ("host", "sessions", REST_S)),
        *(("guard", "sessions", REST_S), ("sandbox", "sessions", REST_S)),
    ],
)
async def test_a_fork_bomb_is_gone_when_its_run_is_cancelled(
    level: str, way: str, rest_s: float
) -> None:
    token = new_token()
    with place() as parent:
        work = workplace(parent / "work")
        (work / "bomb.py").write_text(BOMB)
        line = f"{PYTHON} bomb.py {token} {PROCESSES} '{way}' {rest_s} ready"
        async with world(parent, **settings_at(level)) as app, asyncio.timeout(DEADLINE_S):
            run_id = await app.start(flow(command("c", line)))
            await eventually_async((work / "ready").exists)
            await eventually_async(lambda: len(alive(token)) > PROCESSES // 2)
            await app.service.stop(run_id, "enough")
            assert (await app.finish(run_id)).status == "cancelled"
            assert alive(token) == []
