"""List, add, try out or remove triggers: what starts workflows by itself.

  infloop triggers
  infloop triggers plugins
  infloop triggers add review --plugin github --event pull_request --secret \\
      --match '{{body.action}} == opened' --input title='{{body.pull_request.title}}'
  infloop triggers add report --cron '30 9 * * 1-5' --time-zone Europe/Berlin
  infloop triggers add check --directory . --files 'src/**/*.py'
  infloop triggers test ID --payload event.json

An ID may be cut short as long as it is clear which one is meant. A secret is read from the terminal
or from standard input, is kept in a file that only you can read, and is never shown. Triggers fire
while a server runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from infloop.catalog.lookup import CatalogLookup
    from infloop.errors import Problem
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.settings import Settings

_OPERATORS = (" == ", " != ", " contains ", " matches ")
_HOUR_MS = 3_600_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    actions.add_parser("list", help="list the triggers and what is wrong with them (the default)")
    actions.add_parser("plugins", help="list the senders of webhooks and their events")
    _add_arguments(actions.add_parser("add", help="write a new trigger"))
    for name, text in (
        ("show", "show everything about a trigger but its secret"),
        ("remove", "delete a trigger"),
        ("enable", "switch a trigger on"),
        ("disable", "switch a trigger off"),
        ("regenerate", "give a trigger a new address; the old one is dead at once"),
    ):
        actions.add_parser(name, help=text).add_argument("id", metavar="ID", help="which one")
    secret = actions.add_parser("secret", help="set the secret that its sender signs with")
    secret.add_argument("id", metavar="ID", help="which one")
    secret.add_argument(
        "--overlap",
        metavar="HOURS",
        type=int,
        default=0,
        help="let the old secret count so much longer; default: 0",
    )
    test = actions.add_parser("test", help="see what a request would be answered; nothing starts")
    test.add_argument("id", metavar="ID", help="which one")
    test.add_argument("--payload", metavar="FILE", help="the body; default: the plugin's example")
    test.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="may be repeated"
    )
    adopt = actions.add_parser("adopt", help="take over the triggers inside an older workflow")
    adopt.add_argument("workflow", metavar="WORKFLOW", help="the workflow's id")


def _add_arguments(add: argparse.ArgumentParser) -> None:
    from infloop.application.triggers import KINDS

    add.add_argument("workflow", metavar="WORKFLOW", help="the id of the workflow to start")
    add.add_argument("--name", metavar="TEXT", default="", help="what people call it")
    add.add_argument("--disabled", action="store_true", help="do not switch it on yet")
    add.add_argument(
        "--match",
        metavar="'LEFT OP RIGHT'",
        action="append",
        default=[],
        help="must hold; OP is ==, !=, contains or matches; may be repeated",
    )
    add.add_argument(
        "--input",
        metavar="NAME=TEXT",
        action="append",
        default=[],
        help="a value for an input, with {{references}}; may be repeated",
    )
    for kind in KINDS:
        kind.add_options(add.add_argument_group(kind.title))


def main(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    from infloop import app

    chosen = app.settings()
    lookup = app.trigger_lookup(chosen)
    match args.action:
        case "plugins":
            return _plugins(lookup)
        case "add":
            return _add(lookup, args)
        case "adopt":
            return _adopt(lookup, args.workflow)
        case "show":
            return _show(chosen, lookup, _named(lookup, args.id))
        case "test":
            return _test(lookup, _named(lookup, args.id), args)
        case "remove" | "enable" | "disable" | "regenerate" | "secret":
            return _change(lookup, args)
        case _:
            return _list(lookup)


def _list(lookup: CatalogLookup) -> int:
    from infloop.cli.view import triggers as trigger_lines
    from infloop.cli.view.terminal import note, one_line

    entries = lookup.triggers.entries()
    if not entries:
        note("there are no triggers; `infloop triggers add` makes one")
    for entry in entries:
        trigger = entry.trigger
        print(trigger_lines.summary(trigger) if trigger else one_line(f"{entry.id}: not usable"))
        found = [*entry.problems, *(_check(lookup, trigger) if trigger else ())]
        for line in trigger_lines.problems(found):
            print(line)
    return 0


def _plugins(lookup: CatalogLookup) -> int:
    from infloop.cli.view.terminal import INDENT, note, one_line, problem_lines

    plugins, problems = lookup.plugins.load()
    for plugin in plugins:
        signs = "signs" if plugin.signature else "does not sign"
        print(one_line(f"{plugin.id}: {plugin.display_name}, {signs}"))
        for event in plugin.events:
            print(one_line(f"{INDENT}{event.type}  {event.display_name}"))
    for line in problem_lines(problems):
        note(line)
    return 0


def _show(chosen: Settings, lookup: CatalogLookup, trigger: Trigger) -> int:
    from infloop.cli.view import triggers as trigger_lines
    from infloop.triggers.scheduler import STATE_FILE, ScheduleStates

    state = ScheduleStates(chosen.triggers / STATE_FILE).load().get(trigger.id)
    plugin = lookup.plugin(trigger.plugin_id)
    question = state.question if state else None
    for line in trigger_lines.details(trigger, plugin, _now_ms(), question):
        print(line)
    for line in trigger_lines.problems(_check(lookup, trigger)):
        print(line)
    return 0


# -- writing -------------------------------------------------------------------------------------


def _add(lookup: CatalogLookup, args: argparse.Namespace) -> int:
    from infloop.application.triggers import kind_named
    from infloop.catalog.triggers import new_trigger_id
    from infloop.cli.view import triggers as trigger_lines
    from infloop.errors import UsageError
    from infloop.model.trigger import parse_trigger
    from infloop.model.values import compact_json

    now = _now_ms()
    raw: JsonObject = {
        "id": new_trigger_id(),
        "name": args.name,
        "enabled": not args.disabled,
        "workflowId": args.workflow,
        "match": [_predicate(text) for text in args.match],
        "inputs": dict(_assigned("--input", args.input)),
        "createdAt": now,
        "updatedAt": now,
        **_kind(args),
    }
    if args.secret:
        raw["secret"] = _read_secret()
    trigger, problems = parse_trigger(compact_json(raw).encode())
    if trigger is not None:
        problems = [*problems, *_check(lookup, trigger)]
    if trigger is None or any(problem.severity == "error" for problem in problems):
        raise UsageError("; ".join(map(str, problems)))
    lookup.triggers.save(trigger)
    print(f"added {trigger_lines.summary(trigger)}")
    if kind_named(trigger.kind).takes_requests:
        print(f"  address: /api/webhook/{trigger.id}")
    for line in trigger_lines.problems(problems):
        print(line)
    return 0


def _kind(args: argparse.Namespace) -> JsonObject:
    """Return the kind of a new trigger and the fields that belong to it."""
    from infloop.application.triggers import KINDS
    from infloop.errors import UsageError

    chosen = [kind for kind in KINDS if kind.is_chosen(args)] or [KINDS[0]]
    if len(chosen) > 1:
        titles = " and ".join(kind.title for kind in chosen)
        raise UsageError(f"a trigger has one kind, and these options are of {titles}; add two")
    return {"kind": chosen[0].name, **chosen[0].fields(args)}


def _change(lookup: CatalogLookup, args: argparse.Namespace) -> int:
    from infloop.errors import UsageError

    files, now = lookup.triggers, _now_ms()
    if args.action == "remove":
        name = _id(lookup, args.id)  # one that cannot be read can be removed all the same
        files.remove(name)
        print(f"removed {name}")
        return 0
    trigger = _named(lookup, args.id)
    if args.action == "regenerate":
        made = files.regenerate(trigger.id, now)
        print(f"{trigger.id} is no more\nnew address: /api/webhook/{made.id}")
        return 0
    if args.action == "secret":
        if args.overlap < 0:
            raise UsageError(f"--overlap {args.overlap} is not a number of hours")
        new = _read_secret()
        files.change(trigger.id, lambda before: _with_secret(before, new, args.overlap, now))
        said = "has a new secret"
    else:
        update = {"enabled": args.action == "enable", "updated_at": now}
        files.change(trigger.id, lambda before: before.model_copy(update=update))
        said = "is on" if args.action == "enable" else "is off"
    print(f"{trigger.id} {said}")
    return 0


def _with_secret(before: Trigger, new: str, overlap_hours: int, now: int) -> Trigger:
    """Return a trigger with a new secret; the one before it counts for a while."""
    overlaps = overlap_hours > 0 and before.secret
    return before.model_copy(
        update={
            "secret": new,
            "previous_secret": before.secret if overlaps else None,
            "previous_secret_until": now + overlap_hours * _HOUR_MS if overlaps else None,
            "updated_at": now,
        }
    )


def _adopt(lookup: CatalogLookup, workflow_id: str) -> int:
    from infloop.cli.view import triggers as trigger_lines
    from infloop.cli.view.terminal import note

    _, parsed = lookup.workflows.read(workflow_id)
    made = lookup.triggers.import_inline(workflow_id, parsed.triggers, _now_ms())
    for trigger in made:
        print(f"added {trigger_lines.summary(trigger)}")
    if not made:
        note(f"workflow {workflow_id!r} holds no trigger that is not there already")
    return 0


# -- trying out ----------------------------------------------------------------------------------


def _test(lookup: CatalogLookup, trigger: Trigger, args: argparse.Namespace) -> int:
    import secrets
    from pathlib import Path

    from infloop import app
    from infloop.application.triggers import kind_named
    from infloop.catalog.files import read_bounded
    from infloop.cli.view.terminal import INDENT, json_line, one_line
    from infloop.errors import UsageError
    from infloop.triggers.firing import Firing
    from infloop.triggers.trial import trial_delivery
    from infloop.triggers.webhook import QueuePosition, Webhooks

    plugin = lookup.plugin(trigger.plugin_id)
    if not kind_named(trigger.kind).takes_requests or plugin is None:
        raise UsageError(
            f"{trigger.id!r} takes no requests; `infloop triggers show {trigger.id}` says what it "
            "waits for"
        )
    now = _now_ms()
    try:
        delivery = trial_delivery(
            trigger,
            plugin,
            now,
            request_id=f"trial_{secrets.token_hex(8)}",
            payload=read_bounded(Path(args.payload)) if args.payload else None,
            headers=dict(_assigned("--header", args.header)),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None

    async def enqueue(firing: Firing) -> QueuePosition:
        return QueuePosition("none", 1)

    webhooks = Webhooks(lookup, enqueue)
    answer = app.run_async(webhooks.receive(delivery, now))
    detail = f": {answer.detail}" if answer.detail else ""
    print(one_line(f"{answer.status} {answer.reason}{detail}"))
    firing = answer.firing
    if firing is None:
        return 1
    for name, value in firing.inputs.items():
        outside = " (from outside)" if name in firing.cause.untrusted else ""
        print(one_line(f"{INDENT}{name}{outside}: {json_line(value)}", 200))
    print(f"it would start {firing.workflow_id!r}; nothing was started")
    return 0


# -- arguments -----------------------------------------------------------------------------------


def _id(lookup: CatalogLookup, text: str) -> str:
    """Return the id that is meant by its beginning."""
    from infloop.errors import UsageError

    found = [entry.id for entry in lookup.triggers.entries() if entry.id.startswith(text)]
    if text in found or (text and len(found) == 1):
        return text if text in found else found[0]
    what = f"{len(found)} triggers begin with" if found and text else "there is no trigger"
    raise UsageError(f"{what} {text!r}; `infloop triggers` lists them")


def _named(lookup: CatalogLookup, text: str) -> Trigger:
    from infloop.errors import UsageError

    name = _id(lookup, text)
    trigger = lookup.trigger(name)
    if trigger is None:
        raise UsageError(f"trigger {name!r} cannot be used; `infloop triggers` says why")
    return trigger


def _check(lookup: CatalogLookup, trigger: Trigger) -> list[Problem]:
    from infloop.errors import UsageError, WorkflowError
    from infloop.triggers.checks import check_trigger

    plugin, workflow = lookup.plugin(trigger.plugin_id), lookup.workflow(trigger.workflow_id)
    try:
        bundle = lookup.workflows.load_bundle(trigger.workflow_id) if workflow else None
    except (UsageError, WorkflowError):
        return check_trigger(trigger, plugin, None)
    return check_trigger(trigger, plugin, workflow, bundle.plain() if bundle else None)


def _predicate(text: str) -> JsonObject:
    from infloop.errors import UsageError

    places = [(text.index(op), op) for op in _OPERATORS if op in text]
    if not places:
        raise UsageError(f"--match {text!r} is not 'LEFT OP RIGHT' with ==, !=, contains, matches")
    place, op = min(places)
    return {"lhs": text[:place].strip(), "op": op.strip(), "rhs": text[place + len(op) :].strip()}


def _assigned(option: str, texts: list[str]) -> list[tuple[str, str]]:
    from infloop.errors import UsageError

    parts = [text.partition("=") for text in texts]
    for text, (name, equals, _) in zip(texts, parts, strict=True):
        if not name or not equals:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
    return [(name, value) for name, _, value in parts]


def _read_secret() -> str:
    import getpass
    import sys

    from infloop.errors import UsageError

    given = getpass.getpass("secret: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not given.strip():
        raise UsageError("no secret was given; type it, or pass it on standard input")
    return given.strip()


def _now_ms() -> int:
    from infloop.runtime.clock import SystemClock

    return SystemClock().now_ms()
