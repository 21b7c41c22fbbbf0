"""How runs ended and what they cost, by day or by workflow."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.application.models import Model
from infloop.errors import UsageError
from infloop.runtime.spending.ledger import midnight_ms
from infloop.store.interfaces.ledger import CallFilter

if TYPE_CHECKING:
    from datetime import date

    from infloop.application.resources import Resources
    from infloop.store.interfaces.run_log import RunRow

Grouping: TypeAlias = Literal["day", "workflow"]

PAGE = 500


class RunCounts(Model, kw_only=True):
    """The runs of one day or workflow that have ended; `key` is a date or an id.

    `costUsd` is what all calls of that day or workflow cost, as far as it is known. `medianMs` is
    null if no run has ended.
    """

    key: str
    succeeded: int
    failed: int
    cancelled: int
    cost_usd: float
    median_ms: int | None


class RunStatistics(Model, kw_only=True):
    """Runs by day, oldest first, or by workflow."""

    by: Grouping
    rows: list[RunCounts]


async def run_statistics(
    resources: Resources, by: Grouping, since: date, workflow_id: str | None = None
) -> RunStatistics:
    """Count the runs, of one workflow or all, that began on or after a day."""
    if not 1971 <= since.year <= 9000:
        raise UsageError(f"{since} is no day on which infloop could have run")
    start = midnight_ms(since)
    ended: dict[str, list[RunRow]] = defaultdict(list)
    for row in await _rows_since(resources, start, workflow_id):
        ended[_key(row, by)].append(row)
    totals = await resources.store.ledger.totals(
        by, CallFilter(since=start, workflow_id=workflow_id or "")
    )
    costs = {row.key: row.usd for row in totals}
    keys = sorted({*ended, *costs})
    return RunStatistics(by=by, rows=[_counts(key, ended[key], costs.get(key, 0)) for key in keys])


async def _rows_since(resources: Resources, start: int, workflow_id: str | None) -> list[RunRow]:
    found: list[RunRow] = []
    cursor = None
    run_log = resources.store.run_log
    while page := await run_log.runs(workflow_id=workflow_id, limit=PAGE, before=cursor):
        found += [row for row in page if row.started_at >= start]
        cursor = page[-1].cursor
        if page[-1].started_at < start:
            break
    return found


def _key(row: RunRow, by: Grouping) -> str:
    if by == "workflow":
        return row.workflow_id
    return datetime.fromtimestamp(row.started_at / 1000, UTC).astimezone().date().isoformat()


def _counts(key: str, rows: list[RunRow], cost_usd: float) -> RunCounts:
    def count(status: str) -> int:
        return sum(row.status == status for row in rows)

    durations = [row.finished_at - row.started_at for row in rows if row.finished_at is not None]
    return RunCounts(
        key=key,
        succeeded=count("succeeded"),
        failed=count("failed"),
        cancelled=count("cancelled"),
        cost_usd=cost_usd,
        median_ms=int(median(durations)) if durations else None,
    )
