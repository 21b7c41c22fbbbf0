"""The demo: a small project with failing tests, and a scripted agent that fixes them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from importlib import resources
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.application.loops import LoopRequest
from infloop.errors import Conflict, MissingPart, SettingsError
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox
from infloop.store.files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.application.caller import Caller
    from infloop.application.loops import Loops
    from infloop.application.resources import Resources
    from infloop.application.runs.control import Runs
    from infloop.application.runs.models import RunPromise
    from infloop.application.workflows import Workflows

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
WORKFLOW_ID = "fix-tests"
FOLDER = "infloop-demo"
NEXT = 'infloop loop "Fix the failing tests" --check "pytest -q"'


def refuse_without_programs() -> None:
    """Raise MissingPart if a program is not installed that the demo needs."""
    for program, purpose in NEEDED:
        if shutil.which(program) is None:
            raise MissingPart(f"the demo needs {program!r} {purpose}; install it and try again")


class Demo:
    """Starts the demo in a server: a workflow of the user's own, in a project of its own."""

    def __init__(
        self, resources: Resources, loops: Loops, workflows: Workflows, runs: Runs
    ) -> None:
        self._resources = resources
        self._loops = loops
        self._workflows = workflows
        self._runs = runs

    async def start(self, caller: Caller) -> RunPromise:
        """Put a run of the demo into the queue; raise Conflict while there is one.

        Its agent and its workflow are written once; files of the user's are never replaced.
        """
        await self._refuse_second()
        try:
            refuse_without_programs()
        except MissingPart as error:
            raise Conflict(str(error), "program-missing") from None
        await self._resources.audit().record(
            "demo.started", caller.actor, correlation_id=caller.correlation_id
        )
        folders = self._resources.folders
        if AGENT not in folders.known_providers():
            await asyncio.to_thread(install_agent, folders.providers[0].folder)
        if WORKFLOW_ID not in await asyncio.to_thread(self._workflows.ids):
            request = LoopRequest(task=TASK, check=CHECK, agent=AGENT)
            content = {**self._loops.to_save(request, WORKFLOW_ID), "name": "Fix the tests"}
            await self._workflows.save(json.dumps(content).encode(), caller)
        project = await asyncio.to_thread(_free_folder, folders.home)
        await create_project(project)
        return await self._runs.enqueue(WORKFLOW_ID, {}, caller, directory=str(project))

    async def _refuse_second(self) -> None:
        service = self._resources.driving()
        live = service.live().values() if service else ()
        waiting = (one.run.workflow_id for one in await self._resources.store.queue.entries())
        if WORKFLOW_ID in (*live, *waiting):
            raise Conflict("the demo is running already; wait until it has ended", "demo-running")


def _free_folder(home: Path) -> Path:
    """Return where a project goes that its user will look for: below the home directory. Blocks."""
    try:
        (home / FOLDER).mkdir(exist_ok=True)
        parent = home / FOLDER
    except OSError:  # a home that cannot be written to, as in some containers
        parent = Path(tempfile.mkdtemp(prefix="infloop-demo-"))
    names = (f"{WORKFLOW_ID}-{number}" for number in count(1))
    return next(parent / name for name in names if not (parent / name).exists())


def install_agent(providers: Path) -> None:
    """Write the manifest and the turns of the demo's agent into a folder of providers. Blocks."""
    shipped = resources.files("infloop") / "demo"
    providers.mkdir(parents=True, exist_ok=True)
    for name in ("scripted.turns.json", "scripted.json"):
        write_private(providers / name, (shipped / name).read_bytes())


async def create_project(project: Path) -> None:
    """Write the project, a git repository."""
    await asyncio.to_thread(_write_project, project)
    await _git(project, ["init", "-q"])
    for name, value in _GIT_SETTINGS:
        await _git(project, ["config", name, value])
    await _git(project, ["add", "."])
    await _git(project, ["commit", "-q", "-m", "a project with four failing tests"])


def _write_project(project: Path) -> None:
    shipped = resources.files("infloop") / "demo"
    project.mkdir(parents=True)
    for file in (shipped / "project").iterdir():
        (project / file.name.removesuffix(".txt")).write_bytes(file.read_bytes())


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
