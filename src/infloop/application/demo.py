"""The demo: a small project with failing tests, and a scripted agent that fixes them."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import MissingPart, SettingsError
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox

if TYPE_CHECKING:
    from collections.abc import Iterable

NEEDED = (("git", "to show what each round changed"), ("python3", "to run the project's tests"))
GIT_TIMEOUT_MS = 30_000
# The demo's commit does not depend on the user's own configuration: no signature, no hooks.
_GIT_SETTINGS = (
    ("user.name", "infloop demo"),
    ("user.email", "demo@localhost"),
    ("commit.gpgsign", "false"),
    ("core.hooksPath", "/dev/null"),
)


TASK = "Make the tests pass. Change one thing at a time."
CHECK = "python3 -B -m unittest -q"
AGENT = "scripted"
NEXT = 'infloop loop "Fix the failing tests" --check "pytest -q"'


def refuse_without_programs() -> None:
    """Raise MissingPart if a program is not installed that the demo needs."""
    for program, purpose in NEEDED:
        if shutil.which(program) is None:
            raise MissingPart(f"the demo needs {program!r} {purpose}; install it and try again")


async def create_project(project: Path, providers: Path) -> None:
    """Write the project, a git repository; the manifest of its agent goes to `providers`."""
    shipped = resources.files("infloop") / "demo"
    for directory in (project, providers):
        directory.mkdir(parents=True)
    for file in (shipped / "project").iterdir():
        (project / file.name.removesuffix(".txt")).write_bytes(file.read_bytes())
    for name in ("provider.json", "turns.json"):
        (providers / name).write_bytes((shipped / name).read_bytes())
    await _git(project, ["init", "-q"])
    for name, value in _GIT_SETTINGS:
        await _git(project, ["config", name, value])
    await _git(project, ["add", "."])
    await _git(project, ["commit", "-q", "-m", "a project with four failing tests"])


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
