"""Rows of the database as records of the interfaces.

The order of the columns is the same in every database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from infloop.model.approval import Approval
from infloop.model.audit import Actor
from infloop.model.events import Cause
from infloop.model.values import JsonObject
from infloop.store.encoding.compression import unpack
from infloop.store.interfaces.queue import QueuedRun, QueueEntry
from infloop.store.interfaces.run_log import RunRow

if TYPE_CHECKING:
    from collections.abc import Sequence

_CAUSE = 5

APPROVAL_COLUMNS = (
    "id, kind, title, details, asked_at, expires_at, run, workflow, path, state, answered_by,"
    " answered_at, note, action"
)
QUEUE_COLUMNS = (
    "id, run, workflow, correlation_id, cause, priority, coalesce(idempotency_key, ''), queued_at,"
    " state, owner, reason, held, requires, max_concurrent, coalesce(definition, ''), body, key"
)

_cause = msgspec.json.Decoder(Cause).decode
_actor = msgspec.json.Decoder(Actor).decode


def run_row(columns: Sequence[Any]) -> RunRow:
    """Return a run; its cause is JSON, and the other columns are the fields of `RunRow`."""
    values = list(columns)
    values[_CAUSE] = _cause(values[_CAUSE])
    return RunRow(*values)


def approval(row: Sequence[Any]) -> Approval:
    """Return the question in a row selected as `APPROVAL_COLUMNS`."""
    name, kind, title, details, asked_at, expires_at, run, workflow, path, state, *rest = row
    actor, answered_at, note, action = rest
    return Approval(
        id=name,
        kind=kind,
        title=title,
        details=msgspec.json.decode(unpack(details)),
        asked_at=asked_at,
        expires_at=expires_at,
        run_id=run,
        workflow_id=workflow,
        path=path,
        state=state,
        answered_by=_actor(actor) if actor else None,
        answered_at=answered_at,
        note=note,
        action=action,
    )


def queue_entry(row: Sequence[Any], position: int) -> QueueEntry:
    """Return the entry in a row selected as `QUEUE_COLUMNS`."""
    entry_id, run_id, workflow, correlation, cause, priority, key, queued_at, *rest, body, _ = row
    state, owner, reason, held, requires, max_concurrent, definition = rest
    content: dict[str, JsonObject] = msgspec.json.decode(unpack(body))
    run = QueuedRun(
        id=entry_id,
        run_id=run_id,
        workflow_id=workflow,
        inputs=content.get("inputs", {}),
        correlation_id=correlation,
        queued_at=queued_at,
        cause=_cause(cause),
        priority=priority,
        idempotency_key=key,
        extra=content.get("extra", {}),
        requires=tuple(msgspec.json.decode(requires)),
        max_concurrent=max_concurrent,
        definition=definition,
    )
    return QueueEntry(run, state, position, owner, reason, bool(held))
