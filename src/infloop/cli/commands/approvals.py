"""List what waits for a person, or answer it.

An agent whose manifest says `ask` waits until somebody allows or denies what it wants, from any
terminal; when nobody answers in time it is denied. Runs that paused for want of money and schedules
that missed their time are listed too, with how to go on.

  infloop approvals
  infloop approvals allow 1f3a9c2e
  infloop approvals deny 1f3a9c2e --note "not on this branch"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.model.approval import Approval
    from infloop.runtime.approvals import Approvals

SHORTEST = 4
LONGEST_DETAIL = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument(
        "action", nargs="?", choices=("allow", "deny"), metavar="ACTION", help="allow or deny"
    )
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="a question's id, or its first characters"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why; it is kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def main(args: argparse.Namespace) -> int:
    """List what waits, or answer one of it."""
    from infloop import app
    from infloop.errors import UsageError

    if args.action and not args.id:
        raise UsageError(
            f"say which: `infloop approvals {args.action} ID`; `infloop approvals` lists them"
        )
    return app.run_async(_answer(args) if args.action else _list(as_json=args.json))


async def _list(*, as_json: bool) -> int:
    from infloop import app
    from infloop.cli.view.terminal import json_line, note
    from infloop.runtime.approvals import approval_json

    async with app.open_approvals(app.settings()) as approvals:
        waiting = await approvals.waiting()
    for each in waiting:
        if as_json:
            print(json_line(approval_json(each)))
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
    from infloop.runtime.approvals import answer_hint

    until = f"until {moment(approval.expires_at)}" if approval.expires_at else ""
    place = f"run {short(approval.run_id)} {one_line(approval.path)}" if approval.run_id else ""
    name = "" if approval.hint else short(approval.id)
    yield "  ".join(filter(None, (name, one_line(approval.kind), place.rstrip(), until)))
    yield f"{INDENT}{one_line(approval.title)}"
    for key, value in approval.details.items():
        told = value if isinstance(value, str) else json_line(value)
        yield f"{INDENT}{INDENT}{one_line(key)}: {one_line(told, LONGEST_DETAIL)}"
    yield f"{INDENT}{one_line(answer_hint(approval))}"


async def _answer(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import json_line, one_line
    from infloop.model.audit import Actor
    from infloop.runtime.approvals import approval_json

    async with app.open_approvals(app.settings()) as approvals:
        name = await _named(approvals, args.id)
        settled = await approvals.answer(name, args.action, Actor("cli"), note=args.note)
    if args.json:
        print(json_line(approval_json(settled)))
    else:
        print(one_line(f"{settled.state}: {settled.title}"))
    return 0


async def _named(approvals: Approvals, text: str) -> str:
    """Return the id that is meant by its beginning; a whole one is taken as it is."""
    from infloop.errors import UsageError

    found = [each.id for each in await approvals.waiting() if each.id.startswith(text)]
    if len(text) < SHORTEST or len(found) > 1:
        why = f"{len(found)} questions begin with" if len(found) > 1 else "give more than"
        raise UsageError(f"{why} {text!r}; `infloop approvals` lists them")
    return found[0] if found else text
