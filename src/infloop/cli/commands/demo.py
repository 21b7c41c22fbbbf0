"""Watch `infloop loop` turn failing tests green: no account, no server, nothing to set up.

A small project with four failing tests is made in a temporary git repository. `infloop loop` lets
an agent work on it until the tests pass, and `infloop apply` applies the changes. The agent plays a
script, so that the demo costs nothing and always ends the same way; everything else is real. Your
own runs and settings are not touched.

  infloop demo
  infloop demo --keep
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="keep the project and the run")
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    import shutil
    import tempfile
    from pathlib import Path

    from infloop import app
    from infloop.application.demo import refuse_without_programs

    refuse_without_programs()
    folder = Path(tempfile.mkdtemp(prefix="infloop-demo-"))
    try:
        return app.run_async(_demo(folder, as_json=args.json, keep=args.keep))
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _demo(folder: Path, *, as_json: bool, keep: bool) -> int:
    from infloop import app
    from infloop.application.demo import create_project, install_agent
    from infloop.settings import Settings

    project = folder / "project"
    # A temporary directory can be small, and the demo needs little space.
    settings = Settings.model_validate({"data_dir": folder / "data", "min_free_disk_bytes": 0})
    # The demo's programs are infloop's own, so they may run where nothing can confine them.
    settings, why = await app.with_some_isolation(settings)
    install_agent(settings.providers)
    await create_project(project)
    if as_json:
        return await _loop(settings, project, as_json=True)
    print(f"a project with four failing tests, in {project}")
    if settings.isolation == "host":
        print(f"isolation: host, so the demo's programs run as you: {why}")
    code = await _loop(settings, project, as_json=False)
    if code == 0:
        await _apply(settings)
    for line in await _next_lines(settings, project, keep=keep):
        print(line)
    return code


async def _loop(settings: Settings, project: Path, *, as_json: bool) -> int:
    """Do what `infloop loop` does, and say so as one would type it."""
    from infloop.application.demo import AGENT, CHECK, TASK
    from infloop.application.loops import LoopRequest
    from infloop.cli.commands.loop import run_loop

    if not as_json:
        print(f'$ infloop loop "{TASK}" --check "{CHECK}" --agent {AGENT}')
    request = LoopRequest(task=TASK, check=CHECK, agent=AGENT)
    return await run_loop(settings, request, str(project), as_json=as_json)


async def _apply(settings: Settings) -> None:
    """Do what `infloop apply` does."""
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.runs.apply import Applied
    from infloop.cli.view.changes import change_lines, total
    from infloop.cli.view.terminal import one_line

    print("\n$ infloop apply last")
    async with app.open_application(settings) as application:
        run = await application.history.find("last")
        done = await application.apply.apply(run.run_id, COMMAND_LINE)
    assert isinstance(done, Applied)
    print(one_line(f"applied to {done.repository}: {total(done.files)}"))
    for line in change_lines(done.files):
        print(one_line(line))


async def _next_lines(settings: Settings, project: Path, *, keep: bool) -> list[str]:
    """Return what to type next; the last line is the command for a project of one's own."""
    from infloop import app
    from infloop.application.demo import NEXT

    async with app.open_files(settings) as application:
        missing = application.loops.missing_agent()
    lines = [""]
    if keep:
        prefix = f"INFLOOP_DATA_DIR={settings.data_dir} infloop"
        lines += [
            f"kept in {settings.data_dir.parent}; remove it when you do not need it any more",
            "look at it:",
            f"  {prefix} show last",
            f"  {prefix} why last",
            f"  {prefix} diff last 'rounds[2]'",
            f"  {prefix} rewind last --to 'rounds[3]'",
            f"  git -C {project} diff",
        ]
    if missing:
        lines.append(missing)
    return [*lines, "in a git repository of yours, type next:", f"  {NEXT}"]
