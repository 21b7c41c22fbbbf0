"""A user without a home and without an entry in the password database, as in many containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infloop
from support.parts import missing
from support.repositories import git
from support.service_user import folder_for_children

UID = "54321"
AGENT = "#!/bin/sh\ncat >/dev/null\ntouch fixed\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of that user, with a project whose check fails and a program `codex`."""
    with folder_for_children() as made:
        project, program = made / "project", made / "bin" / "codex"
        for directory in (project, program.parent, made / "data"):
            directory.mkdir()
        git("init", cwd=project)
        (project / "Makefile").write_text("test:\n\ttest -e fixed\n")
        git("add", ".", cwd=project)
        git("commit", "-m", "a check that fails", cwd=project)
        program.write_text(AGENT)
        program.chmod(0o755)
        if os.geteuid() == 0:
            for path in (made, *made.rglob("*")):
                os.chown(path, int(UID), int(UID))
        yield made


def become_nobody_known() -> list[str]:
    """Return the command that runs another one as a user whom nobody knows."""
    if os.geteuid() == 0:
        prefix = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups"]
    else:
        prefix = ["unshare", "--user", f"--map-user={UID}", f"--map-group={UID}"]
    if shutil.which(prefix[0]) is None:
        missing(f"{prefix[0]} is not installed")
    return [*prefix, python()]


def python() -> str:
    """Return an interpreter that this user can start."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = (Path(sys.executable).resolve(), Path("/usr/bin", version))
    found = [path for path in paths if path.exists() and _is_open(path)]
    if not found:
        missing(f"other users cannot start {version}; install it in /usr/bin")
    return str(found[0])


def _is_open(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def run(folder: Path, *arguments: str, code: int = 0, **variables: str) -> str:
    packages = [str(Path(infloop.__file__).parent.parent), *filter(None, sys.path)]
    done = subprocess.run(
        [*become_nobody_known(), "-m", "infloop", *arguments],
        cwd=folder / "project",
        env={
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": ":".join(one for one in packages if "packages" in one or "src" in one),
            **variables,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_with_a_data_directory_everything_works(folder: Path) -> None:
    data: dict[str, Any] = {"INFLOOP_DATA_DIR": str(folder / "data")}
    assert "codex works until `make test` succeeds" in run(folder, "new", "fix", **data)
    assert "run succeeded" in run(folder, "run", "./fix.loop.yaml", **data)
    run(folder, "apply", "last", **data)
    assert (folder / "project" / "fixed").exists()


@pytest.mark.parametrize(
    ("variables", "arguments", "code", "said"),
    [
        ({}, ("runs",), 2, "user 54321 has no home directory: set INFLOOP_DATA_DIR"),
        ({"HOME": ""}, ("new",), 2, "user 54321 has no home directory: set INFLOOP_DATA_DIR"),
        (
            {"HOME": "here"},
            ("doctor",),
            2,
            "user 54321 has no home directory: set INFLOOP_DATA_DIR",
        ),
        ({"HOME": "/"}, ("runs",), 1, "set INFLOOP_DATA_DIR"),
        ({"HOME": "/"}, ("loop", "x", "--check", "true", "--detach"), 2, "set INFLOOP_DATA_DIR"),
    ],
)
def test_without_one_a_single_line_says_what_to_set(
    folder: Path, variables: dict[str, str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    (line,) = run(folder, *arguments, code=code, **variables).splitlines()
    assert line.startswith("infloop: ")
    assert said in line
