"""Show a run: what it is, its steps, their outputs and its outcome.

  infloop show last
  infloop show 1f3a9c2e --step 'loop-1[3]/agent-1'
  infloop show 1f3a9c2e --step agent-1 --output stdout --offset 4000 --limit 4000

Outputs are shortened; --step shows more of one step, and --output pages through one of its outputs,
counted in characters. With --json, --output gives the text and where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.cli.view.run_view import Step, Story
    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.liveness import RunStatus
    from infloop.store.interfaces.run_log import RunRow
    from infloop.store.interfaces.store import Store

PAGE_CHARS = 4_000
PAGE_MOST = 10_000_000
STEP_CHARS = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("--step", metavar="PATH", help="one step, by its path")
    parser.add_argument("--output", metavar="FIELD", help="one output of that step")
    parser.add_argument("--offset", type=_count, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--limit", type=_count, default=PAGE_CHARS, metavar="N", help=f"default: {PAGE_CHARS}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _count(text: str) -> int:
    import argparse

    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Show what was asked for."""
    from infloop import app
    from infloop.errors import UsageError

    if args.output and not args.step:
        raise UsageError("--output needs --step: whose output?")
    return app.run_async(_show(args))


async def _show(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.replay import whole_story
    from infloop.runtime.runs.run_status import current_status
    from infloop.runtime.runs.taint_report import untrusted_names

    async with app.open_store(app.settings()) as store:
        row = await find_run(store.run_log, args.run)
        if args.output:
            return await _page(store, row, args)
        if args.step:
            return await _step(store, row, args)
        status = await current_status(row, store.liveness)
        story = await whole_story(store, row.id)
        outside = await untrusted_names(store.run_log, row)
    if args.json:
        from infloop.cli.view.terminal import json_line

        print(json_line({**_run_object(row, status, story), "untrusted": [*outside]}))
    else:
        _print_run(row, status, story, outside)
    return 0


# -- the whole run ---------------------------------------------------------------------------


def _print_run(row: RunRow, status: RunStatus, story: Story, outside: list[str]) -> None:
    from infloop.cli.view.advice import advice_lines
    from infloop.cli.view.outline import outline
    from infloop.cli.view.terminal import indented

    for name, value in header(row, status, story, outside):
        print(f"{name:<12} {value}")
    print("steps")
    for line in outline(story, alive=status == "running", outputs=True):
        print(line)
    if story.finished and story.finished.error:
        print("error")
        print(indented(story.finished.error))
    cut = next((step for step in story.steps() if not _is_whole(step)), None)
    if cut is not None:
        print("read on")
        print(f"  {page_command(row.id, cut)}")
    print("next")
    for line in advice_lines(row.id, status, story, after="show"):
        print(line)


def header(
    row: RunRow, status: RunStatus, story: Story, outside: list[str]
) -> list[tuple[str, str]]:
    """Return what a run is, as names and values; `outside` is what holds something untrusted."""
    from infloop.cli.view.explain import cause_text, inputs_text
    from infloop.cli.view.figures import duration, moment
    from infloop.cli.view.terminal import one_line, plural

    until = row.finished_at or story.last_at or row.started_at
    lines = [
        ("run", one_line(row.id)),
        ("workflow", f"{one_line(row.workflow_name, 60)} ({one_line(row.workflow_id)})"),
        ("status", status),
        ("started", f"{moment(row.started_at)}, {cause_text(row.cause)}"),
        ("took", duration(until - row.started_at) + ("" if row.finished_at else " so far")),
        ("steps done", str(story.steps_done)),
    ]
    if story.cost:
        lines.append(("cost", story.cost))
    if story.started and story.started.inputs:
        lines.append(("inputs", inputs_text(story.started.inputs)))
    if outside:
        lines.append(("untrusted", one_line(", ".join(outside))))
    if story.started and story.started.workdir:
        lines.append(("directory", one_line(story.started.workdir)))
    if story.isolation:
        lines.append(("isolation", _confinement(story)))
    if story.resumed_at:
        lines.append(("resumed", plural(len(story.resumed_at), "time")))
    if story.missing:
        first = one_line(next(iter(story.missing)).missing_key)
        lines.append(("warnings", f"references to nothing: {len(story.missing)}, first {first!r}"))
    lines += [("correlation", one_line(row.correlation_id)), ("epoch", str(row.epoch))]
    return lines


def _confinement(story: Story) -> str:
    """Return what confines a run's children, and where they may connect."""
    from infloop.cli.view.terminal import one_line
    from infloop.model.isolation import UNCONFINED

    as_you = ", so its children run as you" if story.isolation == UNCONFINED else ""
    return one_line(f"{story.isolation}{as_you}; egress {story.egress}")


def _is_whole(step: Step) -> bool:
    return all(shown.whole for shown in step.outputs.values())


def page_command(run_id: str, step: Step) -> str:
    """Return the command that shows the rest of a step's longest output."""
    import shlex

    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import one_line

    name = max(step.outputs, key=lambda name: step.outputs[name].size)
    path, field = shlex.quote(one_line(step.path)), shlex.quote(one_line(name))
    return f"infloop show {short(run_id)} --step {path} --output {field} --offset 0"


def _run_object(row: RunRow, status: str, story: Story) -> JsonObject:
    from infloop.cli.commands.runs import run_object

    inputs: JsonObject = story.started.inputs if story.started else {}
    return {
        **run_object(row, status),
        "inputs": inputs,
        "isolation": story.isolation,
        "egress": story.egress,
        "costUsd": story.cost_usd,
        "costIsComplete": not story.cost_is_incomplete,
        "stepsDone": story.steps_done,
        "error": story.finished.error if story.finished else row.error,
        "stepList": [_step_object(step) for step in story.steps()],
    }


def _step_object(step: Step) -> JsonObject:
    return {
        "stepPath": step.path,
        "nodeId": step.node,
        "nodeType": step.node_type,
        "startedAt": step.started_at,
        "running": step.running,
        "attempt": step.attempt,
        "branch": step.handle,
        "error": step.error,
        "durationMs": step.duration_ms,
        "costUsd": step.cost_usd,
        "rounds": step.rounds if step.opens == "round" else None,
        "roundsNotListed": step.frames.omitted,
        "outputs": {
            name: {"text": shown.text, "size": shown.size} for name, shown in step.outputs.items()
        },
    }


# -- one step --------------------------------------------------------------------------------


async def _step(store: Store, row: RunRow, args: argparse.Namespace) -> int:
    """Show everything about one step: the last time it was begun and ended."""
    from infloop.cli.view.terminal import json_line, one_line
    from infloop.errors import UsageError
    from infloop.model.messages import expand, to_json

    items = await _about(store, row.id, args.step)
    if not items:
        raise UsageError(
            f"run {row.id!r} has no step {args.step!r}; `infloop show` lists its steps"
        )
    for item in items:
        for message in map(to_json, expand(item)):
            if args.json:
                print(json_line(message))
                continue
            print(one_line(str(message["type"])))
            for name, value in message.items():
                if name not in ("type", "runId", "stepPath", "correlationId", "seq", "time"):
                    _print_value(name, value, "  ")
    return 0


async def _about(store: Store, run_id: str, path: str) -> list[Recorded]:
    """Return the events of the step's last visit."""
    from infloop.model.events import StepStarted, step_path

    found: list[Recorded] = []
    after = 0
    while batch := await store.run_log.events(run_id, after, include_output=False):
        for item in batch:
            if step_path(item.event) == path:
                if isinstance(item.event, StepStarted):
                    found.clear()
                found.append(item)
        after = batch[-1].seq
    return found


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
    shown = text[:STEP_CHARS]
    rest = f" … ({size(len(text))})" if len(text) > STEP_CHARS else ""
    if "\n" in shown:
        print(f"{prefix}{one_line(name)}:{rest}")
        print(indented(shown.rstrip("\n"), prefix + "  "))
    else:
        print(f"{prefix}{one_line(name)}: {one_line(shown)}{rest}")


# -- one output ------------------------------------------------------------------------------


async def _page(store: Store, row: RunRow, args: argparse.Namespace) -> int:
    """Print part of one output, and on stderr where it stands and how to read on."""
    from infloop.cli.view.terminal import json_line, note, safe
    from infloop.errors import NotFound, UsageError

    limit = min(args.limit, PAGE_MOST)
    try:
        page = await store.run_log.output_page(row.id, args.step, args.output, args.offset, limit)
    except NotFound as error:
        raise UsageError(str(error)) from None
    end = page.offset + len(page.text)
    if args.json:
        place: JsonObject = {"text": page.text, "offset": page.offset, "total": page.total}
        print(json_line(place))
        return 0
    print(safe(page.text))
    more = f"; read on with --offset {end}" if end < page.total else ""
    note(f"characters {page.offset} to {end} of {page.total}{more}")
    return 0
