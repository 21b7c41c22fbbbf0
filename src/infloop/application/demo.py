"""The demo: a small project with failing tests, and a loop whose scripted agent fixes them."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.errors import MissingPart, SettingsError
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox

if TYPE_CHECKING:
    from collections.abc import Iterable

NEEDED = (("git", "to show what each round changed"), ("python3", "to run the project's tests"))
GIT_TIMEOUT_MS = 30_000
_FIRST = "beginning"
# The demo's commits do not depend on the user's own configuration: no signature, no hooks.
_GIT_SETTINGS = (
    ("user.name", "infloop demo"),
    ("user.email", "demo@localhost"),
    ("commit.gpgsign", "false"),
    ("core.hooksPath", "/dev/null"),
)


class DemoProject(Model, kw_only=True):
    """Where the project and the workflow were written."""

    project: str
    workflow: str


class RoundChanges(Model, kw_only=True):
    """What one round committed: the subject, and a line for each file."""

    subject: str
    files: list[str]


def refuse_without_programs() -> None:
    """Raise MissingPart if a program is not installed that the demo needs."""
    for program, purpose in NEEDED:
        if shutil.which(program) is None:
            raise MissingPart(f"the demo needs {program!r} {purpose}; install it and try again")


async def create_project(folder: Path, providers: Path) -> DemoProject:
    """Write the project, a git repository, and the workflow to `folder`.

    The manifest and the script of its agent go to `providers`.
    """
    shipped = resources.files("infloop") / "demo"
    project, workflow = folder / "project", folder / "fix-tests.workflow.json"
    for directory in (project, providers):
        directory.mkdir(parents=True)
    for file in (shipped / "project").iterdir():
        (project / file.name.removesuffix(".txt")).write_bytes(file.read_bytes())
    workflow.write_bytes((shipped / workflow.name).read_bytes())
    for name in ("provider.json", "turns.json"):
        (providers / name).write_bytes((shipped / name).read_bytes())
    await _git(project, ["init", "-q"])
    for name, value in _GIT_SETTINGS:
        await _git(project, ["config", name, value])
    await _git(project, ["add", "."])
    await _git(project, ["commit", "-q", "-m", "a project with four failing tests"])
    await _git(project, ["tag", _FIRST])
    return DemoProject(project=str(project), workflow=str(workflow))


async def round_changes(project: str) -> list[RoundChanges]:
    """Return what each round committed."""
    log = ["log", "--reverse", "--stat=60", "--format=%x00%s", f"{_FIRST}..HEAD"]
    found = []
    for commit in (await _git(Path(project), log)).split("\0")[1:]:
        subject, *rest = commit.strip().split("\n")
        files = [line.strip() for line in rest if " | " in line]
        found.append(RoundChanges(subject=subject, files=files))
    return found


async def _git(project: Path, arguments: Iterable[str]) -> str:
    """Run git in the project without the user's own configuration."""
    program = shutil.which("git") or "git"
    sandbox = HostSandbox()
    try:
        result = await sandbox.run(
            ChildRequest(
                argv=(program, *arguments),
                cwd=str(project),
                env={
                    "PATH": f"{Path(program).parent}:{os.defpath}",
                    "HOME": str(project.parent),
                },
                timeout_ms=GIT_TIMEOUT_MS,
            )
        )
    finally:
        await sandbox.close()
    if result.exit_code != 0:
        why = result.error or result.stderr.strip() or f"exit {result.exit_code}"
        command = " ".join(arguments)
        raise SettingsError(f"`git {command}` failed in {str(project)!r}: {why}")
    return result.stdout
