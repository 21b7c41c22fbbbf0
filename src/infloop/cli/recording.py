"""What somebody asks of a run at the command line, in the audit log before it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.model.audit import EventName
    from infloop.model.values import JsonValue
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.run_log import RunRow


async def record(audit: AuditLog, event: EventName, run: RunRow, **details: JsonValue) -> None:
    """Write what is about to be done with a run; raise AuditError, so that it is not done."""
    from infloop.model.audit import Actor

    await audit.record(
        event,
        Actor("cli"),
        correlation_id=run.correlation_id,
        run_id=run.id,
        workflow_id=run.workflow_id,
        details=details,
    )
