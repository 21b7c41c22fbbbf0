"""Watch a loop turn failing tests green: no account, no server, nothing to set up.

A small project with four failing tests is made in a temporary git repository. A loop asks an agent
to fix one thing, runs the tests, and goes on until they pass. The agent plays a script, so that
the demo costs nothing and ends the same way each time; everything else is real. Your own runs and
settings are not touched.

  infloop demo
  infloop demo --keep
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infloop.cli.view.terminal import one_line

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings

NEEDED = (("git", "to show what each round changed"), ("python3", "to run the project's tests"))
GIT_TIMEOUT_MS = 30_000
BEGINNING = "beginning"
# Whatever the user's own configuration says, the demo's commits are made, unsigned and unhooked.
GIT_SETTINGS = (
    ("user.name", "infloop demo"),
    ("user.email", "demo@localhost"),
    ("commit.gpgsign", "false"),
    ("core.hooksPath", "/dev/null"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("--keep", action="store_true", help="keep the project and the run")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Make the project, run the loop, and say what happened."""
    import shutil
    import tempfile

    from infloop import app
    from infloop.errors import MissingPart

    for program, purpose in NEEDED:
        if shutil.which(program) is None:
            raise MissingPart(f"the demo needs {program!r} {purpose}; install it and try again")
    folder = Path(tempfile.mkdtemp(prefix="infloop-demo-"))
    try:
        return app.run_async(_demo(folder, as_json=args.json, keep=args.keep))
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _demo(folder: Path, *, as_json: bool, keep: bool) -> int:
    from infloop.cli.commands.run import given_inputs, load, run_bundle
    from infloop.settings import Settings

    # A temporary directory may be small, and the demo needs next to nothing of it.
    settings = Settings.model_validate({"data_dir": folder / "data", "min_free_disk_bytes": 0})
    project, workflow = _unpack(folder, settings)
    await _first_commit(project)
    if not as_json:
        print(f"project  {project}: four failing tests")
        print(f"loop     {workflow}")
    bundle = load(settings, str(workflow))
    inputs = given_inputs(bundle.root, [])
    code = await run_bundle(settings, bundle, inputs, str(project), as_json=as_json)
    if not as_json:
        await _tell(settings, project, keep=keep)
    return code


def _unpack(folder: Path, settings: Settings) -> tuple[Path, Path]:
    """Write the project, the workflow and the agent's script; return the first two."""
    from importlib import resources

    shipped = resources.files("infloop") / "demo"
    project, workflow = folder / "project", folder / "fix-tests.workflow.json"
    for made in (project, settings.providers):
        made.mkdir(parents=True)
    for file in (shipped / "project").iterdir():
        (project / file.name.removesuffix(".txt")).write_bytes(file.read_bytes())
    workflow.write_bytes((shipped / workflow.name).read_bytes())
    for name in ("provider.json", "turns.json"):
        (settings.providers / name).write_bytes((shipped / name).read_bytes())
    return project, workflow


async def _first_commit(project: Path) -> None:
    await _git(project, "init", "-q")
    for name, value in GIT_SETTINGS:
        await _git(project, "config", name, value)
    await _git(project, "add", ".")
    await _git(project, "commit", "-q", "-m", "a project with four failing tests")
    await _git(project, "tag", BEGINNING)


async def _git(project: Path, *arguments: str) -> str:
    """Run git in the project, untouched by the user's own configuration."""
    import os
    import shutil

    from infloop.errors import SettingsError
    from infloop.sandbox.base import ChildRequest
    from infloop.sandbox.levels.host import HostSandbox

    program = shutil.which("git") or "git"
    path = f"{Path(program).parent}:{os.defpath}"
    sandbox = HostSandbox()
    try:
        result = await sandbox.run(
            ChildRequest(
                argv=(program, *arguments),
                cwd=str(project),
                env={"PATH": path, "HOME": str(project.parent)},
                timeout_ms=GIT_TIMEOUT_MS,
            )
        )
    finally:
        await sandbox.close()
    if result.exit_code != 0:
        why = result.error or result.stderr.strip() or f"exit {result.exit_code}"
        raise SettingsError(f"`git {arguments[0]}` failed in {str(project)!r}: {why}")
    return result.stdout


async def _tell(settings: Settings, project: Path, *, keep: bool) -> None:
    """Print what happened, and what to try next."""
    from infloop import app
    from infloop.cli.run_names import find_run
    from infloop.cli.view.figures import money
    from infloop.cli.view.replay import whole_story
    from infloop.cli.view.terminal import plural

    async with app.open_store(settings) as store:
        row = await find_run(store.run_log, "last")
        story = await whole_story(store, row.id)
    rounds = next((step.rounds for step in story.steps() if step.opens == "round"), 0)
    print(f"\nwhat happened: {plural(rounds, 'round')}, cost {money(story.cost_usd or 0)}")
    for line in await _changes(project):
        print(f"  {line}")
    for line in _to_try(settings.data_dir, project, keep=keep):
        print(line)


async def _changes(project: Path) -> list[str]:
    """Return what each round committed: its subject, and the files with how much of each."""
    log = await _git(
        project, "log", "--reverse", "--stat=60", "--format=%x00%s", f"{BEGINNING}..HEAD"
    )
    lines: list[str] = []
    for number, commit in enumerate(log.split("\0")[1:], 1):
        subject, *rest = commit.strip().split("\n")
        lines.append(f"round {number}  {one_line(subject)}")
        lines += [f"         {one_line(line.strip())}" for line in rest if " | " in line]
    return lines


def _to_try(data_dir: Path, project: Path, *, keep: bool) -> list[str]:
    if not keep:
        return [
            "try next:",
            "  infloop demo --keep   the same, and everything stays to look at",
            "  infloop docs          how to write a loop of your own",
            "  infloop --help        what else there is",
        ]
    prefix = f"INFLOOP_DATA_DIR={data_dir} infloop"
    return [
        f"kept in {data_dir.parent}; remove it when you have seen enough",
        "try next:",
        f"  {prefix} show last",
        f"  {prefix} why last",
        f"  {prefix} logs last --step 'rounds[2]'",
        f"  {prefix} diff last 'rounds[2]'",
        f"  {prefix} rewind last --to 'rounds[3]'",
        f"  git -C {project} log --stat",
    ]
