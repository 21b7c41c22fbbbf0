"""Show what agents and judges have cost, by day, workflow, provider or run.

  infloop costs
  infloop costs --by workflow --since 2026-07-01
  infloop costs --by run --json

Every call of a provider counts, those of cancelled, killed and forgotten runs included. A `+` marks
a sum that is not complete: a call did not say what it cost, is not over yet, or was cut off when
its process died; it counts with what it had reported by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from datetime import date

    from infloop.model.values import JsonObject
    from infloop.settings import Settings
    from infloop.store.interfaces.ledger import CallLedger, Spending

GROUPINGS = ("day", "workflow", "provider", "run")
WIDTH = 80
MOST_ROWS = 40
MOST_NAME = 24
MOST_BAR = 30
EIGHTHS = " ▏▎▍▌▋▊▉"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument(
        "--by", choices=GROUPINGS, default="day", metavar="WHAT", help=", ".join(GROUPINGS)
    )
    parser.add_argument(
        "--since", type=_date, metavar="DATE", help="only calls made on or after this day"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _date(text: str) -> date:
    import argparse
    from datetime import date

    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not 1971 <= day.year <= 9000:  # beyond, the local time of a day may not be computed
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-07-01")
    return day


def main(args: argparse.Namespace) -> int:
    """Print the costs."""
    from infloop import app

    return app.run_async(_costs(args))


async def _costs(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import json_line, note
    from infloop.runtime.spending.ledger import midnight_ms
    from infloop.store.interfaces.ledger import CallFilter

    chosen = app.settings()
    calls = CallFilter(since=midnight_ms(args.since) if args.since else 0)
    async with app.open_store(chosen) as store:
        rows = await store.ledger.totals(args.by, calls)
        total = await store.ledger.total(calls)
        limit = await _limit(store.ledger, chosen)
    if args.json:
        print(json_line({"by": args.by, "rows": [*map(_object, rows)], "total": _object(total)}))
    elif not rows:
        note("no agent and no judge has been asked")
    else:
        shown = _newest(rows) if args.by == "day" else _dearest(rows)
        for line in (*table(args.by, shown, total), *_doubts(total), *limit):
            print(line)
        if len(shown) < len(rows):
            note(f"{len(rows) - len(shown)} more are in the total; --json prints all of them")
    return 0


def _object(spending: Spending) -> JsonObject:
    """Return a sum for another program."""
    return {
        "key": spending.key,
        "calls": spending.calls,
        "costUsd": spending.usd,
        "complete": not spending.incomplete,
        "unknown": spending.unknown,
        "open": spending.open,
        "abandoned": spending.abandoned,
        "tokens": {
            "input": spending.input_tokens,
            "output": spending.output_tokens,
            "cached": spending.cached_tokens,
        },
    }


def _newest(rows: Sequence[Spending]) -> Sequence[Spending]:
    return rows[-MOST_ROWS:]


def _dearest(rows: Sequence[Spending]) -> Sequence[Spending]:
    return sorted(rows, key=lambda row: (-row.usd, row.key))[:MOST_ROWS]


def table(by: str, rows: Sequence[Spending], total: Spending) -> Iterator[str]:
    """Yield the sums as a table with a bar for each, at most 80 columns wide."""
    names = [_name(by, row.key) for row in rows]
    name_width = max(len(name) for name in (by, "total", *names))
    cost_width = max(len(_cost(row)) for row in (total, *rows))
    most = max(row.usd for row in rows)

    def line(name: str, cells: tuple[str, ...], cost: str) -> str:
        counts = "".join(f"{cell:>8}" for cell in cells)
        return f"{name:<{name_width}}{counts}  {cost:>{cost_width}}"

    yield line(by, ("calls", "tok in", "tok out"), "cost")
    for name, row in zip(names, rows, strict=True):
        text = line(name, _counts(row), _cost(row)) + _mark(row)
        room = min(MOST_BAR, WIDTH - len(text) - 1)
        yield f"{text} {bar(row.usd / most if most else 0.0, room)}".rstrip()
    yield line("total", _counts(total), _cost(total)) + _mark(total).rstrip()


def _name(by: str, key: str) -> str:
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import one_line

    return short(key) if by == "run" else one_line(key, MOST_NAME)


def _counts(spending: Spending) -> tuple[str, str, str]:
    return (
        str(spending.calls),
        _many(spending.input_tokens),
        _many(spending.output_tokens),
    )


def _cost(spending: Spending) -> str:
    from infloop.cli.view.figures import sum_of_money

    return sum_of_money(spending.usd, incomplete=spending.incomplete > 0)


def _mark(spending: Spending) -> str:
    return " +" if spending.incomplete else "  "


def _many(count: int) -> str:
    """Return a count as people read it: `999`, `12.3k`, `4.5M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def bar(share: float, width: int) -> str:
    """Return a bar over so much of `width`; what is more than nothing can be seen."""
    eighths = round(share * width * 8)
    whole, part = divmod(max(eighths, 1) if share > 0 else 0, 8)
    return ("█" * whole + EIGHTHS[part]).rstrip()


def _doubts(total: Spending) -> Iterator[str]:
    """Yield what is missing from the total."""
    from infloop.cli.view.terminal import plural

    reasons = (
        (total.unknown, "ended without saying what it cost", "ended without saying what they cost"),
        (total.open, "is not over yet", "are not over yet"),
        (total.abandoned, "was cut off", "were cut off"),
    )
    said = [
        f"{plural(count, 'call')} {one if count == 1 else many}"
        for count, one, many in reasons
        if count
    ]
    if said:
        yield ""
        yield "+ incomplete:"
        yield from (f"  {text}" for text in said)


async def _limit(ledger: CallLedger, chosen: Settings) -> list[str]:
    """Return how much is left, where that is the same for every process."""
    from infloop.cli.view.figures import money
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.spending.ledger import window_start_ms
    from infloop.store.interfaces.ledger import CallFilter

    most, window = chosen.max_total_cost_usd, chosen.cost_window
    if not most or window == "process":
        return []
    since = window_start_ms(window, SystemClock().now_ms())
    spent = (await ledger.total(CallFilter(since=since))).usd
    return ["", f"limit {money(most)} a {window}: {money(max(0.0, most - spent))} left"]
