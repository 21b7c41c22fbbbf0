"""Write a first loop: an agent works in a git worktree until a command succeeds.

It names the agent that is installed and the command that checks this project, and can run as it is.
Comments say what can be changed. An existing file is not overwritten.

  infloop new
  infloop new fix
  infloop new fix.workflow.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.application.loops import Starter

DEFAULT = "until-green"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="NAME",
        nargs="?",
        default=DEFAULT,
        help=f"a name, or a file; default: {DEFAULT}.loop.yaml, here",
    )
    parser.add_argument(
        "--agent",
        default="",
        metavar="ID",
        help="claude, codex or another provider; default: one that is installed",
    )
    parser.add_argument(
        "--json", action="store_true", help="write a JSON file, which has no comments"
    )


def main(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.new_file import file_named, run_command_for, workflow_id_of, write_new

    file = file_named(args.file, as_json=args.json)
    name = workflow_id_of(file)
    starter = app.run_async(_starter(args.agent, name, as_json=file.endswith(".json")))
    write_new(file, starter.text)
    print(f"wrote {file}: {starter.agent} works until `{starter.check}` succeeds")
    if not starter.check_found:
        print(f"no test command was found here: write yours in place of `{starter.check}`")
    if starter.missing:
        print(starter.missing)
    print(f"change it as you like; then, in a git repository:\n  {run_command_for(file)}")
    return 0


async def _starter(agent: str, name: str, *, as_json: bool) -> Starter:
    from pathlib import Path

    from infloop import app

    async with app.open_files(app.settings()) as application:
        return application.loops.starter(agent, Path.cwd(), name if as_json else "")
