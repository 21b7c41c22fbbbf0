"""Let an agent work until a command succeeds.

The command runs first: if it succeeds already, nothing is spent. Otherwise the agent works in a git
worktree of its own and sees what the command printed. Then the command runs again, round by round.
The exit code is 0 only if the command succeeded. `infloop apply` brings the changes to your working
tree.

  infloop loop "Fix the failing tests" --check "pytest -q"
  infloop loop "Make it type-check" --check "npx tsc --noEmit" --agent codex --max-cost 5
  infloop loop "Fix the build" --check "make" --rounds 3 --detach
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, amount
from infloop.cli.background import add_detach, run_in_background

if TYPE_CHECKING:
    import argparse

    from infloop.application.loops import LoopRequest
    from infloop.cli.background import OnStarted
    from infloop.settings import Settings

LEVELS = ("auto", "sandbox", "guard", "container", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="what the agent should do")
    parser.add_argument(
        "--check", required=True, metavar="CMD", help="the shell command that must succeed"
    )
    parser.add_argument(
        "--agent",
        default="",
        metavar="ID",
        help="claude, codex or another provider; default: one that is installed",
    )
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="rounds at most; default: 10"
    )
    parser.add_argument(
        "--max-cost", type=amount, metavar="USD", help="what the run may spend at most"
    )
    parser.add_argument(
        "--isolation",
        choices=LEVELS,
        help="how children are confined; default: as strongly as this machine can",
    )
    parser.add_argument("--cwd", metavar="DIR", help="the repository; default: here")
    parser.add_argument(
        "--check-timeout",
        type=float,
        default=600,
        metavar="S",
        help="seconds after which the command is stopped; default: 600",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help="ignored files that the worktree needs, such as .env; repeat it for others",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="work in the directory itself, without a worktree"
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write the workflow to a file, and do not run it"
    )
    add_detach(parser)
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    if args.detach and not args.save:
        return run_in_background(_main, args)
    return _main(args)


def _main(args: argparse.Namespace, on_started: OnStarted | None = None) -> int:
    from infloop import app

    return app.run_async(_loop(args, on_started))


async def _loop(args: argparse.Namespace, on_started: OnStarted | None) -> int:
    from infloop import app
    from infloop.application.loops import LoopRequest
    from infloop.cli.commands.run import working_directory
    from infloop.cli.new_file import run_command_for, workflow_id_of, write_workflow

    settings = app.settings()
    if args.isolation:
        settings = settings.with_options(isolation=args.isolation)
    request = LoopRequest(
        task=args.task,
        check=args.check,
        agent=args.agent,
        rounds=args.rounds,
        max_cost_usd=args.max_cost,
        check_timeout_ms=round(args.check_timeout * 1000),
        include=tuple(args.include),
        in_place=args.in_place,
    )
    if args.save:
        async with app.open_files(settings) as files:
            write_workflow(args.save, files.loops.to_save(request, workflow_id_of(args.save)))
        print(f"wrote {args.save}; run it with: {run_command_for(args.save)}")
        return 0
    directory = working_directory(args.cwd)
    return await run_loop(settings, request, directory, as_json=args.json, on_started=on_started)


async def run_loop(
    settings: Settings,
    request: LoopRequest,
    directory: str,
    *,
    as_json: bool,
    on_started: OnStarted | None = None,
    answers: bool = False,
) -> int:
    """Run a loop in a directory and show it until it has settled."""
    from infloop import app
    from infloop.application.workflows import run_inputs
    from infloop.cli.commands.run import run_workflow
    from infloop.cli.view.terminal import note

    async with app.open_files(settings) as files:
        prepared = files.loops.prepare(request)
    if not request.agent:
        note(f"agent: {prepared.agent} (--agent names another)")
    if prepared.missing_login:
        note(f"no login of {prepared.agent} was found; to log in: {prepared.missing_login}")
    async with app.open_application(settings) as application:
        return await run_workflow(
            application,
            prepared.bundle,
            run_inputs(prepared.bundle.root, {}),
            directory,
            as_json=as_json,
            on_started=on_started,
            answers=answers,
        )
