"""Watch a loop turn failing tests green: no account, no server, nothing to set up.

A small project with four failing tests is made in a temporary git repository. A loop asks an agent
to fix one thing, runs the tests, and repeats until they pass. The agent plays a script, so that the
demo costs nothing and always ends the same way; everything else is real. Your own runs and settings
are not touched.

  infloop demo
  infloop demo --keep
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from infloop.application.application import Application
    from infloop.application.demo import DemoProject


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
    from infloop.application.demo import create_project
    from infloop.application.workflows import run_inputs
    from infloop.cli.commands.run import run_workflow
    from infloop.settings import Settings

    # A temporary directory can be small, and the demo needs little space.
    settings = Settings.model_validate({"data_dir": folder / "data", "min_free_disk_bytes": 0})
    demo = await create_project(folder, settings.providers)
    if not as_json:
        print(f"project  {demo.project}: four failing tests")
        print(f"loop     {demo.workflow}")
    async with app.open_application(settings) as application:
        workflow = application.workflows.load(demo.workflow)
        inputs = run_inputs(workflow.root, {})
        code = await run_workflow(application, workflow, inputs, demo.project, as_json=as_json)
        if not as_json:
            await _print_result(application, demo)
            for line in _suggestions(settings.data_dir, demo.project, keep=keep):
                print(line)
    return code


async def _print_result(application: Application, demo: DemoProject) -> None:
    from infloop.application.demo import round_changes
    from infloop.cli.view.figures import money
    from infloop.cli.view.terminal import one_line, plural

    run = await application.history.find("last")
    view = await application.history.view(run.run_id)
    rounds = next((step.rounds for step in view.steps() if step.opens == "round"), 0)
    print(f"\nwhat happened: {plural(rounds, 'round')}, cost {money(view.cost_usd or 0)}")
    for number, changes in enumerate(await round_changes(demo.project), 1):
        print(f"  round {number}  {one_line(changes.subject)}")
        for file in changes.files:
            print(f"           {one_line(file)}")


def _suggestions(data_dir: Path, project: str, *, keep: bool) -> list[str]:
    if not keep:
        return [
            "try next:",
            "  infloop demo --keep   the same, and everything stays for you to look at",
            "  infloop docs          how to write a loop of your own",
            "  infloop --help        all commands",
        ]
    prefix = f"INFLOOP_DATA_DIR={data_dir} infloop"
    return [
        f"kept in {data_dir.parent}; remove it when you do not need it any more",
        "try next:",
        f"  {prefix} show last",
        f"  {prefix} why last",
        f"  {prefix} logs last --step 'rounds[2]'",
        f"  {prefix} diff last 'rounds[2]'",
        f"  {prefix} rewind last --to 'rounds[3]'",
        f"  git -C {project} log --stat",
    ]
