"""A shell line of a workflow where children are confined: where it begins, writes and looks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.canaries import place
from support.confinement import need_bubblewrap
from support.runs import world
from support.server import workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "nobody" if os.geteuid() == 0 else ""
SECRET = "planted-0123456789abcdef"

levels = pytest.mark.parametrize("level", ["guard", "sandbox"])


@pytest.fixture
def top() -> Iterator[Path]:
    """A place with `work`, where runs work, and `beside`, which belongs to the same user."""
    need_bubblewrap()
    with place() as folder:
        for name in ("work", "beside"):
            (folder / name).mkdir(exist_ok=True)
            if USER:
                shutil.chown(folder / name, USER)
        yield folder


@levels
@pytest.mark.claim("L5")
async def test_a_command_begins_in_the_workspace_and_writes_nowhere_else(
    top: Path, level: str
) -> None:
    line = f"pwd -P; echo in > here; echo out > {top}/beside/there; echo out > ../there; true"
    async with world(top, isolation=level, service_user=USER, snapshots=False) as here:
        ended = await here.run(workflow("w", line))
    assert ended.result.status == "succeeded", ended.result.error
    assert ended.said().splitlines()[0] == str((top / "work").resolve())
    assert (top / "work/here").read_text() == "in\n"
    assert not list((top / "beside").iterdir())
    assert not (top / "there").exists()


@levels
@pytest.mark.claim("L6")
def test_a_command_finds_a_planted_secret_neither_in_its_environment_nor_in_proc(
    top: Path, level: str
) -> None:
    look = "env; for each in /proc/self /proc/$PPID /proc/[0-9]*; do cat $each/environ; done; true"
    (top / "w.workflow.json").write_text(json.dumps(workflow("w", look)))
    ran = subprocess.run(
        [sys.executable, "-m", "infloop", "run", str(top / "w.workflow.json"), "--json"],
        cwd=top / "work",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(top),
            "SECRET_TOKEN": SECRET,  # in what /proc shows of infloop itself
            "INFLOOP_DATA_DIR": str(top / "data"),
            "INFLOOP_ISOLATION": level,
            "INFLOOP_SERVICE_USER": USER,
            "INFLOOP_SNAPSHOTS": "false",
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "PATH=" in ran.stdout
    assert "SECRET_TOKEN" not in ran.stdout + ran.stderr
    assert SECRET not in ran.stdout + ran.stderr
