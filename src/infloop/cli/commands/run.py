"""Run a workflow to its end and show what it does.

WORKFLOW is a file, or the id of a workflow in your workflows folder or the library. Everything
wrong with it is reported before anything starts. Ctrl+C cancels the run cleanly.

  infloop run fix.workflow.json --input task="make the tests pass"
  infloop run fix-until-green --cwd ~/project
  infloop run fix.workflow.json --json | jq .type
  infloop run fix.workflow.json --detach
  infloop run flow.py
  infloop run fix-until-green --repository ssh://git@host/team/web.git --ref main
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json
from infloop.cli.background import add_detach, run_in_background

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.workflows import Bundle
    from infloop.cli.background import OnStarted
    from infloop.model.values import JsonObject


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="WORKFLOW", help="a workflow file, or an id")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value for one of the workflow's inputs; repeat it for others",
    )
    parser.add_argument("--cwd", metavar="DIR", help="where its steps work; default: here")
    parser.add_argument(
        "--repository", metavar="URL", help="a repository in which it works, in a checkout"
    )
    parser.add_argument("--ref", metavar="REF", help="its branch, tag or commit; default: HEAD")
    add_detach(parser)
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    return run_in_background(_main, args) if args.detach else _main(args)


def _main(args: argparse.Namespace, on_started: OnStarted | None = None) -> int:
    from infloop import app

    return app.run_async(_run(args, on_started))


async def _run(args: argparse.Namespace, on_started: OnStarted | None) -> int:
    from infloop import app
    from infloop.application.workflows import run_inputs
    from infloop.cli.arguments import assignments
    from infloop.cli.view.terminal import note, problem_lines
    from infloop.errors import UsageError

    settings = app.settings()
    async with app.open_files(settings) as files:
        workflow, notes = await files.workflows.load_file(args.workflow)
    for line in (*notes, *problem_lines(workflow.warnings)):
        note(line)
    if args.cwd and (args.repository or workflow.root.workspace):
        raise UsageError("--cwd: the run works in a checkout of its repository; leave it out")
    inputs = run_inputs(workflow.root, {**assignments("--input", args.input)})
    directory = working_directory(args.cwd)
    async with app.open_application(settings) as application:
        return await run_workflow(
            application,
            workflow,
            inputs,
            directory,
            as_json=args.json,
            on_started=on_started,
            repository=args.repository or "",
            ref=args.ref or "",
        )


def working_directory(chosen: str | None) -> str:
    """Return where a run works: a full path, with the links that the person named."""
    from pathlib import Path

    from infloop import app
    from infloop.cli.view.terminal import is_text
    from infloop.errors import UsageError

    path = Path(app.started_in(), Path(chosen or "").expanduser())
    if not path.is_dir():
        raise UsageError(f"--cwd {chosen!r} is not a directory")
    if not is_text(full := str(path.resolve())):
        raise UsageError(f"the directory {full!r} has a name that is not UTF-8; use another")
    return str(path)


async def run_workflow(
    application: Application,
    workflow: Bundle,
    inputs: JsonObject,
    directory: str,
    *,
    as_json: bool,
    on_started: OnStarted | None = None,
    answers: bool = False,
    repository: str = "",
    ref: str = "",
) -> int:
    """Start a run of a checked workflow and show it until it has settled.

    With `answers`, the person at the terminal is asked what the run waits for. With `repository`
    and `ref` it works there.
    """
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.runs.watched_run import WatchedRun
    from infloop.cli.watching import watch_runs

    async def start() -> list[WatchedRun]:
        await _recover(application)
        started = await application.runs.start(
            workflow, inputs, COMMAND_LINE, directory=directory, repository=repository, ref=ref
        )
        if on_started is not None:
            on_started(started.run_id)
        return [await application.live.watch(started)]

    return await watch_runs(application, start, as_json=as_json, answers=answers)


async def _recover(application: Application) -> None:
    """Settle the runs of dead processes, and say in one line which there were."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note

    found = await application.runs.recover()
    texts = []
    if found.failed:
        resume = f"`infloop resume {short(found.failed[0])}` continues where it stopped"
        texts.append(f"{len(found.failed)} recorded as failed ({resume})")
    if found.resumable:
        texts.append(f"{len(found.resumable)} waiting for `infloop resume`")
    if texts:
        note(f"found runs whose process had died: {'; '.join(texts)}")
    for line in found.messages:
        note(line)
