"""Run records: a finished run as one JSON file, in Infinite Loop's format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infloop.catalog.installation import MAX_RECORD_BYTES
from infloop.errors import NotFound, UsageError
from infloop.store.run_records import check_record, export_record, import_record

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

    async def has(self, record: object) -> bool:
        """Say whether the run of a record is stored. Raises UsageError if it is no record."""
        try:
            await self._log.run(check_record(record))
        except NotFound:
            return False
        return True

    async def add(self, record: object) -> RunSummary:
        """Store the run of a record. Raises UsageError if it exists already, or is no record."""
        row = await import_record(self._log, record)
        await self._log.index_runs(row.id)
        return await self._history.summarize(row)


def decode_record(data: bytes) -> object:
    """Return the JSON value of a record's file. Raises UsageError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None


__all__ = ["MAX_RECORD_BYTES", "RunRecords", "decode_record"]
