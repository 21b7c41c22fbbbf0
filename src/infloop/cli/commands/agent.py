"""Let infloop's own agent work in a directory, or until a command succeeds.

The agent is a model of your settings with tools that pass one gate; `infloop docs agent` explains
both. `run` answers one prompt, and prints the answer last. `loop` works until a command succeeds,
as `infloop loop` does. Both are runs like any other: `infloop runs`, `diff` and `rewind` know them.
What a person has to allow is asked here, if this is a terminal.

  infloop agent run --prompt "Explain the failing test"
  infloop agent run --workspace ~/project --prompt "Fix it" --tools fs_read,fs_edit
  infloop agent run --prompt "And now?" --session 0f3c…
  infloop agent loop --check "pytest -q" --rounds 3 --max-cost 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, amount
from infloop.cli.commands.loop import LEVELS

if TYPE_CHECKING:
    import argparse

    from infloop.settings import Settings

KINDS = ("planning", "coding", "summary")
TASK = "Find out why the check fails, and fix the cause. Do not weaken the check."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    import argparse

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--workspace", metavar="DIR", help="where it works; default: here")
    shared.add_argument(
        "--tools", metavar="NAMES", help="the only tools that it has, separated by commas"
    )
    model = shared.add_mutually_exclusive_group()
    model.add_argument(
        "--model", default="", metavar="P:M", help="a provider of your settings, and a model of it"
    )
    model.add_argument(
        "--kind", choices=KINDS, help="the kind of task, which chooses the model; default: coding"
    )
    shared.add_argument("--isolation", choices=LEVELS, help="how children are confined")
    shared.add_argument(
        "--max-cost", type=amount, metavar="USD", help="what the run may spend at most"
    )
    add_json(shared, "events as JSON lines")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = actions.add_parser("run", parents=[shared], help="answer one prompt")
    run.add_argument("--prompt", required=True, metavar="TEXT", help="what the agent should do")
    run.add_argument("--session", default="", metavar="ID", help="continue this session")
    loop = actions.add_parser("loop", parents=[shared], help="work until a command succeeds")
    loop.add_argument(
        "--check", required=True, metavar="CMD", help="the shell command that must succeed"
    )
    loop.add_argument("--prompt", default=TASK, metavar="TEXT", help="what the agent should do")
    loop.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="rounds at most; default: 10"
    )
    loop.add_argument(
        "--in-place", action="store_true", help="work in the directory itself, without a worktree"
    )


def main(args: argparse.Namespace) -> int:
    from infloop import app

    settings = app.settings()
    if args.isolation:
        settings = settings.with_options(isolation=args.isolation)
    return app.run_async(_run(args, settings) if args.action == "run" else _loop(args, settings))


async def _run(args: argparse.Namespace, settings: Settings) -> int:
    from infloop import app
    from infloop.application.agents import STEP, AgentRequest
    from infloop.application.workflows import run_inputs
    from infloop.cli.commands.run import run_workflow, working_directory
    from infloop.cli.view.terminal import note, safe

    request = AgentRequest(
        prompt=args.prompt,
        profile=args.model or args.kind or "",
        session=args.session,
        tools=_tools(args),
        max_cost_usd=args.max_cost,
    )
    async with app.open_files(settings) as files:
        bundle = files.agents.prepare(request)
    directory = working_directory(args.workspace)
    inputs = run_inputs(bundle.root, {})
    started: list[str] = []
    async with app.open_application(settings) as application:
        code = await run_workflow(
            application,
            bundle,
            inputs,
            directory,
            as_json=args.json,
            on_started=started.append,
            answers=True,
        )
        outputs = (await application.history.scope(started[0])).get(STEP)
    if not args.json and isinstance(outputs, dict):
        if session := outputs.get("sessionId"):
            note(f"session: {session}")
        if code == 0:
            print(safe(str(outputs.get("result", ""))))
    return code


async def _loop(args: argparse.Namespace, settings: Settings) -> int:
    from infloop.application.agents import BUILTIN
    from infloop.application.loops import LoopRequest
    from infloop.cli.commands.loop import run_loop
    from infloop.cli.commands.run import working_directory

    request = LoopRequest(
        task=args.prompt,
        check=args.check,
        agent=BUILTIN,
        rounds=args.rounds,
        max_cost_usd=args.max_cost,
        in_place=args.in_place,
        profile=args.model or args.kind or "",
        tools=_tools(args),
    )
    directory = working_directory(args.workspace)
    return await run_loop(settings, request, directory, as_json=args.json, answers=True)


def _tools(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the tools that were named; an empty list means none at all."""
    if args.tools is None:
        return None
    return tuple(name for part in args.tools.split(",") if (name := part.strip()))
