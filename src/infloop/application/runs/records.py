"""Run records: a finished run as one JSON file, in Infinite Loop's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.store.run_records import export_record, import_record

if TYPE_CHECKING:
    from infloop.application.resources import Resources
    from infloop.application.runs.history import RunHistory
    from infloop.application.runs.models import RunSummary
    from infloop.model.values import JsonObject


class RunRecords:
    """Exports and imports runs."""

    def __init__(self, resources: Resources, history: RunHistory) -> None:
        self._log = resources.store.run_log
        self._history = history

    async def export(self, run_id: str) -> JsonObject:
        """Return the record of a finished run; of a very long run it has the last events."""
        return await export_record(self._log, run_id)

    async def add(self, record: object) -> RunSummary:
        """Store the run of a record. Raises UsageError if it exists already, or is no record."""
        row = await import_record(self._log, record)
        await self._log.index_runs(row.id)
        return await self._history.summarize(row)
