"""Who a keeper is: the groups that its children get, and what they can learn from it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infloop.sandbox.keepers import keeper
from infloop.sandbox.view.path_permissions import can_reach
from support.canaries import PATH, PYTHON, UNPRIVILEGED, USER, place
from support.confinement import need_bubblewrap
from support.parts import ruled_out, ruled_out_if
from support.processes import DEADLINE_S

SERVER = """
import asyncio, os, sys
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.sandbox.levels.host import HostSandbox

level, folder, uid, python, *argv = sys.argv[1:]
user = (int(uid), int(uid)) if uid else None
if python:
    # As a plain user from here on, who may not be able to run the Python of these tests.
    sys.executable = python
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    user = None
LEVELS = {
    "host": lambda: HostSandbox(user=user),
    "guard": lambda: GuardSandbox(folder, user=user),
    "sandbox": lambda: BubblewrapSandbox(user=user),
}

async def main():
    sandbox = LEVELS[level]()
    result = await sandbox.run(ChildRequest(tuple(argv), folder, {"PATH": "/usr/bin:/bin"}))
    await sandbox.close()
    print(result.stdout, result.error)

asyncio.run(main())
"""


def said_by_a_child(
    level: str, *argv: str, python: str = "", groups: list[int] | None = None
) -> str:
    """What a child of a server says that is a process of its own."""
    with place() as folder:
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        uid = str(UNPRIVILEGED) if os.geteuid() == 0 else ""
        done = subprocess.run(
            [sys.executable, "-c", SERVER, level, str(folder), uid, python, *argv],
            extra_groups=groups,
            env={"PATH": PATH},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            cwd="/",
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@ruled_out_if(os.geteuid() != 0, "only root can run children as another user")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
def test_children_of_another_user_have_none_of_the_servers_groups(level: str) -> None:
    if level == "sandbox":
        need_bubblewrap()
    said = said_by_a_child(level, "id", "-G", groups=[0, 4, 27])
    assert said == str(UNPRIVILEGED)


LOOKS = """
import os
for name in ("environ", "maps", "auxv"):
    try:
        os.close(os.open(f"/proc/{os.getppid()}/{name}", os.O_RDONLY))
        print(name, "opened")
    except PermissionError:
        pass
print("looked")
"""


def test_a_keeper_shows_nothing_of_its_memory_to_a_child_of_the_same_user() -> None:
    python = ""
    if USER:
        python = PYTHON
        if not can_reach(keeper.__file__, USER):
            ruled_out("another user cannot read the sources of infloop")
    assert said_by_a_child("host", PYTHON, "-c", LOOKS, python=python) == "looked"
