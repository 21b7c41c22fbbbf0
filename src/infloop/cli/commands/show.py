"""Show a run: its steps, their outputs and its outcome.

  infloop show last
  infloop show 1f3a9c2e --step 'loop-1[3]/agent-1'
  infloop show 1f3a9c2e --step agent-1 --output stdout --offset 4000 --limit 4000

Outputs are shortened. --step shows more of one step, and --output prints part of one of its
outputs, counted in characters. With --json, --output prints the text and its offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, add_run

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.runs.models import RunSummary
    from infloop.application.runs.view import RunView, StepView

PAGE_CHARS = 4_000
MAX_PAGE_CHARS = 10_000_000
STEP_CHARS = 2_000
MAX_WARNINGS, WARNING_CHARS = 5, 300
COMMON_FIELDS = ("type", "runId", "stepPath", "correlationId", "seq", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--step", metavar="PATH", help="one step, by its path")
    parser.add_argument("--output", metavar="FIELD", help="one output of that step")
    parser.add_argument("--offset", type=_characters, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--limit", type=_characters, default=PAGE_CHARS, metavar="N", help=f"default: {PAGE_CHARS}"
    )
    add_json(parser)


def _characters(text: str) -> int:
    import argparse

    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters")
    return int(text)


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app
    from infloop.errors import UsageError

    if args.output and not args.step:
        raise UsageError("--output needs --step: the step that has this output")
    return app.read(partial(_show, args))


async def _show(args: argparse.Namespace, application: Application) -> int:
    run = await application.history.find(args.run)
    if args.output:
        await _print_output(application, run.run_id, args)
    elif args.step:
        await _print_step(application, run.run_id, args)
    elif args.json:
        await _print_json(application, run.run_id)
    else:
        view = await application.history.view(run.run_id)
        untrusted = await application.history.untrusted(run.run_id)
        _print_run(run, view, untrusted)
    return 0


# -- the whole run ---------------------------------------------------------------------------


async def _print_json(application: Application, run_id: str) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line

    print(json_line(to_json(await application.history.report(run_id))))


def _print_run(run: RunSummary, view: RunView, untrusted: list[str]) -> None:
    from infloop.application.runs.next_actions import next_actions
    from infloop.cli.view.advice import advice_lines
    from infloop.cli.view.outline import outline
    from infloop.cli.view.terminal import indented

    for name, value in _header(run, view, untrusted):
        print(f"{name:<12} {value}")
    print("steps")
    for line in outline(view, alive=run.status == "running", outputs=True):
        print(line)
    if view.finished and view.finished.error:
        print("error")
        print(indented(view.finished.error))
    cut = next((step for step in view.steps() if not _is_complete(step)), None)
    if cut is not None:
        print("more")
        print(f"  {_output_command(run.run_id, cut)}")
    print("next")
    for line in advice_lines(run.run_id, run.status, next_actions(run.status, view), after="show"):
        print(line)


def _header(run: RunSummary, view: RunView, untrusted: list[str]) -> list[tuple[str, str]]:
    """Return what a run is, as names and values."""
    from infloop.cli.view.explain import cause_text, inputs_text
    from infloop.cli.view.figures import cost, duration, moment
    from infloop.cli.view.terminal import one_line, plural

    until = run.finished_at or view.last_at or run.started_at
    lines = [
        ("run", one_line(run.run_id)),
        ("workflow", f"{one_line(run.workflow_name, 60)} ({one_line(run.workflow_id)})"),
        ("status", run.status),
        ("started", f"{moment(run.started_at)}, {cause_text(run.cause)}"),
        ("took", duration(until - run.started_at) + ("" if run.finished_at else " so far")),
        ("steps done", str(view.steps_done)),
    ]
    if spent := cost(view.cost):
        since = " since the rewind" if run.cause.kind == "rewind" else ""
        lines.append(("cost", f"{spent}{since}"))
    if view.started and view.started.inputs:
        lines.append(("inputs", inputs_text(view.started.inputs)))
    if untrusted:
        lines.append(("untrusted", one_line(", ".join(untrusted))))
    if view.started and view.started.workdir:
        lines.append(("directory", one_line(view.started.workdir)))
    if view.fetched:
        lines += [
            ("repository", f"{one_line(view.fetched.repository)} at {one_line(view.fetched.ref)}"),
            ("commit", one_line(view.fetched.commit)),
        ]
    elif view.started and view.started.workspace:
        wanted = view.started.workspace
        lines.append(("repository", f"{one_line(wanted.repository)} at {one_line(wanted.ref)}"))
    if view.isolation:
        lines.append(("isolation", _confinement(view)))
    if view.resumed_at:
        lines.append(("resumed", plural(len(view.resumed_at), "time")))
    lines += _warnings(view)
    lines += [("correlation", one_line(run.correlation_id)), ("epoch", str(run.epoch))]
    return lines


def _warnings(view: RunView) -> list[tuple[str, str]]:
    from infloop.cli.view.terminal import one_line

    notices = (f"{each.path}: {each.message}".removeprefix(": ") for each in view.notices)
    texts = [*view.denials, *notices]
    more = len(texts) - MAX_WARNINGS
    lines = [one_line(text, WARNING_CHARS) for text in texts[:MAX_WARNINGS]]
    if more > 0:
        lines.append(f"and {more} more: `infloop why`")
    if view.missing_references:
        first = one_line(next(iter(view.missing_references)).missing_key)
        lines.append(f"references to nothing: {len(view.missing_references)}, first {first!r}")
    return [("warnings" if number == 0 else "", line) for number, line in enumerate(lines)]


def _confinement(view: RunView) -> str:
    """Return what confines a run's children, and where they may connect."""
    from infloop.cli.view.terminal import one_line
    from infloop.model.isolation import UNCONFINED

    as_you = ", so its children run as you" if view.isolation == UNCONFINED else ""
    return one_line(f"{view.isolation}{as_you}; egress {view.egress}")


