"""Puts the interfaces together, on any access to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.store.interfaces.store import Store
from infloop.store.sqlite.approvals import SqliteApprovals
from infloop.store.sqlite.ledger import SqliteLedger
from infloop.store.sqlite.liveness import SqliteLiveness
from infloop.store.sqlite.queue import SqliteQueue
from infloop.store.sqlite.rate_limits import SqliteRateLimits
from infloop.store.sqlite.refusals import SqliteRefusals
from infloop.store.sqlite.results import SqliteResults
from infloop.store.sqlite.run_log import SqliteRunLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from infloop.store.sqlite.access import Readers, Writer
    from infloop.store.sqlite.changes import SqliteChanges

DATABASE_FILE = "journal.db"


def make_store(
    writer: Writer,
    readers: Readers,
    changes: SqliteChanges,
    *,
    data_dir: Path,
    clock: Callable[[], int],
    output_cap: int,
    close: Callable[[], Awaitable[None]],
) -> Store:
    """Return the store whose database is reached by `writer` and `readers`."""
    return Store(
        run_log=SqliteRunLog(writer, readers, output_cap),
        ledger=SqliteLedger(writer, readers),
        queue=SqliteQueue(writer, readers, output_cap),
        refusals=SqliteRefusals(writer, readers),
        rates=SqliteRateLimits(writer),
        approvals=SqliteApprovals(writer, readers),
        liveness=SqliteLiveness(writer, readers, data_dir / "instances", clock),
        results=SqliteResults(writer, readers),
        changes=changes,
        close=close,
    )
