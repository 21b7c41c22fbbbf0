"""List, add, try out or remove triggers, which start workflows without a person.

  infloop triggers
  infloop triggers plugins
  infloop triggers add review --plugin github --event pull_request --secret \\
      --match '{{body.action}} == opened' --input title='{{body.pull_request.title}}'
  infloop triggers add report --cron '30 9 * * 1-5' --time-zone Europe/Berlin
  infloop triggers add check --directory . --files 'src/**/*.py'
  infloop triggers test ID --payload event.json

An ID can be abbreviated as long as it is unique. A secret is read from the terminal or from
standard input, is stored in a file that only you can read, and is never shown. Triggers fire while
a server runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse

    from infloop.application.triggers import Triggers
    from infloop.model.values import JsonObject

_OPERATORS = (" == ", " != ", " contains ", " matches ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "one JSON object a line")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    listing = actions.add_parser(
        "list", help="list the triggers and what is wrong with them (the default)"
    )
    plugins = actions.add_parser("plugins", help="list the senders of webhooks and their events")
    show = actions.add_parser("show", help="show everything about a trigger except its secret")
    show.add_argument("id", metavar="ID", help="its name or id")
    for each in (listing, plugins, show):
        add_json(each, "one JSON object a line", inherit=True)
    _add_arguments(actions.add_parser("add", help="write a new trigger"))
    for name, text in (
        ("remove", "delete a trigger"),
        ("enable", "switch a trigger on"),
        ("disable", "switch a trigger off"),
        ("regenerate", "give a trigger a new address; the old one is dead at once"),
    ):
        actions.add_parser(name, help=text).add_argument("id", metavar="ID", help="its name or id")
    secret = actions.add_parser("secret", help="set the secret that its sender signs with")
    secret.add_argument("id", metavar="ID", help="its name or id")
    secret.add_argument(
        "--overlap",
        metavar="HOURS",
        type=int,
        default=0,
        help="how long the old secret is still accepted; default: 0",
    )
    test = actions.add_parser("test", help="see what a request would be answered; nothing starts")
    test.add_argument("id", metavar="ID", help="its name or id")
    test.add_argument("--payload", metavar="FILE", help="the body; default: the plugin's example")
    test.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="can be repeated"
    )
    adopt = actions.add_parser("adopt", help="convert the triggers inside an older workflow file")
    adopt.add_argument("workflow", metavar="WORKFLOW", help="the workflow's id")


def _add_arguments(add: argparse.ArgumentParser) -> None:
    from infloop.application.triggers import KINDS

    add.add_argument("workflow", metavar="WORKFLOW", help="the id of the workflow to start")
    add.add_argument("--name", metavar="TEXT", default="", help="what people call it")
    add.add_argument("--cwd", metavar="DIR", help="where its runs work; default: the server's")
    add.add_argument("--disabled", action="store_true", help="do not switch it on yet")
    add.add_argument(
        "--match",
        metavar="'LEFT OP RIGHT'",
        action="append",
        default=[],
        help="must hold; OP is ==, !=, contains or matches; can be repeated",
    )
    add.add_argument(
        "--input",
        metavar="NAME=TEXT",
        action="append",
        default=[],
        help="a value for an input, with {{references}}; can be repeated",
    )
    for kind in KINDS:
        kind.add_options(add.add_argument_group(kind.title))


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_act(args))


async def _act(args: argparse.Namespace) -> int:
    from infloop import app

    async with app.open_files(app.settings()) as application:
        triggers = application.triggers
        match args.action:
            case "plugins":
                await _print_plugins(triggers, as_json=args.json)
            case "add":
                await _add(triggers, args)
            case "adopt":
                await _adopt(triggers, args.workflow)
            case "show":
                now_ms = application.clock.now_ms()
                await _show(triggers, args.id, now_ms, as_json=args.json)
            case "test":
                return await _test(triggers, args)
            case "remove" | "enable" | "disable" | "regenerate" | "secret":
                await _change(triggers, args)
            case _:
                await _list(triggers, as_json=args.json)
    return 0


async def _list(triggers: Triggers, *, as_json: bool) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note
    from infloop.cli.view.triggers import short_lines

    if as_json:
        for trigger in (await triggers.all()).triggers:
            print(json_line(to_json(trigger)))
        return
    found = await triggers.reports()
    if not found:
        note("there are no triggers; `infloop triggers add` makes one")
    for report in found:
        for line in short_lines(report):
            print(line)


async def _print_plugins(triggers: Triggers, *, as_json: bool) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import INDENT, json_line, note, one_line, problem_lines

    found = await triggers.plugins()
    for plugin in found.plugins:
        if as_json:
            print(json_line(to_json(plugin)))
            continue
        signs = "signs" if plugin.signature else "does not sign"
        print(one_line(f"{plugin.id}: {plugin.display_name}, {signs}"))
        for event in plugin.events:
            print(one_line(f"{INDENT}{event.type}  {event.display_name}"))
    for line in problem_lines(found.problems):
        note(line)


async def _show(triggers: Triggers, name: str, now_ms: int, *, as_json: bool) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line
    from infloop.cli.view.triggers import long_lines

    report = await triggers.report(await triggers.find_id(name))
    if as_json and report.trigger is not None:
        print(json_line(to_json(report.trigger)))
        return
    for line in long_lines(report, now_ms):
        print(line)


# -- writing -------------------------------------------------------------------------------------


async def _add(triggers: Triggers, args: argparse.Namespace) -> None:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.arguments import assignments, read_secret
    from infloop.cli.view.terminal import INDENT, problem_lines
    from infloop.cli.view.triggers import trigger_line
    from infloop.model.values import compact_json

    content: JsonObject = {
        "name": args.name,
        "enabled": not args.disabled,
        "workflowId": args.workflow,
        "match": [_predicate(text) for text in args.match],
        "inputs": {**assignments("--input", args.input)},
        **_kind(args),
    }
    if args.cwd:
        content["cwd"] = _resolved(args.cwd)
    if args.secret:
        content["secret"] = read_secret("secret")
    created = await triggers.create(compact_json(content).encode(), COMMAND_LINE)
    report = await triggers.report(created.trigger.id)
    print(f"added {trigger_line(report)}")
    if report.takes_requests:
        print(f"  address: /api/webhook/{report.id}")
    for line in problem_lines(report.problems, INDENT):
        print(line)


def _resolved(directory: str) -> str:
    from pathlib import Path

    return str(Path(directory).resolve())


def _kind(args: argparse.Namespace) -> JsonObject:
    """Return the kind of a new trigger and the fields that belong to it."""
    from infloop.application.triggers import KINDS
    from infloop.errors import UsageError

    chosen = [kind for kind in KINDS if kind.is_chosen(args)] or [KINDS[0]]
    if len(chosen) > 1:
        titles = " and ".join(kind.title for kind in chosen)
        raise UsageError(f"a trigger has one kind, and these options are of {titles}; add two")
    if args.directory and not args.files:
        raise UsageError("--directory needs --files, for example --files 'src/**/*.py'")
    return {"kind": chosen[0].name, **chosen[0].fields(args)}


async def _change(triggers: Triggers, args: argparse.Namespace) -> None:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.arguments import read_secret
    from infloop.cli.view.terminal import INDENT, problem_lines
    from infloop.errors import UsageError

    name = await triggers.find_id(args.id)
    match args.action:
        case "remove":
            await triggers.delete(name, COMMAND_LINE)
            print(f"removed {name}")
        case "regenerate":
            moved = await triggers.regenerate(name, COMMAND_LINE)
            print(f"{name} does not exist any more")
            print(f"new address: /api/webhook/{moved.trigger.id}")
        case "secret":
            if args.overlap < 0:
                raise UsageError(f"--overlap {args.overlap} is not a number of hours")
            secret = read_secret("secret")
            await triggers.set_secret(name, secret, COMMAND_LINE, overlap_hours=args.overlap)
            print(f"{name} has a new secret")
        case _:
            enabled = args.action == "enable"
            await triggers.set_enabled(name, COMMAND_LINE, enabled=enabled)
            print(f"{name} is {'on' if enabled else 'off'}")
            if enabled:
                for line in problem_lines((await triggers.report(name)).problems, INDENT):
                    print(line)


async def _adopt(triggers: Triggers, workflow_id: str) -> None:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.terminal import note
    from infloop.cli.view.triggers import trigger_line

    adopted = await triggers.adopt(workflow_id, COMMAND_LINE)
    for report in adopted:
        print(f"added {trigger_line(report)}")
    if not adopted:
        note(f"workflow {workflow_id!r} contains no trigger that does not exist already")


# -- trying out ----------------------------------------------------------------------------------


async def _test(triggers: Triggers, args: argparse.Namespace) -> int:
    from infloop.cli.arguments import assignments
    from infloop.cli.view.terminal import INDENT, json_line, one_line, problem_lines

    name = await triggers.find_id(args.id)
    headers = assignments("--header", args.header)
    answer = await triggers.dry_run(name, headers, payload_file=args.payload)
    detail = f": {answer.detail}" if answer.detail else ""
    print(one_line(f"{answer.status} {answer.reason}{detail}"))
    for line in problem_lines((await triggers.report(name)).problems, INDENT):
        print(line)
    if answer.workflow_id is None:
        return 1
    for each, value in answer.inputs.items():
        source = " (from outside)" if each in answer.untrusted else ""
        print(one_line(f"{INDENT}{each}{source}: {json_line(value)}", 200))
    print(f"it would start {answer.workflow_id!r}; nothing was started")
    return 0


def _predicate(text: str) -> JsonObject:
    from infloop.errors import UsageError

    found = [(text.index(op), op) for op in _OPERATORS if op in text]
    if not found:
        raise UsageError(f"--match {text!r} is not 'LEFT OP RIGHT' with ==, !=, contains, matches")
    start, op = min(found)
    return {"lhs": text[:start].strip(), "op": op.strip(), "rhs": text[start + len(op) :].strip()}
