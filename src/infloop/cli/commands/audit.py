"""Read the audit log: who did what, when, and with which outcome, the newest first.

  infloop audit
  infloop audit --event webhook --since 2026-07-01
  infloop audit --run 1f3a9c2e --json
  infloop audit --follow
  infloop audit --verify

--event takes a name, such as `webhook.refused`, or an area, such as `webhook`. --follow shows the
last entries, then each new one, until Ctrl+C. --verify reads the whole log and names the first line
that was changed, removed, added or moved. If there is none it prints the hash of the last entry:
keep it elsewhere to detect later whether the end of the log was cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, count

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import FileApplication
    from infloop.application.audit import Verification
    from infloop.model.audit import AuditEntry, AuditFilter

DEFAULT_LIMIT = 50
MAX_DETAILS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--follow", action="store_true", help="print each new entry as well")
    way.add_argument("--verify", action="store_true", help="check every line of the log")
    parser.add_argument("--event", default="", help="only this event, or this area of events")
    parser.add_argument("--actor", default="", help="only what this kind of actor, or name, did")
    parser.add_argument("--run", default="", help="only this run, by the beginning of its id")
    parser.add_argument("--correlation", default="", metavar="ID", help="only this request")
    parser.add_argument(
        "--since", type=_time, metavar="TIME", help="from this date, or date and time, on"
    )
    parser.add_argument(
        "--limit", type=count, default=DEFAULT_LIMIT, metavar="N", help="default: %(default)s"
    )
    add_json(parser, "one JSON object a line")


def _time(text: str) -> int:
    import argparse
    from datetime import datetime

    try:
        when = datetime.fromisoformat(text).astimezone()
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-07-01 or 2026-07-01T14:30"
        ) from None


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_audit(args))


async def _audit(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.model.audit import AuditFilter

    async with app.open_files(app.settings()) as application:
        if args.verify:
            return _print_result(await application.audit.verify(), as_json=args.json)
        wanted = AuditFilter(args.event, args.actor, args.run, args.correlation, args.since)
        if args.follow:
            async for entry in application.audit.follow(wanted, args.limit):
                print(_line(entry, as_json=args.json), flush=True)
        else:
            await _print_newest(application, wanted, args.limit, as_json=args.json)
    return 0


async def _print_newest(
    application: FileApplication, wanted: AuditFilter, limit: int, *, as_json: bool
) -> None:
    from infloop.cli.view.terminal import note, plural

    found = await application.audit.newest(wanted, limit)
    for entry in found.entries:
        print(_line(entry, as_json=as_json))
    if not found.entries:
        note("the audit log has no such entry")
    if found.unreadable:
        note(
            f"{plural(found.unreadable, 'line')} could not be read; "
            "`infloop audit --verify` names the first that is not intact"
        )


def _line(entry: AuditEntry, *, as_json: bool) -> str:
    from infloop.cli.view.terminal import json_line, one_line

    if as_json:
        from infloop.application.models import to_json

        return json_line(to_json(entry))
    from infloop.model.values import compact_json

    who = f"{entry.actor.kind} {entry.actor.name}".strip()
    words = (
        f"{entry.event:<18} {who}",
        entry.outcome,
        entry.workflow_id,
        entry.run_id[:8],
        entry.correlation_id,
    )
    details = one_line(compact_json(entry.details), MAX_DETAILS) if entry.details else ""
    return "  ".join(filter(None, (_when(entry), *map(one_line, words), details)))


def _when(entry: AuditEntry) -> str:
    """Return the time of an entry in the local time zone; if it is no time, the text itself."""
    from datetime import datetime

    from infloop.cli.view.terminal import one_line

    try:
        when = datetime.fromisoformat(entry.time).astimezone()
    except (ValueError, OverflowError):
        return one_line(entry.time)
    return when.strftime("%Y-%m-%d %H:%M:%S")


def _print_result(result: Verification, *, as_json: bool) -> int:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, one_line, plural

    flaw = result.flaw
    if as_json:
        print(json_line(to_json(result)))
    elif flaw is not None:
        print(one_line(f"{flaw.file} line {flaw.line}: {flaw.why}"))
        print(f"before it {plural(result.entries, 'line')} in order; the last is {result.last}")
    else:
        files = plural(result.files, "file")
        entries = "1 entry" if result.entries == 1 else f"{result.entries} entries"
        print(f"intact: {entries} in {files}; the last is {result.last}")
    return 0 if flaw is None else 1
