"""Read the audit log: who did what, when, and what came of it, the newest first.

  infloop audit
  infloop audit --event webhook --since 2026-07-01
  infloop audit --run 1f3a9c2e --json
  infloop audit --follow
  infloop audit --verify

--event takes a name, such as `webhook.refused`, or an area, such as `webhook`. --follow shows the
last entries, then each new one, until Ctrl+C. --verify reads the whole log and names the first line
that was changed, removed, added or moved; what it prints when all is well, noted elsewhere,
also shows later whether the end of the log is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from infloop.model.audit import AuditEntry, AuditFilter
    from infloop.store.audit.reading import Verification

DEFAULT_LIMIT = 50
MOST = 100_000
POLL_SECONDS = 0.2
MOST_DETAILS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--follow", action="store_true", help="go on with each new entry")
    way.add_argument("--verify", action="store_true", help="check every line of the log")
    parser.add_argument("--event", default="", help="only this event, or this area of events")
    parser.add_argument("--actor", default="", help="only what this kind of actor, or name, did")
    parser.add_argument("--run", default="", help="only this run, by the beginning of its id")
    parser.add_argument("--correlation", default="", metavar="ID", help="only this request")
    parser.add_argument(
        "--since", type=_time, metavar="TIME", help="from this date, or date and time, on"
    )
    parser.add_argument(
        "--limit", type=_count, default=DEFAULT_LIMIT, metavar="N", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


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


def _count(text: str) -> int:
    import argparse

    if not text.isdecimal() or not 0 < int(text[:9]) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST}")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Print entries, or the verdict on all of them."""
    from infloop import app
    from infloop.model.audit import AuditFilter
    from infloop.store.audit.reading import verify

    directory = app.audit_dir(app.settings())
    if args.verify:
        return _show_verdict(verify(directory), as_json=args.json)
    wanted = AuditFilter(args.event, args.actor, args.run, args.correlation, args.since)
    if args.follow:
        return app.run_async(_follow(directory, wanted, args.limit, as_json=args.json))
    _show_newest(directory, wanted, args.limit, as_json=args.json)
    return 0


def _show_newest(directory: Path, wanted: AuditFilter, limit: int, *, as_json: bool) -> None:
    from infloop.cli.view.terminal import note, plural
    from infloop.store.audit.reading import newest

    found = newest(directory, wanted, limit)
    for entry in found.entries:
        print(_line(entry, as_json=as_json))
    if not found.entries:
        note("the audit log has no such entry")
    if found.unreadable:
        note(
            f"{plural(found.unreadable, 'line')} could not be read; "
            "`infloop audit --verify` names the first that is not intact"
        )


async def _follow(directory: Path, wanted: AuditFilter, limit: int, *, as_json: bool) -> int:
    """Print the last entries and go on; only an interruption ends it."""
    import asyncio

    from infloop.store.audit.reading import Follower, newest

    follower = Follower(directory)
    try:
        # The follower was first, so nothing falls between the two; what both saw is shown once.
        before = newest(directory, wanted, limit).entries[::-1]
        shown = {entry.hash for entry in before}
        for entry in before:
            print(_line(entry, as_json=as_json), flush=True)
        while True:
            for entry in follower.read(wanted):
                if entry.hash not in shown:
                    print(_line(entry, as_json=as_json), flush=True)
            await asyncio.sleep(POLL_SECONDS)
    finally:
        follower.close()


def _line(entry: AuditEntry, *, as_json: bool) -> str:
    from infloop.cli.view.terminal import json_line, one_line

    if as_json:
        import msgspec

        return json_line(msgspec.to_builtins(entry))
    from infloop.model.values import compact_json

    who = f"{entry.actor.kind} {entry.actor.name}".strip()
    words = (
        f"{entry.event:<18} {who}",
        entry.outcome,
        entry.workflow_id,
        entry.run_id[:8],
        entry.correlation_id,
    )
    details = one_line(compact_json(entry.details), MOST_DETAILS) if entry.details else ""
    return "  ".join(filter(None, (_when(entry), *map(one_line, words), details)))


def _when(entry: AuditEntry) -> str:
    """Return when it happened, in the reader's own time zone, or whatever is written there."""
    from datetime import datetime

    from infloop.cli.view.terminal import one_line

    try:
        when = datetime.fromisoformat(entry.time).astimezone()
    except (ValueError, OverflowError):
        return one_line(entry.time)
    return when.strftime("%Y-%m-%d %H:%M:%S")


def _show_verdict(verdict: Verification, *, as_json: bool) -> int:
    from dataclasses import asdict

    from infloop.cli.view.terminal import json_line, one_line, plural

    flaw = verdict.flaw
    if as_json:
        print(json_line({"intact": flaw is None, **asdict(verdict)}))
    elif flaw is not None:
        print(one_line(f"{flaw.file} line {flaw.line}: {flaw.why}"))
        print(f"before it {plural(verdict.entries, 'line')} in order; the last is {verdict.last}")
    else:
        files = plural(verdict.files, "file")
        entries = "1 entry" if verdict.entries == 1 else f"{verdict.entries} entries"
        print(f"intact: {entries} in {files}; the last is {verdict.last}")
    return 0 if flaw is None else 1
