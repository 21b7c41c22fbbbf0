"""Moves the store of the data directory to a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.store.opening import move_store, shown_address

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources


class MovedTable(Model, kw_only=True):
    """How many rows of a table were copied."""

    table: str
    rows: int


class MoveReport(Model, kw_only=True):
    """What was copied, and where it is now; an address is shown without its password."""

    database: str
    tables: list[MovedTable]


class Moving:
    """Copies everything that is stored into an empty database, once."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    async def run(self, target: str, caller: Caller) -> MoveReport:
        """Copy all or nothing; see `store.moving`.

        Raises SettingsError if `target` is no address of a database, and UsageError if a process
        uses the data directory, or if the target is not empty.
        """
        shown = shown_address(target)
        await self._resources.audit().record(
            "store.moved",
            caller.actor,
            correlation_id=caller.correlation_id,
            details={"to": shown},
        )
        moved = await move_store(self._resources.folders.data, self._resources.clock.now_ms, target)
        tables = [MovedTable(table=each.table, rows=each.rows) for each in moved]
        return MoveReport(database=shown, tables=tables)
