"""A shell line of a workflow where children are confined: where it begins, writes and looks."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.canaries import place
from support.confinement import need_level
from support.runs import world
from support.server import workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "nobody" if os.geteuid() == 0 else ""
GIVEN = {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TMP", "TEMP", "LC_CTYPE", "RUN_BY_INFLOOP"}
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}

levels = pytest.mark.parametrize("level", ["host", "guard", "sandbox"])


@pytest.fixture
def top() -> Iterator[Path]:
    """A place with `work`, where runs work, and `beside`, which belongs to the same user."""
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
    need_level(level)
    line = f"pwd; pwd -P; echo in > here; echo out > {top}/beside/there; echo out > ../there; true"
    async with world(top, isolation=level, service_user=USER, snapshots=False) as here:
        ended = await here.run(workflow("w", line))
    assert ended.result.status == "succeeded", ended.result.error
    assert ended.said().splitlines()[:2] == [str((top / "work").resolve())] * 2
    assert (top / "work/here").read_text() == "in\n"
    if level == "host":
        return
    assert not list((top / "beside").iterdir())
    assert not (top / "there").exists()


@levels
@pytest.mark.claim("L6")
def test_a_command_finds_a_planted_secret_neither_in_its_environment_nor_in_proc(
    top: Path, level: str
) -> None:
    need_level(level)
    planted, harmless = f"planted-{secrets.token_hex(16)}", f"harmless-{secrets.token_hex(16)}"
    # Into files: what is printed is redacted.
    look = (
        "env > env; for each in /proc/self /proc/$PPID /proc/[0-9]*; "
        "do cat $each/environ; done > processes; true"
    )
    (top / "w.workflow.json").write_text(json.dumps(workflow("w", look)))
    ran = subprocess.run(
        [sys.executable, "-m", "infloop", "run", str(top / "w.workflow.json"), "--json"],
        cwd=top / "work",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(top),
            "SECRET_TOKEN": planted,  # in what /proc shows of infloop itself
            "OF_NO_IMPORTANCE": harmless,
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
    own = dict(
        line.split("=", 1) for line in (top / "work/env").read_text().splitlines() if "=" in line
    )
    assert own["PATH"]
    assert set(own) - OF_THE_SHELL <= GIVEN
    processes = (top / "work/processes").read_bytes()
    assert b"PATH=" in processes, "its own can be read"
    for value in (planted, harmless):
        assert value not in own.values()
        assert value.encode() not in processes
        assert value not in ran.stdout + ran.stderr