def _is_complete(step: StepView) -> bool:
    return all(output.is_complete for output in step.outputs.values())


def _output_command(run_id: str, step: StepView) -> str:
    """Return the command that prints a step's longest output."""
    import shlex

    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import one_line

    name = max(step.outputs, key=lambda name: step.outputs[name].size)
    path, field = shlex.quote(one_line(step.path)), shlex.quote(one_line(name))
    return f"infloop show {short(run_id)} --step {path} --output {field} --offset 0"


# -- one step --------------------------------------------------------------------------------


async def _print_step(application: Application, run_id: str, args: argparse.Namespace) -> None:
    """Print the events of the last visit of a step."""
    from infloop.cli.view.terminal import json_line, one_line
    from infloop.model.messages import expand, to_json

    for item in await application.history.step_events(run_id, args.step):
        for message in map(to_json, expand(item)):
            if args.json:
                print(json_line(message))
                continue
            print(one_line(str(message["type"])))
            for name, value in message.items():
                if name not in COMMON_FIELDS:
                    _print_value(name, value, "  ")


def _print_value(name: str, value: object, prefix: str) -> None:
    from infloop.cli.view.figures import size
    from infloop.cli.view.terminal import indented, one_line
    from infloop.model.values import as_text

    if isinstance(value, dict) and value:
        print(f"{prefix}{one_line(name)}:")
        for inner, item in value.items():
            _print_value(inner, item, prefix + "  ")
        return
    text = as_text(value)  # type: ignore[arg-type]
    beginning = text[:STEP_CHARS]
    rest = f" … ({size(len(text))})" if len(text) > STEP_CHARS else ""
    if "\n" in beginning:
        print(f"{prefix}{one_line(name)}:{rest}")
        print(indented(beginning.rstrip("\n"), prefix + "  "))
    else:
        print(f"{prefix}{one_line(name)}: {one_line(beginning)}{rest}")


# -- one output ------------------------------------------------------------------------------


async def _print_output(application: Application, run_id: str, args: argparse.Namespace) -> None:
    """Print part of one output, and on stderr which part it is and how to get the next."""
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note, safe
    from infloop.errors import NotFound, UsageError

    limit = min(args.limit, MAX_PAGE_CHARS)
    try:
        page = await application.history.output_page(
            run_id, args.step, args.output, args.offset, limit
        )
    except NotFound as error:
        raise UsageError(str(error)) from None
    if args.json:
        print(json_line(to_json(page)))
        return
    end = page.offset + len(page.text)
    print(safe(page.text))
    more = f"; continue with --offset {end}" if end < page.total else ""
    note(f"characters {page.offset} to {end} of {page.total}{more}")
