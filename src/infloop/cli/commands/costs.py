"""Show what agents and judges have cost, by day, workflow, provider or run.

  infloop costs
  infloop costs --by workflow --since 2026-07-01
  infloop costs --by run --json

Every call of a provider counts, also those of cancelled, killed and deleted runs. A `+` marks a sum
that is not complete: a call did not report its cost, has not ended, or was cut off when its process
died. Such a call counts with what it had reported by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from datetime import date

    from infloop.application.application import Application
    from infloop.application.costs import Cost, CostLimit

GROUPINGS = ("day", "workflow", "provider", "run")
WIDTH = 80
MAX_ROWS = 40
MAX_NAME = 24
MAX_BAR = 30
EIGHTHS = " ▏▎▍▌▋▊▉"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=GROUPINGS, default="day", metavar="WHAT", help=", ".join(GROUPINGS)
    )
    parser.add_argument(
        "--since", type=_date, metavar="DATE", help="only calls made on or after this day"
    )
    add_json(parser)


def _date(text: str) -> date:
    import argparse
    from datetime import date

    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not 1971 <= day.year <= 9000:  # outside, the local time of a day may not be representable
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-07-01")
    return day


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app

    return app.read(partial(_costs, args))


async def _costs(args: argparse.Namespace, application: Application) -> int:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note

    report = await application.costs.report(args.by, args.since)
    rows, total = report.rows, report.total
    if args.json:
        print(json_line(to_json(report)))
    elif not rows:
        note("no agent and no judge has been called")
    else:
        listed = _newest(rows) if args.by == "day" else _most_expensive(rows)
        lines = (*table(args.by, listed, total), *_missing(total), *_limit(report.limit))
        for line in lines:
            print(line)
        if len(listed) < len(rows):
            note(f"{len(rows) - len(listed)} more are in the total; --json prints all of them")
    return 0


def _newest(rows: Sequence[Cost]) -> Sequence[Cost]:
    return rows[-MAX_ROWS:]


def _most_expensive(rows: Sequence[Cost]) -> Sequence[Cost]:
    return sorted(rows, key=lambda row: (-row.cost_usd, row.key))[:MAX_ROWS]


def table(by: str, rows: Sequence[Cost], total: Cost) -> Iterator[str]:
    """Yield the sums as a table with a bar for each, at most 80 columns wide."""
    names = [_name(by, row.key) for row in rows]
    name_width = max(len(name) for name in (by, "total", *names))
    cost_width = max(len(_cost_text(row)) for row in (total, *rows))
    most = max(row.cost_usd for row in rows)

    def line(name: str, cells: tuple[str, ...], cost: str) -> str:
        counts = "".join(f"{cell:>8}" for cell in cells)
        return f"{name:<{name_width}}{counts}  {cost:>{cost_width}}"

    yield line(by, ("calls", "tok in", "tok out"), "cost")
    for name, row in zip(names, rows, strict=True):
        text = line(name, _counts(row), _cost_text(row)) + _mark(row)
        room = min(MAX_BAR, WIDTH - len(text) - 1)
        yield f"{text} {bar(row.cost_usd / most if most else 0.0, room)}".rstrip()
    yield line("total", _counts(total), _cost_text(total)) + _mark(total).rstrip()


def _name(by: str, key: str) -> str:
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import one_line

    return short(key) if by == "run" else one_line(key, MAX_NAME)


def _counts(cost: Cost) -> tuple[str, str, str]:
    from infloop.cli.view.figures import tokens

    return str(cost.calls), tokens(cost.tokens.input), tokens(cost.tokens.output)


def _cost_text(cost: Cost) -> str:
    from infloop.cli.view.figures import sum_of_money

    return sum_of_money(cost.cost_usd, complete=cost.complete)


def _mark(cost: Cost) -> str:
    return "  " if cost.complete else " +"


def bar(share: float, width: int) -> str:
    """Return a bar that fills a share of `width`; a share above zero is always visible."""
    eighths = round(share * width * 8)
    whole, part = divmod(max(eighths, 1) if share > 0 else 0, 8)
    return ("█" * whole + EIGHTHS[part]).rstrip()


def _missing(total: Cost) -> Iterator[str]:
    """Yield why the total is not complete."""
    from infloop.cli.view.terminal import plural

    reasons = (
        (total.unknown, "did not report its cost", "did not report their cost"),
        (total.open, "has not ended", "have not ended"),
        (total.abandoned, "was cut off", "were cut off"),
    )
    texts = [
        f"{plural(count, 'call')} {one if count == 1 else many}"
        for count, one, many in reasons
        if count
    ]
    if texts:
        yield ""
        yield "+ incomplete:"
        yield from (f"  {text}" for text in texts)


def _limit(limit: CostLimit | None) -> list[str]:
    """Return how much may still be spent, where that is the same for every process."""
    from infloop.cli.view.figures import money

    if limit is None:
        return []
    return ["", f"limit {money(limit.limit_usd)} a {limit.window}: {money(limit.left_usd)} left"]
