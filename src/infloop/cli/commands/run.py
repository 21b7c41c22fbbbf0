"""Run a workflow to its end and show what it does.

WORKFLOW is a file, or the id of a workflow in your workflows folder or the library. Everything
wrong with it is said before anything starts. Ctrl+C cancels the run cleanly.

  infloop run fix.workflow.json --input task="make the tests pass"
  infloop run fix-until-green --cwd ~/project
  infloop run fix.workflow.json --json | jq .type
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.terminal import is_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from infloop.catalog import Bundle
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow
    from infloop.runtime.runs.service import RunService
    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("workflow", metavar="WORKFLOW", help="a workflow file, or an id")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value for one of the workflow's inputs; repeat it for others",
    )
    parser.add_argument("--cwd", metavar="DIR", help="where its steps work; default: here")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Check the workflow, start it, and see it through."""
    from infloop import app
    from infloop.cli.view.terminal import note, problem_lines

    settings = app.settings()
    bundle = load(settings, args.workflow)
    for line in problem_lines(bundle.warnings):
        note(line)
    inputs = given_inputs(bundle.root, args.input)
    workdir = directory(args.cwd)
    return app.run_async(run_bundle(settings, bundle, inputs, workdir, as_json=args.json))


def load(settings: Settings, workflow: str) -> Bundle:
    """Return the workflow with all it calls, checked."""
    from infloop import app

    catalog = app.workflow_catalog(settings)
    return catalog.load_bundle(workflow, known_providers=app.known_providers(settings))


def given_inputs(workflow: Workflow, assignments: Sequence[str]) -> JsonObject:
    """Return the run's inputs from `NAME=VALUE` texts and the workflow's defaults."""
    from infloop.errors import UsageError
    from infloop.model.inputs import InputError
    from infloop.model.references import implicit_inputs, workflow_inputs

    declared = workflow.inputs
    known = implicit_inputs(workflow) if declared is None else [spec.name for spec in declared]
    supplied: JsonObject = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--input {assignment!r} is not NAME=VALUE")
        if name not in known:
            there = f"it has: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"the workflow has no input {name!r}; {there}")
        supplied[name] = value
    try:
        return workflow_inputs(workflow, supplied)
    except InputError as error:
        raise UsageError(str(error)) from None


def directory(chosen: str | None) -> str:
    """Return where a run works, as a full path by the name that it was given."""
    from pathlib import Path

    from infloop import app
    from infloop.errors import UsageError

    path = Path(app.started_in(), Path(chosen or "").expanduser())
    if not path.is_dir():
        raise UsageError(f"--cwd {chosen!r} is not a directory")
    if not is_text(full := str(path.resolve())):
        raise UsageError(f"the directory {full!r} has a name that is not UTF-8; use another")
    return str(path)


async def run_bundle(
    settings: Settings, bundle: Bundle, inputs: JsonObject, workdir: str, *, as_json: bool
) -> int:
    """Start a run of a checked workflow and see it through."""
    from infloop import app
    from infloop.cli.watching import Begun, begun, see_through
    from infloop.engine.graph import Definition
    from infloop.model.events import Cause

    async with app.open_service(settings) as service:

        async def begin() -> list[Begun]:
            await _tell_of_interrupted(service)
            definition = Definition(bundle.root.id, bundle.plain())
            cause = Cause("cli", str(bundle.source))
            run_id = await service.start(definition, inputs, workdir=workdir, cause=cause)
            return [begun(service, run_id)]

        return await see_through(service, begin, as_json=as_json)


async def _tell_of_interrupted(service: RunService) -> None:
    """Record runs whose process died, and say in one line that there were some."""
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note

    failed, waiting, files = await service.recover()
    said = []
    if failed:
        goes_on = f"`infloop resume {short(failed[0])}` goes on where it was"
        said.append(f"{len(failed)} recorded as failed ({goes_on})")
    if waiting:
        said.append(f"{len(waiting)} waiting for `infloop resume`")
    if said:
        note(f"found runs whose process had died: {'; '.join(said)}")
    for line in files:
        note(line)
