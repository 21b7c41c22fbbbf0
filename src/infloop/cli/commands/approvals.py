"""List the questions that wait for a person, or answer one.

An agent whose manifest says `ask` waits until somebody allows or denies what it wants, from any
terminal. Without an answer in time it is denied. Runs that paused because their budget is used up
and schedules that missed their time are listed too, with what to do.

  infloop approvals
  infloop approvals allow 1f3a9c2e
  infloop approvals deny 1f3a9c2e --note "not on this branch"

`infloop approve ID` and `infloop deny ID` are the same in fewer words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.model.approval import AllowOrDeny, Approval

MAX_DETAIL = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("allow", "deny"), metavar="ACTION", help="allow or deny"
    )
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="a question's id, or its first characters"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="the reason; it is stored")
    add_json(parser, "one JSON object a line")


def main(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.errors import UsageError

    if args.action and not args.id:
        raise UsageError(
            f"say which: `infloop approvals {args.action} ID`; `infloop approvals` lists them"
        )
    if args.action:
        return answer(args, args.action)
    return app.run_async(_list(as_json=args.json))


def add_answer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `infloop approve` and `infloop deny`."""
    parser.add_argument("id", metavar="ID", help="a question's id, or its first characters")
    parser.add_argument("--note", default="", metavar="TEXT", help="the reason; it is stored")
    add_json(parser)


def answer(args: argparse.Namespace, decision: AllowOrDeny) -> int:
    """Answer the question that the arguments name."""
    from infloop import app

    return app.run_async(_answer(args, decision))


async def _list(*, as_json: bool) -> int:
    from infloop import app
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note

    async with app.open_application(app.settings()) as application:
        waiting = (await application.approvals.all()).approvals
    for each in waiting:
        if as_json:
            print(json_line(to_json(each)))
        else:
            for line in _lines(each):
                print(line)
    if not waiting:
        note("nothing waits for an answer")
    return 0


def _lines(approval: Approval) -> Iterator[str]:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import INDENT, json_line, one_line
    from infloop.model.approval import answer_hint

    until = f"until {moment(approval.expires_at)}" if approval.expires_at else ""
    place = f"run {short(approval.run_id)} {one_line(approval.path)}" if approval.run_id else ""
    name = "" if approval.hint else short(approval.id)
    yield "  ".join(filter(None, (name, one_line(approval.kind), place.rstrip(), until)))
    yield f"{INDENT}{one_line(approval.title)}"
    for key, value in approval.details.items():
        text = value if isinstance(value, str) else json_line(value)
        yield f"{INDENT}{INDENT}{one_line(key)}: {one_line(text, MAX_DETAIL)}"
    yield f"{INDENT}{one_line(answer_hint(approval))}"


async def _answer(args: argparse.Namespace, decision: AllowOrDeny) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, one_line

    async with app.open_application(app.settings()) as application:
        approval_id = await application.approvals.find_id(args.id)
        settled = await application.approvals.answer(approval_id, decision, COMMAND_LINE, args.note)
    if args.json:
        print(json_line(to_json(settled)))
    else:
        print(one_line(f"{settled.state}: {settled.title}"))
    return 0
